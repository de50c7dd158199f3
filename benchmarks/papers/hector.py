"""Measures the figures and tables of Hector (ASPLOS 2024): RGCN, RGAT and HGT, one layer with one head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import geometric_mean

from benchmarks.papers.artefact import Artefact, Found, Picture, Row, Scale
from benchmarks.papers.layers import CONFIGS, MODES, allocated, built, layer_times, operators, problem
from benchmarks.papers.rows import no_time, value_of
from benchmarks.relational.settings import MODELS
from benchmarks.rows import Group, least
from dacergnn.datasets.synthetic import SPECIFICATIONS

GRAPHS = ("aifb", "am", "bgs", "biokg", "fb15k", "mag", "mutag", "wikikg2")
"""Data sets of table 3."""
DATA = ("aifb", "am~", "bgs~", "biokg~", "fb15k~", "mag~", "mutag", "wikikg2~")
QUICK = ("aifb", "mutag", "bgs~0.2")
LIBRARIES = ("pyg", "dgl")
WIDTHS = (32, 64, 128)
KINDS = ("GEMM", "traversal", "between operators")


def data(scale: Scale) -> tuple[str, ...]:
    """Returns the graphs that are measured."""
    return scale.graphs(QUICK, DATA)


@cache
def compared(scale: Scale) -> tuple[Group, ...]:
    """Returns the times of all layers, unoptimized and as our passes choose, with those of the libraries."""
    graphs = scale.graphs(QUICK[:2], DATA)  # on others, layers of libraries take seconds
    cases = [(model, graph, mode) for graph in graphs for model in MODELS for mode in MODES]
    ours = {name: CONFIGS[name] for name in ("unoptimized", "O2")}
    return tuple(layer_times(*case, scale, ours, LIBRARIES) for case in cases)


@cache
def ablated(scale: Scale) -> tuple[Group, ...]:
    """Returns the times of all configurations of RGAT and HGT."""
    cases = [(model, graph, mode) for model in ("rgat", "hgt") for graph in data(scale) for mode in MODES]
    return tuple(layer_times(*case, scale, CONFIGS) for case in cases)


def speedups(times: Iterable[Group], model: str, mode: str, config: str) -> list[float]:
    """Returns the libraries' fastest time over ours, for the graphs on which both finish."""
    found = (value_of(t.speedup(t.named(config))) for t in times if (t["model"], t["mode"]) == (model, mode))
    return [ratio for ratio in found if ratio is not None]


def not_measured(times: Iterable[Group]) -> tuple[str, ...]:
    """Returns sentences on what has no time, one for each case where something has none."""
    return tuple(f"{t['model']} on {t['data']}, {MODES[t['mode']]}: {no_time(t.failed)}" for t in times if t.failed)


def against_libraries(scale: Scale) -> Found:
    """Measures figure 8: times of layers beside those of the libraries."""
    rows = [
        (t["model"], t["data"], MODES[t["mode"]], t.times.get("unoptimized"), t.times.get("O2"), _least(t, "pyg"),
         _least(t, "dgl"), value_of(t.speedup(t.named("O2"))))
        for t in compared(scale)
    ]  # fmt: skip
    summary: dict[str, float] = {}
    for mode in MODES:
        every: list[float] = []
        for model in MODELS:
            found = speedups(compared(scale), model, mode, "O2")
            if found:
                summary[f"{model} {mode} mean"] = geometric_mean(found)
                every += found
        summary[f"{mode} best"] = max(every, default=float("nan"))
    columns = ("layer", "graph", "mode", "unoptimized ms", "O2 ms", "PyG ms", "DGL ms", "fastest library / O2")
    notes = (
        "Here the other systems are the layers of PyG and DGL; Seastar, Graphiler and HGL run on CUDA devices alone.",
        *not_measured(compared(scale)),
    )
    return Found(columns, rows, Picture(("O2 ms", "PyG ms", "DGL ms"), "ms", 3, logarithmic=True), summary, notes)


def _least(times: Group, library: str) -> float | None:
    return (least(times.peers(library), "ms") or {}).get("ms")


def worst_mean_best(scale: Scale) -> Found:
    """Measures table 4: worst, mean and best speed-ups over the libraries, and what is out of memory."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    for config, short in (("unoptimized", "unopt"), ("O2", "best")):
        for model in MODELS:
            for mode in MODES:
                cases = [t for t in compared(scale) if (t["model"], t["mode"]) == (model, mode)]
                errors = sum(config in t.failed for t in cases)
                summary[f"{short} {model} {mode} errors"] = errors
                found = speedups(cases, model, mode, config)
                values = (min(found), geometric_mean(found), max(found)) if found else (None, None, None)
                rows.append((config, model, MODES[mode], *values, errors))
                keys = (f"{short} {model} {mode} {name}" for name in ("worst", "mean", "best"))
                summary |= {key: value for key, value in zip(keys, values, strict=True) if value is not None}
    columns = ("configuration", "layer", "mode", "worst", "mean", "best", "out of memory")
    return Found(columns, rows, Picture(("worst", "mean", "best"), "fastest library / ours", 3, reference=1.0), summary)


def by_kind(layers: Sequence[tuple[str, str, str]], mode: str, scale: Scale) -> list[Row]:
    """Returns, for (layer, graph, configuration), the ms of products, of traversals, and of the rest of the call."""
    rows: list[Row] = []
    for model, graph, config in layers:
        profiled = operators(built(model, graph, CONFIGS[config], scale), mode)
        total: dict[str, float] = defaultdict(float)
        for operator in profiled.operators:
            total["traversal" if "traversal" in operator.kind else "GEMM"] += operator.ms
        rest = max(profiled.call_ms - profiled.ms, 0.0)
        rows.append((model, graph, config, total["GEMM"], total["traversal"], rest))
    return rows


def breakdown(scale: Scale) -> Found:
    """Measures figure 9: RGAT's inference by kind of operator, with and without C and R."""
    graphs = scale.graphs(("aifb", "fb15k237"), ("am~", "fb15k~"))
    names = ("C+R", "R", "C", "unoptimized")
    rows = by_kind([("rgat", graph, name) for graph in graphs for name in names], "infer", scale)
    columns = ("layer", "graph", "configuration", *(f"{kind} ms" for kind in KINDS))
    return Found(columns, rows, Picture(columns[3:], "ms", 3, stacked=True))


def memory(scale: Scale) -> Found:
    """Measures figure 10: HGT's memory against the share of unique (source, type) pairs among the edges."""
    rows: list[Row] = []
    for name in data(scale):
        graph = problem(name, scale)
        sizes, used = graph.sizes(), {}
        for mode in MODES:
            for config in ("unoptimized", "C"):
                used[mode, config] = allocated(built("hgt", name, CONFIGS[config], scale), graph, mode) / 1e6
        shares = [100 * used[mode, "C"] / used[mode, "unoptimized"] for mode in MODES]
        rows.append((name, sizes["N"], sizes["E"], sizes["E"] / sizes["N"], 100 * sizes["U"] / sizes["E"],
                     used["infer", "unoptimized"], used["train", "unoptimized"], *shares))  # fmt: skip
    columns = ("graph", "nodes", "edges", "average degree", "unique pairs %", "inference MB", "training MB",
               "inference with C %", "training with C %")  # fmt: skip
    shown = ("unique pairs %", "inference with C %", "training with C %")
    summary = {f"{str(row[0]).partition('~')[0]} compaction": float(row[4] or 0) for row in rows}
    return Found(columns, rows, Picture(shown, "% (pairs of edges; memory of unoptimized)"), summary)


def widths(scale: Scale) -> Found:
    """Measures figure 11: unoptimized layers with 32, 64 and 128 features."""
    plain = {"unoptimized": CONFIGS["unoptimized"]}
    rows: list[Row] = []
    for model in MODELS:
        for graph in data(scale):
            for mode in MODES:
                times = [
                    layer_times(model, graph, mode, scale, plain, hidden=width).times.get("unoptimized")
                    for width in WIDTHS
                ]
                _, middle, last = times
                rows.append((model, graph, MODES[mode], *times, last / middle if last and middle else None))
    columns = ("layer", "graph", "mode", *(f"{width} features ms" for width in WIDTHS), "128 / 64")
    ratios = [row[-1] for row in rows if isinstance(row[-1], float)]
    summary = {"growth": geometric_mean(ratios)} if ratios else {}
    return Found(columns, rows, Picture(columns[3:6], "ms", 3, logarithmic=True), summary)


def throughput(scale: Scale) -> Found:
    """Measures figure 12: operations and bytes in a second, by kind of operator and direction."""
    rows: list[Row] = []
    for width in WIDTHS:
        for graph in scale.graphs(("aifb",), ("bgs~", "am~")):
            profiled = operators(built("rgat", graph, CONFIGS["unoptimized"], scale, width))
            for role in ("forward", "backward"):
                for kind in KINDS[:2]:
                    own = [
                        o for o in profiled.operators
                        if o.role == role and ("traversal" in o.kind) == (kind == "traversal")
                    ]  # fmt: skip
                    seconds = sum(o.ms for o in own) / 1e3
                    if seconds:
                        flops = sum(o.cost.flops for o in own) / seconds / 1e9
                        moved = sum(o.cost.streamed + o.cost.gathered for o in own) / seconds / 1e9
                        rows.append((graph, str(width), role, kind, 1e3 * seconds, flops, moved))
    columns = ("graph", "features", "direction", "kind", "ms", "GFLOP/s", "GB/s")
    notes = (
        "Counters of a GPU (instructions in a cycle, throughput of its units) have no counterpart here; bytes and "
        "operations are those that the compiler estimates.",
    )
    return Found(columns, rows, Picture(("GFLOP/s", "GB/s"), "in a second", 4), {}, notes)


def optimizations(scale: Scale) -> Found:
    """Measures table 5: speed-ups of compaction and of linear operator reordering over the unoptimized layer."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    names = [name for name in CONFIGS if name != "unoptimized"]
    gains: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for t in ablated(scale):
        found = [value_of(t.ratio("unoptimized", name)) for name in names]
        rows.append((t["model"], t["data"], MODES[t["mode"]], *found))
        for name, value in zip(names, found, strict=True):
            if value is not None:
                gains[t["model"], t["mode"], name].append(value)
                summary[f"{t['data'].partition('~')[0]} {t['model']} {t['mode']} {name}"] = value
    for model in ("rgat", "hgt"):
        for mode in MODES:
            means = {name: geometric_mean(own) for name in names if (own := gains[model, mode, name])}
            rows.append((model, "geometric mean", MODES[mode], *map(means.get, names)))
            summary |= {f"average {model} {mode} {name}": mean for name, mean in means.items()}
    columns = ("layer", "graph", "mode", *names)
    return Found(columns, rows, Picture(tuple(names), "unoptimized / configuration", 3, reference=1.0), summary,
                 not_measured(ablated(scale)))  # fmt: skip


def counts(scale: Scale) -> dict[str, tuple[int, int, int, int]]:
    """Returns nodes, node types, edges and edge types of the graphs; of those not measured, by their specification."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for name in GRAPHS:
        if name in data(scale):
            loaded = problem(name, scale)
            found[name] = (loaded.num_nodes, loaded.num_ntypes, loaded.num_edges, loaded.num_etypes)
        else:
            spec = SPECIFICATIONS[name]
            found[f"{name}~"] = (spec.nodes, spec.node_types, spec.edges, spec.edge_types)
    return found


def graphs(scale: Scale) -> Found:
    """Counts table 3: the graphs."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    for name, numbers in counts(scale).items():
        rows.append((name, *numbers))
        keys = (f"{name.removesuffix('~')} {key}" for key in ("nodes", "node types", "edges", "edge types"))
        summary |= dict(zip(keys, map(float, numbers), strict=True))
    columns = ("graph", "nodes", "node types", "edges", "edge types")
    notes = ('Graphs with "~" are synthetic, with the counts of the real ones.',)
    return Found(columns, rows, Picture(("nodes", "edges"), "rows", logarithmic=True), summary, notes)


def inference_by_kind(scale: Scale) -> Found:
    """Measures figure 3: what share of inference products, traversals and everything else take."""
    graphs = scale.graphs(QUICK[:2], ("aifb", "bgs~", "fb15k~", "mutag"))
    rows = by_kind([(model, graph, "C+R") for model in ("rgcn", "hgt", "rgat") for graph in graphs], "infer", scale)
    columns = ("layer", "graph", "configuration", *(f"{kind} ms" for kind in KINDS))
    return Found(columns, rows, Picture(columns[3:], "ms", 3, stacked=True))


ARTEFACTS = {
    "figure 3": Artefact("inference by kind of work", inference_by_kind),
    "figure 8": Artefact("layers against the libraries' layers", against_libraries),
    "figure 9": Artefact("RGAT's inference by kind of operator", breakdown),
    "figure 10": Artefact("HGT's memory against compaction", memory),
    "figure 11": Artefact("unoptimized layers by width", widths),
    "figure 12": Artefact("operations and bytes in a second", throughput),
    "table 3": Artefact("graphs", graphs),
    "table 4": Artefact("worst, mean and best speed-ups over the libraries", worst_mean_best),
    "table 5": Artefact("speed-ups of compaction and reordering", optimizations),
}
