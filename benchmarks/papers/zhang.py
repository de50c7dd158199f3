"""Measures the figures of Zhang et al. (MLSys 2022): GAT, EdgeConv and MoNet, and what each technique gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import geometric_mean, mean

from benchmarks.papers.artefact import Artefact, Cell, Found, Picture, Row, Scale
from benchmarks.papers.layers import reasons
from benchmarks.papers.zhang_networks import Measured, Needs, Network, Runs, measure, planned
from dacergnn.config import Config

REORGANIZED = ("canonical_form", "propagation_postponing")
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


def networks(scale: Scale) -> list[Network]:
    """Returns the networks of figure 7."""
    more = ("pubmed", "flickr~", "arxiv~")
    graphs = scale.graphs(("cora", "citeseer", "reddit~0.02"), ("cora", "citeseer", *more, "reddit~0.02"))
    clouds = scale.pick(("2 clouds",), ("32 clouds", "64 clouds"))
    return [
        *(Network("gat", name, (128,), classes=True) for name in graphs),
        *(Network("edgeconv", f"{name}, k={k}", (64, 64, 128, 256)) for name in clouds for k in (20, 40)),
        *(
            Network("monet", name, (16,), classes=True, gaussians=GAUSSIANS.get(name, REDDIT_GAUSSIANS))
            for name in graphs
        ),
    ]


def gat(data: str, by_edge: bool = False) -> Network:
    """Returns the layer of GAT of figures 8 to 10."""
    return Network("gat", data, (64,), features=64, heads=4, by_edge=by_edge)


def edgeconv(scale: Scale) -> Network:
    """Returns the layer of EdgeConv of figures 8 and 9."""
    return Network("edgeconv", scale.pick("2 clouds, k=40", "64 clouds, k=40"), (64,), features=64)


def monet(data: str) -> Network:
    """Returns the layer of MoNet of figures 9 and 10."""
    return Network("monet", data, (16,), features=16, gaussians=REDDIT_GAUSSIANS)


def large(scale: Scale) -> tuple[str, ...]:
    """Returns the graphs of figures 9 and 10."""
    return scale.graphs(("reddit~0.02",), ("flickr~", "arxiv~", "reddit~0.05"))


@cache
def trained(network: Network, scale: Scale) -> Runs:
    """Returns training steps of a network, "ours" and those of "pyg" and "dgl"."""
    return measure(network, {"ours": CONFIGS["ours"], "pyg": "pyg", "dgl": "dgl"}, True, scale)


@cache
def ablated(network: Network, names: tuple[str, ...], train: bool, scale: Scale) -> Mapping[str, Measured]:
    """Returns what was measured of a layer by configurations of `CONFIGS`."""
    return measure(network, {name: CONFIGS[name] for name in names}, train, scale).found


def redundancy(scale: Scale) -> Found:
    """Counts figure 1: operations that reorganization spares, and the share of intermediate data in the memory."""
    rows: list[Row] = []
    shares: dict[str, list[tuple[float, float]]] = {"gat": [], "edgeconv": []}
    measured = {
        network: trained(network, scale).found["ours"] for network in networks(scale) if network.model == "edgeconv"
    }
    for layer in (gat(name, by_edge=True) for name in ("pubmed", *large(scale))):
        measured[layer] = ablated(layer, ("ours",), True, scale)["ours"]
    for network, ours in measured.items():
        needs, written = _needs(ours)
        reorganized, _ = planned(ours.built, REORGANIZED)
        redundant = 100 * (1 - reorganized.flops / written.flops)
        before, after = (100 * n.between / n.memory for n in (written, needs))
        shares[network.model].append((redundant, before))
        rows.append((network.model, network.data, written.flops / 1e9, reorganized.flops / 1e9, redundant,
                     written.memory / 1e6, before, needs.memory / 1e6, after))  # fmt: skip
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
        runs = trained(network, scale).found
        ours, pyg, dgl = runs["ours"], runs.get("pyg"), runs.get("dgl")
        needs, written = _needs(ours)
        rows.append((network.model, network.data, ours.ms, _ms(pyg), _ms(dgl), _over(_ms(dgl), ours.ms),
                     written.moved / needs.moved, ours.saved / 1e6, _saved(pyg), _saved(dgl),
                     _over(_saved(dgl), ours.saved / 1e6), written.memory / needs.memory))  # fmt: skip
    columns = ("network", "graph", "ours ms", "PyG ms", "DGL ms", "DGL / ours", "bytes: as written / ours",
               "ours saves MB", "PyG saves MB", "DGL saves MB", "saved: DGL / ours",
               "memory: as written / ours")  # fmt: skip
    summary: dict[str, float] = {}
    for model in ("gat", "edgeconv", "monet"):
        own = [row for row in rows if row[0] == model]
        for key, column in (("speedup", 5), ("io", 6), ("memory", 10)):
            summary |= _mean_and_max(f"{model} {key}", [row[column] for row in own])
    notes = (
        "Ours has all passes and computes again what the paper does.",
        "Bytes that DGL moves cannot be counted here: those of our programs are compared with those before all passes.",
        "Memory against DGL is what a forward keeps for the backward, not the peak. Graphs of points are made before, "
        "where the paper's times have that in them.",
        REDDIT,
        MEMORY,
        *(
            f"{network.model} on {network.data}: {reasons(trained(network, scale).failed)}"
            for network in networks(scale)
            if trained(network, scale).failed
        ),
    )
    return Found(columns, rows, Picture(("DGL / ours", columns[6], columns[10]), "gain", 2, reference=1.0),
                 summary, notes)  # fmt: skip


def reorganization(scale: Scale) -> Found:
    """Measures figure 8: a forward before and after reorganization."""
    layers = [gat("pubmed", by_edge=True), edgeconv(scale)]
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
    layers: Sequence[Network], names: tuple[str, str], technique: str, scale: Scale, notes: tuple[str, ...]
) -> Found:
    """Returns forwards of layers by two configurations, and what the second gains."""
    rows: list[Row] = []
    before, after = names
    for layer in layers:
        found = ablated(layer, names, False, scale)
        times = [found[name].ms for name in names]
        (first, _), (second, _) = (_needs(found[name]) for name in names)
        rows.append((layer.model, layer.data, *times, times[0] / times[1],
                     first.moved / 1e6, second.moved / 1e6, first.moved / second.moved,
                     first.memory / 1e6, second.memory / 1e6, first.memory / second.memory))  # fmt: skip
    columns = ("layer", "graph", f"{before} ms", f"{after} ms", "time gain", f"{before} moves MB",
               f"{after} moves MB", "bytes gain", f"{before} MB", f"{after} MB", "memory gain")  # fmt: skip
    summary: dict[str, float] = {}
    for key, column in (("latency", 4), ("io", 7), ("memory", 10)):
        summary |= _mean_and_max(f"{technique} {key}", [row[column] for row in rows])
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
            found = ablated(layer_on(data), names, True, scale)
            runs = [found[name] for name in names]
            needed = [_needs(run)[0].memory for run in runs]
            rows.append((model, data, *(run.ms for run in runs), *(count / 1e6 for count in needed),
                         *(run.saved / 1e6 for run in runs)))  # fmt: skip
            memory.append(needed[1] / needed[2])
            slower.append(runs[2].ms / runs[1].ms)
        summary |= _mean_and_max(f"{model} recomputation memory", memory)
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


def _needs(run: Measured) -> tuple[Needs, Needs]:
    """Returns what the programs of a compiled network need, and what they would need before all passes."""
    assert run.needs is not None and run.written is not None
    return run.needs, run.written


def _ms(run: Measured | None) -> float | None:
    return None if run is None else run.ms


def _saved(run: Measured | None) -> float | None:
    return None if run is None else run.saved / 1e6


def _over(value: float | None, ours: float) -> float | None:
    return None if value is None else value / ours


def _mean_and_max(key: str, cells: Sequence[Cell]) -> dict[str, float]:
    """Returns the geometric mean and the largest of numbers, by the keys of the facts."""
    values = [cell for cell in cells if isinstance(cell, float)]
    return {f"{key} mean": geometric_mean(values), f"{key} max": max(values)} if values else {}


ARTEFACTS = {
    "figure 1": Artefact("redundant operations and intermediate data", redundancy),
    "figure 7": Artefact("training against PyG and DGL", end_to_end),
    "figure 8": Artefact("forward with and without reorganization", reorganization),
    "figure 9": Artefact("forward with and without fusion", fusion),
    "figure 10": Artefact("training with fusion and recomputation", recomputation),
}
