"""Measures the figures and tables of Cached Operator Reordering: layers and networks of GCN and GAT."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.caching.analysis import default
from benchmarks.caching.runner import run
from benchmarks.caching.scheme import NAMED
from benchmarks.caching.settings import SIZES_OF_HEADS, CachingSettings
from benchmarks.caching.task import Task
from benchmarks.caching.workload import load_workload
from benchmarks.papers.artefact import Artefact, Cell, Found, Picture, Row, Scale
from benchmarks.papers.cor_formulas import (
    GRAPHS,
    INPUTS,
    ORDERS,
    SIZES,
    graphs,
    sddmm,
    spmm,
    switch,
    with_caching,
    without_caching,
)
from benchmarks.papers.rows import mean_and_best, over
from benchmarks.rows import Group, grouped, label, least
from dacergnn.bench.scatter import LIMIT, scatters
from dacergnn.cli.options import present

HEADS = 8
PASSES = {"forward_ms": "forward", "train_ms": "train"}
"""Times of a row, and their names in the keys of facts."""
SCHEMES = tuple(NAMED["gat"])
"""Schemes of table 3."""
CACHED, RECOMPUTED = "cache_all", "recompute_all"
ON_ARXIV = f"The graph is synthetic, with the counts of Arxiv or a part of them, and {INPUTS} random features."


def measured(scale: Scale, **settings: Any) -> list[Group]:
    """Measures networks by the suite for caching, and returns the rows of each network on each graph."""
    return grouped(run(CachingSettings(**settings, limits=scale.limits(("forward", "train")))))


@cache
def networks(model: str, scale: Scale) -> list[Group]:
    """Measures networks of two layers and those of PyG; for GAT, of DGL, too."""
    compiled = () if scale.quick else ("pyg-compiled",)
    others = ("dgl",) if model == "gat" else ()
    data = scale.graphs(("cora", "arxiv~0.1"), GRAPHS)
    sizes = scale.pick((16, 128), SIZES) if model == "gcn" else scale.pick((8, 32), SIZES_OF_HEADS)
    return measured(
        scale, models=(model,), data=tuple(map(present, data)), networks=("network",), hidden=sizes, heads=HEADS,
        strategies=(CACHED,), against=("pyg", *compiled, *others), memory=False,
    )  # fmt: skip


@cache
def layers(scale: Scale) -> list[Group]:
    """Measures a GCN layer on Arxiv, in the order of the compiler's choice, with and without caching."""
    return measured(scale, **_on_arxiv(scale), strategies=(CACHED, RECOMPUTED), memory=True)


@cache
def ordered(caching: str, scale: Scale) -> list[Group]:
    """Measures a GCN layer on Arxiv, in both orders and in that of the compiler's choice."""
    return measured(scale, **_on_arxiv(scale), strategies=(caching,), orders=(*ORDERS, "auto"), memory=False)


def _on_arxiv(scale: Scale) -> dict[str, Any]:
    data, sizes = scale.graphs(("arxiv~0.1",), ("arxiv~",)), scale.pick((16, 128, 512), SIZES)
    return {"models": ("gcn",), "data": data, "networks": ("layer",), "features": INPUTS, "hidden": sizes}


def _gradient(group: Group) -> str:
    return "with input gradient" if group["input_gradient"] else "no input gradient"


def _scattering(found: list[Group]) -> tuple[str, ...]:
    """Returns a note if the runs of some times lie too far apart for comparisons."""
    times = [scatters(row, field) for group in found for row in group.rows for field in PASSES if field in row]
    if not any(times):
        return ()
    spread = f"by more than {LIMIT:.0%} of the median"
    return (f"{sum(times)} of {len(times)} times scatter, {spread}: measure again on an idle machine.",)


def attention(scale: Scale) -> Found:
    """Measures table 3: what a GAT layer saves by each scheme beside the paper's formula, and what that gains."""
    found = measured(
        scale, models=("gat",), data=tuple(map(present, scale.graphs(("cora",), ("cora", "pubmed", "arxiv~")))),
        networks=("layer",), hidden=scale.pick((8,), (8, 32, 128)), heads=HEADS, gradients=("without",),
        strategies=SCHEMES, memory=not scale.quick,
    )  # fmt: skip
    rows: list[Row] = []
    for group in found:
        workload = load_workload(Task("gat", group["data"], "layer", 1, group["hidden"], HEADS))
        n, q = workload.num_nodes, workload.edge_index.shape[1]
        features, nothing = 4 * n * HEADS * group["hidden"], group.named("nothing")
        formulas = (0, features, features + 8 * n * HEADS, features + 5 * q * HEADS)
        for row in group.ours:
            formula = formulas[SCHEMES.index(row["name"])]
            rows.append((group["data"], str(group["hidden"]), row["name"], row["saved_bytes"] / 1e6, formula / 1e6,
                         row["train_ms"], None if nothing is None else over(nothing["train_ms"], row["train_ms"]),
                         row.get("peak_mb")))  # fmt: skip
    columns = ("graph", "size k", "cached", "saved MB", "formula MB", "training ms", "nothing / scheme", "peak MB")
    notes = (
        "The formulas are 0, 4nhk, 4nh(k + 2) and 4nhk + 5qh bytes; edges q have a loop at each node. For the mask of "
        "the LeakyReLU, ours saves the score of each edge and head, 4 bytes instead of one.",
        *_scattering(found),
    )
    return Found(columns, rows, Picture(("saved MB", "formula MB"), "MB", 3), {}, notes)


def memory(scale: Scale) -> Found:
    """Measures figure 2: memory of a GCN layer by output size, with and without caching."""
    rows: list[Row] = []
    for group in layers(scale):
        ways = [group.named(name) for name in (CACHED, RECOMPUTED)]
        saved = [None if way is None else way["saved_bytes"] / 1e6 for way in ways]
        peaks = [None if way is None else way.get("peak_mb") for way in ways]
        rows.append((_gradient(group), str(group["hidden"]), *saved, *peaks))
    columns = ("backward", "size", "caching saves MB", "no caching saves MB", "caching peak MB", "no caching peak MB")
    notes = (
        ON_ARXIV,
        "What is saved is besides the input features, which their owner keeps here in any case; the peak is that of "
        "two training steps.",
    )
    return Found(columns, rows, Picture(columns[4:], "MB", 2), {}, notes)


def caching(scale: Scale) -> Found:
    """Measures figure 3: speed and memory of a GCN layer with caching relative to the same without."""
    rows: list[Row] = []
    for group in layers(scale):
        with_it, without = group.named(CACHED), group.named(RECOMPUTED)
        if with_it is None or without is None:
            continue
        same = "yes" if with_it["program"] == without["program"] else "no"
        memory = over(with_it.get("peak_mb"), without.get("peak_mb"))
        rows.append((_gradient(group), str(group["hidden"]), without["train_ms"], with_it["train_ms"],
                     without["train_ms"] / with_it["train_ms"], memory, same))  # fmt: skip
    columns = ("backward", "size", "no caching ms", "caching ms", "speed-up", "memory", "same program")
    summary: dict[str, float] = {}
    if rows:
        summary["best speed-up"] = max(float(row[4] or 0) for row in rows)
        summary["least memory"] = min(float(row[5] or 1) for row in rows)
        first_other = min((int(str(row[1])) for row in rows if row[6] == "no"), default=None)
        alike = [int(str(row[1])) for row in rows if first_other is None or int(str(row[1])) < first_other]
        summary["same up to"] = max(alike, default=0)
    shown = Picture(("speed-up", "memory"), "relative to no caching", 2, reference=1.0)
    notes = (ON_ARXIV, "Times are of training steps.", *_scattering(layers(scale)))
    return Found(columns, rows, shown, summary, notes)


def against_pyg(model: str, scale: Scale) -> Found:
    """Measures figures 5 and 7: networks against the fastest of PyG's, forward, and forward with backward."""
    rows: list[Row] = []
    for group in networks(model, scale):
        own, peers = default(group), group.peers("pyg")
        if own is None:
            continue
        cells: list[Cell] = []
        for field in PASSES:
            best = least(peers, field)
            theirs = None if best is None else best[field]
            cells += [None if best is None else best["name"], theirs, own[field], over(theirs, own[field])]
        rows.append((group["data"], str(group["hidden"]), *cells))
    columns = ["graph", "hidden size"]
    for name in ("forward", "both passes"):
        columns += [f"{name}: fastest PyG", f"{name}: PyG ms", f"{name}: ours ms", f"{name}: PyG / ours"]
    ratios = (columns[5], columns[9])
    summary: dict[str, float] = {}
    for name, column in zip(PASSES.values(), (5, 9), strict=True):
        summary |= mean_and_best(f"{model} {name}", [row[column] for row in rows])
    notes = (
        "The backward starts from a given gradient: no loss is in the times.",
        *_on_libraries(scale),
        *_scattering(networks(model, scale)),
    )
    return Found(tuple(columns), rows, Picture(ratios, "PyG / ours", 2, reference=1.0), summary, notes)


def _on_libraries(scale: Scale) -> tuple[str, ...]:
    if scale.quick:
        return ("PyG's networks take COO, CSR and EdgeIndex, all uncompiled, since compiling them takes minutes.",)
    return ("PyG's networks take COO, CSR and EdgeIndex, and COO through torch.compile.",)


def formats(scale: Scale) -> Found:
    """Measures figure 6: GCN on coordinates against compressed columns and rows."""
    found = measured(
        scale, models=("gcn",), data=tuple(map(present, scale.graphs(("cora", "arxiv~0.1"), GRAPHS))),
        networks=("network",), hidden=scale.pick((16,), SIZES), strategies=(CACHED,), formats=("coo", "csc", "csr"),
        memory=False,
    )  # fmt: skip
    rows: list[Row] = []
    for group in found:
        coo, *others = (group.named(f"{CACHED}, {name}") or {} for name in ("coo", "csc", "csr"))
        times = [coo.get(field) for field in PASSES]
        ratios = [over(coo.get(field), other.get(field)) for other in others for field in PASSES]
        rows.append((group["data"], str(group["hidden"]), *times, *ratios))
    columns = ("graph", "hidden size", "COO forward ms", "COO both passes ms", "COO / CSC forward",
               "COO / CSC both passes", "COO / CSR forward", "COO / CSR both passes")  # fmt: skip
    summary: dict[str, float] = {}
    for name, column in zip(PASSES.values(), (4, 5), strict=True):
        summary |= mean_and_best(f"csc {name}", [row[column] for row in rows])
    summary |= mean_and_best("csc", [cell for row in rows for cell in row[4:6]])
    notes = (
        "Ours on compressed columns adds to rows out of order, with the edges in the order of their sources; on "
        "compressed rows, the usual format here, each row is summed at once.",
        *_scattering(found),
    )
    return Found(columns, rows, Picture(columns[4:], "COO / format", 2, reference=1.0), summary, notes)


def by_order(strategy: str, scale: Scale) -> Found:
    """Measures figures 11 and 14: forward and backward of a GCN layer in each order."""
    rows: list[Row] = []
    times: dict[str, dict[str, list[float]]] = {}
    slower: list[float] = []
    found = ordered(strategy, scale)
    names = {order: f"{strategy}, {order}" for order in ORDERS} | {"adaptive": strategy}
    for group in found:
        ways = {order: group.named(name) for order, name in names.items()}
        kept = times.setdefault(_gradient(group), {order: [] for order in names})
        for order, way in ways.items():
            if way is None:
                continue
            rows.append((_gradient(group), str(group["hidden"]), order, *_passes(way), way["train_ms"]))
            kept[order].append(way["train_ms"])
    summary: dict[str, float] = {}
    for gradient, kept in times.items():
        sizes = tuple(dict.fromkeys(group["hidden"] for group in found))
        first, second, adaptive = kept.values()
        if len(first) == len(second) == len(adaptive) == len(sizes):
            size = switch(sizes, first, second)
            summary |= {} if size is None else {gradient: size}
            slower += [own / min(fixed) for own, *fixed in zip(adaptive, first, second, strict=True)]
    if slower:
        summary["adaptive over fastest"] = max(slower)
    columns = ("backward", "size", "order", "forward ms", "rest ms", "both passes ms")
    notes = (ON_ARXIV, *_scattering(found))
    return Found(columns, rows, Picture(columns[3:5], "ms", 3, stacked=True), summary, notes)


def _passes(row: dict[str, Any]) -> tuple[float, float]:
    """Returns the ms of the forward, and of what follows it."""
    return row["forward_ms"], max(row["train_ms"] - row["forward_ms"], 0.0)


def attention_times(scale: Scale) -> Found:
    """Measures figure 18: times of GAT networks, forward and backward, of ours and of the libraries."""
    rows: list[Row] = []
    for group in networks("gat", scale):
        for row in group.rows:
            name = "ours" if row["library"] == "ours" else label(row)
            times = (*_passes(row), row["train_ms"]) if row["status"] == "ok" else (None, None, None)
            rows.append((group["data"], str(group["hidden"]), name, *times))
    columns = ("graph", "hidden size", "network", "forward ms", "rest ms", "both passes ms")
    notes = (
        "In place of dGNN, which runs on CUDA devices, there are DGL's layers.",
        *_on_libraries(scale),
        *_scattering(networks("gat", scale)),
    )
    return Found(columns, rows, Picture(columns[3:5], "ms", 3, stacked=True), {}, notes)


ARTEFACTS = {
    "table 1": Artefact("orders of GCN without caching", without_caching),
    "table 2": Artefact("orders of GCN with caching", with_caching),
    "table 3": Artefact("what GAT saves by scheme", attention),
    "table 4": Artefact("graphs", graphs),
    "table 5": Artefact("operational intensity of SpMM", spmm),
    "table 6": Artefact("operational intensity of SDDMM", sddmm),
    "figure 2": Artefact("memory of a GCN layer", memory),
    "figure 3": Artefact("GCN with caching relative to without", caching),
    "figure 5": Artefact("GCN against PyG", lambda scale: against_pyg("gcn", scale)),
    "figure 6": Artefact("GCN on coordinates and compressed formats", formats),
    "figure 7": Artefact("GAT against PyG", lambda scale: against_pyg("gat", scale)),
    "figure 11": Artefact("orders of a GCN layer without caching", lambda scale: by_order(RECOMPUTED, scale)),
    "figure 14": Artefact("orders of a GCN layer with caching", lambda scale: by_order(CACHED, scale)),
    "figure 18": Artefact("times of GAT", attention_times),
}
