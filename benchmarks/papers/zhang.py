"""Measures the figures of Zhang et al. (MLSys 2022): GAT, EdgeConv and MoNet, and what each technique gains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean, mean
from typing import Any

from benchmarks.caching.graphs import BATCHES
from benchmarks.caching.task import Task
from benchmarks.named import Named
from benchmarks.papers.artefact import Artefact, Cell, Found, Picture, Row, Scale
from benchmarks.papers.counted import REORGANIZED, counted
from benchmarks.papers.rows import mean_and_best, no_time, over
from benchmarks.rows import Group
from dacergnn.cli.options import present
from dacergnn.config import Config
from dacergnn.json_lines import Row as CandidateRow

FUSED = (*REORGANIZED, "gemm_scale_fusion", "gemm_epilogue_fusion", "traversal_fusion")
CONFIGS: dict[str, Config] = {
    "as written": Config(passes=()),
    "reorganized": Config(passes=REORGANIZED),
    "fused": Config(passes=FUSED),
    "fused, recomputing": Config(passes=FUSED, caching="papers"),
    "ours": Config(caching="papers"),
}
"""The paper's techniques, one after the other; all our passes, with the paper's choice of what is computed again."""
GAUSSIANS = {"cora": (3, 2), "citeseer": (3, 3), "pubmed": (3, 3)}
"""Kernels of MoNet and their dimensions, by data set."""
REDDIT_GAUSSIANS = (2, 1)
"""The same for Reddit and other graphs."""
REDDIT = (
    'Graphs with "~" are synthetic, with the counts of the real ones; those of Reddit are a part of the size, with as '
    "many edges for a node (492)."
)
MEMORY = (
    "Memory is that of features, parameters, results, what is saved for the backward, and what programs need in "
    "between, layer by layer; bytes are those that the compiler estimates."
)


def task(model: str, data: str, network: str, hidden: int, **more: Any) -> Task:
    """Returns a network of layers on a graph, of a synthetic one where the real one is not on this machine."""
    graph = data if data in BATCHES else present(data)
    return Task(model, graph, network, more.pop("features", 64), hidden, **more)


def networks(scale: Scale) -> list[Task]:
    """Returns the networks of figure 7."""
    more = ("pubmed", "flickr~", "arxiv~")
    graphs = scale.graphs(("cora", "citeseer", "reddit~0.02"), ("cora", "citeseer", *more, "reddit~0.02"))
    clouds = scale.pick(("2 clouds",), ("32 clouds", "64 clouds"))
    batches = [f"{name}, k={k}" for name in clouds for k in (20, 40)]
    return [
        *(task("gat", name, "network", 128) for name in graphs),
        *(task("edgeconv", name, "network", 64, widths=(64, 64, 128, 256)) for name in batches),
        *(task("monet", name, "network", 16, gaussians=GAUSSIANS.get(name, REDDIT_GAUSSIANS)) for name in graphs),
    ]


def gat(data: str, model: str = "gat") -> Task:
    """Returns the layer of GAT of figures 8 to 10."""
    return task(model, data, "layer", 64, heads=4)


def edgeconv(scale: Scale) -> Task:
    """Returns the layer of EdgeConv of figures 8 and 9."""
    return task("edgeconv", scale.pick("2 clouds, k=40", "64 clouds, k=40"), "layer", 64)


def monet(data: str) -> Task:
    """Returns the layer of MoNet of figures 9 and 10."""
    return task("monet", data, "layer", 16, features=16, gaussians=REDDIT_GAUSSIANS)


def large(scale: Scale) -> tuple[str, ...]:
    """Returns the graphs of figures 9 and 10."""
    return scale.graphs(("reddit~0.02",), ("flickr~", "arxiv~", "reddit~0.05"))


def trained(network: Task, scale: Scale) -> Mapping[str, CandidateRow]:
    """Returns training steps of a network, "ours" and those of "pyg COO" and "dgl eager"."""
    return counted(network, (*ours(("ours",)), Named("pyg", "COO"), Named("dgl", "eager")), "train", scale)


def ours(names: Iterable[str]) -> tuple[Named, ...]:
    """Returns ways of ours by the names of `CONFIGS`."""
    return tuple(Named("ours", name, CONFIGS[name]) for name in names)


def redundancy(scale: Scale) -> Found:
    """Counts figure 1: operations that reorganization spares, and the share of intermediate data in the memory."""
    rows: list[Row] = []
    shares: dict[str, list[tuple[float, float]]] = {"gat": [], "edgeconv": []}
    measured = {network: trained(network, scale)["ours"] for network in networks(scale) if network.model == "edgeconv"}
    for layer in (gat(name, "gat_by_edge") for name in ("pubmed", *large(scale))):
        measured[layer] = counted(layer, ours(("ours",)), "train", scale)["ours"]
    for network, row in measured.items():
        model = _paper(network)
        written, reorganized = (row[f"{name}_flops"] / 1e9 for name in ("written", "reorganized"))
        redundant = 100 * (1 - reorganized / written)
        before, after = (100 * row[f"{name}_between"] / row[f"{name}_memory"] for name in ("written", "ours"))
        shares[model].append((redundant, before))
        rows.append((model, network.data, written, reorganized, redundant,
                     row["written_memory"] / 1e6, before, row["ours_memory"] / 1e6, after))  # fmt: skip
    columns = ("network", "graph", "GFLOP as written", "GFLOP reorganized", "redundant %", "MB as written",
               "intermediate data as written %", "MB compiled", "intermediate data compiled %")  # fmt: skip
    summary = {
        "redundant": mean(redundant for redundant, _ in shares["edgeconv"]),
        "intermediate": mean(intermediate for _, intermediate in shares["gat"]),
    }
    notes = (
        "Operations are those of the forward, memory is that of a training step; means stand beside the paper's "
        "numbers.",
        "EdgeConv has PyG's four layers, which also multiply a point's own features at each of its edges; GAT has a "
        "layer whose scores are written as in its paper, with the features of both ends.",
        REDDIT,
        MEMORY,
    )
    return Found(columns, rows, Picture((columns[4], columns[6], columns[8]), "%", 2), summary, notes)


def end_to_end(scale: Scale) -> Found:
    """Measures figure 7: training steps against those of PyG and DGL."""
    rows: list[Row] = []
    for network in networks(scale):
        found = trained(network, scale)
        own, *others = times = [row.get("train_ms") for row in found.values()]
        kept, *saved = [row["saved_bytes"] / 1e6 if "saved_bytes" in row else None for row in found.values()]
        needs = found["ours"]
        moved, memory = (needs[f"written_{what}"] / needs[f"ours_{what}"] for what in ("moved", "memory"))
        rows.append((network.model, network.data, *times, over(others[-1], own), moved,
                     kept, *saved, over(saved[-1], kept), memory))  # fmt: skip
    columns = ("network", "graph", "ours ms", "PyG ms", "DGL ms", "DGL / ours", "bytes: as written / ours",
               "ours saves MB", "PyG saves MB", "DGL saves MB", "saved: DGL / ours",
               "memory: as written / ours")  # fmt: skip
    summary: dict[str, float] = {}
    for model in ("gat", "edgeconv", "monet"):
        own = [row for row in rows if row[0] == model]
        for key, column in (("speedup", 5), ("io", 6), ("memory", 10)):
            summary |= mean_and_best(f"{model} {key}", [row[column] for row in own], "max")
    notes = (
        "Ours has all passes and computes again what the paper does.",
        "Bytes that DGL moves cannot be counted here: those of our programs are compared with those before all passes.",
        "Memory against DGL is what a forward keeps for the backward, not the peak. Graphs of points are made before, "
        "where the paper's times have that in them.",
        REDDIT,
        MEMORY,
        *(
            f"{network.model} on {network.data}: {no_time(failed)}"
            for network in networks(scale)
            if (failed := Group(tuple(trained(network, scale).values())).failed)
        ),
    )
    return Found(columns, rows, Picture(("DGL / ours", columns[6], columns[10]), "gain", 2, reference=1.0),
                 summary, notes)  # fmt: skip


def reorganization(scale: Scale) -> Found:
    """Measures figure 8: a forward before and after reorganization."""
    layers = [gat("pubmed", "gat_by_edge"), edgeconv(scale)]
    notes = (
        "GAT's scores are written as in its paper, with the features of both ends at each edge; the layers of PyG and "
        "DGL are reorganized by hand. Nothing is fused. Our statements read features of both ends where they are; the "
        "paper's write a copy of them for each edge.",
        MEMORY,
    )
    return _compared(layers, ("as written", "reorganized"), "reorganization", scale, notes)


def fusion(scale: Scale) -> Found:
    """Measures figure 9: a forward before and after fusion."""
    layers = [
        *(gat(name) for name in large(scale)),
        edgeconv(scale),
        *(monet(name) for name in large(scale)),
    ]
    return _compared(layers, ("reorganized", "fused"), "fusion", scale, (REDDIT, MEMORY))


def _compared(
    layers: Sequence[Task], names: tuple[str, str], technique: str, scale: Scale, notes: tuple[str, ...]
) -> Found:
    """Returns forwards of layers by two configurations, and what the second gains."""
    rows: list[Row] = []
    before, after = names
    for layer in layers:
        found = counted(layer, ours(names), "infer", scale)
        cells: list[Cell] = []
        for field, unit in (("infer_ms", 1), ("ours_moved", 1e6), ("ours_memory", 1e6)):
            first, second = (found[name][field] / unit for name in names)
            cells += [first, second, first / second]
        rows.append((_paper(layer), layer.data, *cells))
    columns = ("layer", "graph", f"{before} ms", f"{after} ms", "time gain", f"{before} moves MB",
               f"{after} moves MB", "bytes gain", f"{before} MB", f"{after} MB", "memory gain")  # fmt: skip
    summary: dict[str, float] = {}
    for key, column in (("latency", 4), ("io", 7), ("memory", 10)):
        summary |= mean_and_best(f"{technique} {key}", [row[column] for row in rows], "max")
    gains = ("time gain", "bytes gain", "memory gain")
    return Found(columns, rows, Picture(gains, f"{before} / {after}", 2, reference=1.0), summary, notes)


def recomputation(scale: Scale) -> Found:
    """Measures figure 10: training steps without fusion, with fusion, and with fusion and recomputation."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    names = ("reorganized", "fused", "fused, recomputing")
    for model, layer_on in (("gat", gat), ("monet", monet)):
        memory: list[Cell] = []
        slower: list[float] = []
        for data in large(scale):
            layer = layer_on(data)
            found = counted(layer, ours(names), "train", scale)
            times, needed, saved = (
                [found[name][field] / unit for name in names]
                for field, unit in (("train_ms", 1), ("ours_memory", 1e6), ("saved_bytes", 1e6))
            )
            rows.append((model, layer.data, *times, *needed, *saved))
            memory.append(needed[1] / needed[2])
            slower.append(times[2] / times[1])
        summary |= mean_and_best(f"{model} recomputation memory", memory, "max")
        summary[f"{model} recomputation slowdown"] = 100 * (geometric_mean(slower) - 1)
    columns = ("layer", "graph", "no fusion ms", "fused ms", "recomputing ms", "no fusion MB", "fused MB",
               "recomputing MB", "no fusion saves MB", "fused saves MB", "recomputing saves MB")  # fmt: skip
    notes = (
        "In a single layer the backward works in the memory of saved arrays, so its peak hardly depends on what is "
        "saved; what several layers save adds up.",
        REDDIT,
        MEMORY,
    )
    return Found(columns, rows, Picture(columns[2:5], "ms", 2), summary, notes)


def _paper(network: Task) -> str:
    """Returns the name of a model in the paper."""
    return network.model.partition("_")[0]


ARTEFACTS = {
    "figure 1": Artefact("redundant operations and intermediate data", redundancy),
    "figure 7": Artefact("training against PyG and DGL", end_to_end),
    "figure 8": Artefact("forward with and without reorganization", reorganization),
    "figure 9": Artefact("forward with and without fusion", fusion),
    "figure 10": Artefact("training with fusion and recomputation", recomputation),
}
