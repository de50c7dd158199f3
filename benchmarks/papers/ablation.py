"""Measures what each pass gains: layers with all passes, with all but one, and with none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import geometric_mean

from benchmarks.caching.experiment import TaskExperiment
from benchmarks.caching.task import Task
from benchmarks.named import Named
from benchmarks.papers.artefact import Artefact, Found, Picture, Row, Scale
from benchmarks.papers.layers import CONFIGS, MODES, layer_times
from benchmarks.papers.rows import by_name
from benchmarks.programs import HOMOGENEOUS
from benchmarks.relational.settings import MODELS
from dacergnn.bench.runner import measure
from dacergnn.cli.options import present
from dacergnn.config import PASSES, Config

HIDDEN = 64
BASE = "O2"
CONFIGURATIONS: dict[str, Config] = {
    BASE: CONFIGS[BASE],
    "none": Config("O0"),
    "hector": Config("hector"),
    **{name: Config(passes=tuple(p for p in PASSES if p != name)) for name in PASSES},
}
"""Configurations by the pass that is left out."""


def passes(scale: Scale) -> Found:
    """Measures the time of every layer without a pass, over its time with all passes."""
    rows: list[Row] = []
    gains: dict[str, list[float]] = defaultdict(list)
    others = [name for name in CONFIGURATIONS if name != BASE]
    for models, graphs in (
        (MODELS, scale.graphs(("aifb",), ("aifb", "fb15k237"))),
        (HOMOGENEOUS, scale.graphs(("cora",), ("cora", "pubmed"))),
    ):
        for graph in graphs:
            for model in models:
                for mode in scale.pick(("train",), tuple(MODES)):
                    times = _times(model, graph, mode, scale)
                    found = [times[name] / times[BASE] for name in others]
                    rows.append((model, graph, MODES[mode], times[BASE], *found))
                    for name, gain in zip(others, found, strict=True):
                        gains[name].append(gain)
    rows.append(("all", "geometric mean", "", None, *(geometric_mean(gains[name]) for name in others)))
    columns = ("layer", "graph", "mode", "O2 ms", *others)
    notes = (
        'Columns have the time without a pass over that with all passes; "none" has no pass, "hector" has those of '
        "the paper. A pass that changes nothing in a layer stands at 1.",
    )
    picture = Picture(("none", "hector", "aggregation_order", "narrow_products", "traversal_fusion"),
                      "time without / O2", 3, reference=1.0)  # fmt: skip
    return Found(columns, rows, picture, {}, notes)


def _times(model: str, graph: str, mode: str, scale: Scale) -> Mapping[str, float]:
    """Returns the milliseconds of a layer by configuration, from runs in turns; equal programs have one time."""
    if model in MODELS:
        return layer_times(model, graph, mode, scale, CONFIGURATIONS, hidden=HIDDEN).times
    case = TaskExperiment(
        Task(model, present(graph), "layer", HIDDEN, HIDDEN, input_gradient=True), scale.limits((mode,))
    )
    ways = [Named("ours", name, config) for name, config in CONFIGURATIONS.items()]
    return {name: row[f"{mode}_ms"] for name, row in by_name(measure(case, ways, case.limits)).items()}


ARTEFACTS = {"table 1": Artefact("what each pass gains", passes)}
