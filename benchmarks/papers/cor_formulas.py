"""Counts what tables of Cached Operator Reordering count, on our programs and graphs; nothing is timed."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import dace

from benchmarks.caching.workload import STATISTICS
from benchmarks.papers.artefact import Found, Picture, Row, Scale
from dacergnn import datasets
from dacergnn.cli.options import present
from dacergnn.config import Config
from dacergnn.cost import ITEM, Cost, program_cost
from dacergnn.datasets import Dataset
from dacergnn.frontends.convolution_programs import gcn
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import parse_encoding, target_space
from dacergnn.program import Program, parse
from dacergnn.sdfg_passes import compile_program

ARXIV = "arxiv~"
GRAPHS = ("cora", "citeseer", "pubmed", "flickr~", ARXIV)
"""Data sets of table 4."""
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
ORDERS = ("transform_first", "aggregate_first")
INPUTS = 128
"""Input features of Arxiv, the paper's `m`."""
WIDTH = 64
"""Columns of the dense matrices of tables 5 and 6."""
FORMATS = {"csr": "CSR", "csc": "CSC", "coo": "COO", "ell": "ELLPACK"}
INDEX: Any = dace.int32
SUM = f"""
def spmm(g, a: E, x: NS[{WIDTH}]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.a * e.src.x
    return out
"""
"""Multiplies a sparse matrix, with the values `a`, by a dense one."""
SYNTHETIC = 'Graphs with "~" are synthetic, with the counts of the real ones; so their largest degrees differ.'


@cache
def loaded(name: str) -> Dataset:
    """Returns a data set; a synthetic one where the real one is not on this machine."""
    return datasets.load(present(name))


def plain(name: str) -> str:
    """Returns the name of a data set as the keys of facts have it."""
    return name.partition("~")[0]


@cache
def layer_cost(size: int, order: str, caching: str, gradient: bool) -> tuple[Cost, Cost]:
    """Returns what the compiled programs of a GCN layer cost on Arxiv's counts, forward and backward.

    Args:
        size: Output features.
        gradient: Whether the backward gives the gradient of the input features, too.
    """
    arrays = {"x": f"NS[{INPUTS}]", "W": f"ONE[{size}, {INPUTS}]", "left": "NS", "right": "ND", "bias": f"ONE[{size}]"}
    sdfg = parse(gcn, **arrays, norm=None, transposed=True, features="h")
    graph, wrt = loaded(ARXIV).graph, ["x", "W", "bias"] if gradient else ["W", "bias"]
    config = Config(aggregation=order, caching=caching)
    compilation = compile_program(sdfg, wrt, config, INDEX, Profile.of(graph), keep=False)
    forward, backward = (program_cost(part, graph.sizes) for part in compilation.parts)
    return forward, backward


def switch(sizes: tuple[int, ...], first: list[float], second: list[float]) -> float | None:
    """Returns the size from which the second of two rising costs is the smaller one; None if they never change so.

    Between neighbouring sizes, costs are taken to lie on straight lines.
    """
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    for (low, gap), (high, next_gap) in pairwise(zip(sizes, gaps, strict=True)):
        if gap <= 0 < next_gap:
            return low + (high - low) * -gap / (next_gap - gap)
    return None


def without_caching(_: Scale) -> Found:
    """Counts table 1: operations and bytes of both orders, forward and backward, where A X is not saved."""
    parts = {
        "forward": (0, False, INPUTS),
        "backward, with feature gradient": (1, True, 2 * INPUTS),
        "backward, no feature gradient": (1, False, INPUTS),
    }
    rows: list[Row] = []
    summary: dict[str, float] = {}
    for name, (part, gradient, threshold) in parts.items():
        costs = [[layer_cost(k, order, "recompute_all", gradient)[part] for k in SIZES] for order in ORDERS]
        rows += _compared(name, costs, threshold)
        summary |= _switches(name, costs)
    return _orders(rows, summary)


def with_caching(_: Scale) -> Found:
    """Counts table 2: operations and bytes of both orders, forward and backward together, where A X is saved."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    parts = {"with feature gradient": (True, INPUTS), "no feature gradient": (False, INPUTS // 2)}
    for name, (gradient, threshold) in parts.items():
        costs = [[sum(layer_cost(k, order, "cache_all", gradient), Cost()) for k in SIZES] for order in ORDERS]
        rows += _compared(name, costs, threshold)
        summary |= _switches(name, costs)
    return _orders(rows, summary)


def _compared(part: str, costs: list[list[Cost]], threshold: int) -> list[Row]:
    """Returns the costs of both orders by size, the order with fewer operations, and that of the paper."""
    rows: list[Row] = []
    for size, first, second in zip(SIZES, *costs, strict=True):
        fewer = ORDERS[0] if first.flops < second.flops else ORDERS[1] if second.flops < first.flops else "either"
        paper = ORDERS[0] if size < threshold else ORDERS[1] if size > threshold else "either"
        rows.append((part, str(size), first.flops / 1e9, second.flops / 1e9, _moved(first) / 1e9, _moved(second) / 1e9,
                     fewer, paper))  # fmt: skip
    return rows


def _moved(cost: Cost) -> int:
    return cost.streamed + cost.gathered


def _switches(part: str, costs: list[list[Cost]]) -> dict[str, float]:
    """Returns the sizes at which the order with fewer operations, and that with fewer bytes, changes."""
    operations = [[float(cost.flops) for cost in own] for own in costs]
    moved = [[float(_moved(cost)) for cost in own] for own in costs]
    found = {part: switch(SIZES, *operations), f"{part} bytes": switch(SIZES, *moved)}
    return {key: size for key, size in found.items() if size is not None}


def _orders(rows: list[Row], summary: dict[str, float]) -> Found:
    columns = ("part", "size k", *(f"{order} {unit}" for unit in ("GFLOP", "GB") for order in ORDERS),
               "fewer operations", "the paper's condition")  # fmt: skip
    notes = (
        f"Counted on the compiled programs of a GCN layer with {INPUTS} input features on {ARXIV}, with the products, "
        "which are the same in both orders; bytes are those that the compiler estimates.",
    )
    return Found(columns, rows, Picture(columns[2:4], "GFLOP", 2, logarithmic=True), summary, notes)


def graphs(_: Scale) -> Found:
    """Counts table 4: nodes, edges, features and classes of the graphs."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    for name in GRAPHS:
        data = loaded(name)
        n, q = data.graph.size("NS"), data.graph.size("E")
        known = STATISTICS.get(plain(name), (0, 0))
        features = next((x.shape[1] for x in data.features.values()), known[0])
        row = (n, q, features, 100 * q / n**2, data.num_classes or known[1], 2 * q / n)
        rows.append((data.name, *row))
        keys = ("nodes", "edges", "features", "non-zeros", "classes", "degree")
        summary |= {f"{plain(name)} {key}": float(value) for key, value in zip(keys, row, strict=True)}
    columns = ("graph", "nodes", "edges", "features", "non-zeros %", "classes", "average degree")
    notes = (SYNTHETIC, "As in the paper, a directed edge counts for the degrees of both of its ends.")
    return Found(columns, rows, Picture(("nodes", "edges"), "rows", logarithmic=True), summary, notes)


@cache
def encodings(form: str, name: str) -> tuple[str, ...]:
    """Returns the encodings of a graph that a compiled sum over neighbours reads in a sparse format."""
    graph = loaded(name).graph
    profile = Profile(tuple(graph.sizes.items()), graph.single_typed)  # tells of no hubs, so that all formats fit
    compilation = compile_program(parse(SUM), [], Config(adjacency=form), INDEX, profile, keep=False)
    operators: list[Any] = Program(compilation.forward).operators
    return tuple(dict.fromkeys(encoding for operator in operators for encoding in operator.encodings))


def index_words(encoding: str, graph: HeteroGraph) -> int:
    """Returns the number of indices in an encoding, which need not be made for that."""
    kind, space, paths = parse_encoding(encoding)
    if kind in ("ptr", "len"):
        return graph.size(target_space(space, paths[0])) + 1
    if kind == "ell":
        return graph.size(target_space(space, paths[0])) * graph.longest_groups[paths[0]]
    return graph.size(space)


def format_words(form: str, graph: HeteroGraph) -> int:
    """Returns the words of a sparse matrix as the paper counts them: values, columns or rows, and pointers."""
    n, q = graph.size("NS"), graph.size("E")
    padded = 2 * n * graph.longest_groups["dst"]
    return {"csr": 2 * q + n + 1, "csc": 2 * q + n + 1, "coo": 3 * q, "ell": padded}[form]


def spmm(_: Scale) -> Found:
    """Counts table 5: operations for each byte of a sparse matrix times a dense one, by format."""
    return _intensities(flops=2, dense=(0, 3, 0))


def sddmm(_: Scale) -> Found:
    """Counts table 6: operations for each byte of the products of rows at the non-zeros of a sparse matrix."""
    return _intensities(flops=3, dense=(1, 1, 2))


def _intensities(flops: int, dense: tuple[int, int, int]) -> Found:
    """Returns the intensities by format.

    Args:
        flops: Operations for each non-zero and column of the dense matrices.
        dense: Rows of dense matrices for each non-zero and for each node, and values for each non-zero, that are moved.
    """
    by_edge, by_node, values = dense
    rows: list[Row] = []
    summary: dict[str, float] = {}
    for name in ("cora", ARXIV):
        graph = loaded(name).graph
        n, q = graph.size("NS"), graph.size("E")
        summary[f"{plain(name)} longest"] = graph.longest_groups["dst"]
        rest = WIDTH * (by_edge * q + by_node * n) + values * q
        for form, title in FORMATS.items():
            read = encodings(form, name)
            own = sum(index_words(encoding, graph) for encoding in read) + q
            found, theirs = (flops * q * WIDTH / (ITEM * (words + rest)) for words in (own, format_words(form, graph)))
            rows.append((loaded(name).name, title, ", ".join(read), ITEM * own / 1e6, found, theirs))
            summary[f"{plain(name)} {form}"] = found
    columns = ("graph", "format", "our encodings", "matrix MB", "FLOP/byte", "FLOP/byte as the paper stores it")
    notes = (
        "The matrix is what our sums over neighbours read in each format, the numbers of edges among it, and one value "
        "for each edge; the last column has the arrays of the paper's formats. Dense matrices count alike, as the "
        "paper's numbers for CSR and COO demand.",
        SYNTHETIC,
    )
    return Found(columns, rows, Picture(columns[4:], "FLOP/byte", 2), summary, notes)
