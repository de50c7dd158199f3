"""Measures what each pass gains: layers with all passes, with all but one, and with none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import torch

from benchmarks.caching.candidates import compiled
from benchmarks.caching.facts import program_of
from benchmarks.caching.task import Task
from benchmarks.caching.workload import load_workload
from benchmarks.papers.artefact import Artefact, Found, Picture, Row, Scale
from benchmarks.papers.layers import CONFIGS, MODES, built, problem
from benchmarks.programs import HOMOGENEOUS
from benchmarks.relational.candidate import Built, make_step, step_of
from benchmarks.relational.settings import MODELS
from dacergnn.bench.measure import clock_of, interleave
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
    steps: dict[str, Callable[[], Any]] = {}
    first: dict[str, str] = {}
    same: dict[str, str] = {}
    for name, config in CONFIGURATIONS.items():
        layer, step = _layer(model, graph, mode, config, scale)
        step()
        same[name] = first.setdefault(program_of(layer), name)
        if same[name] == name:
            steps[name] = step
    timings = interleave(steps, scale.pick(15, 30), scale.pick(1.5, 15.0), clock=clock_of(torch.device(scale.device)))
    return {name: timings[measured].ms for name, measured in same.items()}


def _layer(model: str, graph: str, mode: str, config: Config, scale: Scale) -> tuple[Built, Callable[[], Any]]:
    """Returns a layer that is compiled by a configuration, and its step."""
    if model in MODELS:
        layer = built(model, graph, config, scale, HIDDEN)
        return layer, make_step(layer, problem(graph, HIDDEN, scale.seed).to(scale.device), mode == "train")
    load = load_workload(Task(model, present(graph), "layer", HIDDEN, HIDDEN, input_gradient=True)).on(scale.device)
    layer = compiled(load, replace(config, rates=scale.rates))
    return layer, step_of(layer, lambda out: out.backward(load.cotangent(out)), mode)


ARTEFACTS = {"table 1": Artefact("what each pass gains", passes)}
