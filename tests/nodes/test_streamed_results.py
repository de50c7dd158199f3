"""Wide results of more than 64 MiB are written past the caches, with the values that smaller ones get."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import dace
import numpy as np
import pytest
import torch

from dacergnn import Config, HeteroGraph, parse
from dacergnn.program import Program
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import compile_program

WIDTH, NODES, EDGES, HUB = 32, (70 << 20) // 128, 100_000, 9_000
PROGRAM = f"""
def layer(g, x: NS[{WIDTH}], s: E, b: ONE[{WIDTH}]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sum"] += e["s"] * e.src.x
    for n in g.dst_nodes():
        n["out"] = n["sum"] * 2.0 + b
    return sum, out
"""
CONFIGS = {
    "operators apart": Config("O0"),
    **{name: Config(adjacency=name) for name in ("csr", "csc", "coo", "ell:99999", "hybrid")},
}


Given = tuple[HeteroGraph, dict[str, torch.Tensor], torch.Tensor]


def made(hub: int) -> Given:
    """A graph with a hub and nodes without edges, inputs for it, and the sums in float64."""
    rng = np.random.default_rng(0)
    ends = np.unique(np.stack([rng.choice(NODES, EDGES), rng.choice(NODES, EDGES)]), axis=1)
    ends[0, :hub] = 5
    dst, src = ends[:, np.lexsort((ends[1], ends[0]))]  # the order of edges in programs
    edges = torch.from_numpy(np.stack([src, dst]))
    graph = HeteroGraph.from_arrays(edges, torch.zeros(len(dst), dtype=torch.long), num_nodes=NODES)
    arrays = {"x": torch.randn(NODES, WIDTH), "s": torch.randn(len(dst)), "b": torch.randn(1, WIDTH)}
    matrix = torch.sparse_coo_tensor(torch.from_numpy(np.stack([dst, src])), arrays["s"].double(), (NODES, NODES))
    return graph, arrays, torch.sparse.mm(matrix, arrays["x"].double())


@pytest.fixture(scope="module")
def given() -> Callable[[int], Given]:
    """Makes each graph once."""
    return cache(made)


def largest(differences: torch.Tensor) -> float:
    """The largest one, NaN if any is; comparisons with a tolerance take seconds for so many."""
    return float(differences.abs_().max())


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_values(config: Config, given: Callable[[int], Given]) -> None:
    """A hub, nodes without edges, and rows that are written where nothing else reads them."""
    # The matrix of ELL is as wide as the longest group.
    graph, arrays, total = given(3 if "ell" in config.adjacency else HUB)
    plan = compile_program(parse(PROGRAM), [], config, dace.int32)
    executable = Executable(plan.forward)
    found = executable(executable.prepare(graph), [arrays[n] for n in executable.lowered.inputs])
    assert largest(found[0] - total) <= 1e-3
    assert largest((found[1] - arrays["b"].double()).div_(2.0).sub_(total)) <= 1e-3


def test_products_with_an_epilogue() -> None:
    """Rows are finished in the cache, whether those of the product are stored or not."""
    program = f"""
def layer(g, x: NS[5], W: ONE[5, {WIDTH}], Q: ONE[5, {WIDTH}], b: NS):
    for n in g.src_nodes():
        n["y"] = linear(n.x, W)
        n["z"] = n["y"] * 2.0 + n.b
    for n in g.src_nodes():
        n["v"] = linear(n.x, Q)
        n["w"] = n["v"] * 2.0 + n.b
    return y, z, w
"""
    graph = HeteroGraph.from_arrays(torch.zeros(2, 0, dtype=torch.long), None, num_nodes=NODES)
    sdfg = compile_program(parse(program), [], Config(), dace.int32).forward
    assert [o.locals for o in Program(sdfg).operators] == [[], ["v"]]
    executable = Executable(sdfg)
    weights = {"W": torch.randn(1, 5, WIDTH), "Q": torch.randn(1, 5, WIDTH)}
    arrays = {"x": torch.randn(NODES, 5), "b": torch.randn(NODES), **weights}
    found = executable(executable.prepare(graph), [arrays[n] for n in executable.lowered.inputs])
    y, v = (arrays["x"].double() @ weight[0].double() for weight in weights.values())
    b = arrays["b"].double()[:, None]
    expected = {"y": y, "z": y * 2.0 + b, "w": v * 2.0 + b}
    for tensor, buffer in zip(found, executable.lowered.outputs, strict=True):
        assert largest(tensor - expected[buffer.name]) <= 1e-4
