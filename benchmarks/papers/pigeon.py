"""Measures the figures and tables of Pigeon, Hector's first version: the same layers and graphs."""

from __future__ import annotations

from statistics import geometric_mean

from benchmarks.papers import hector
from benchmarks.papers.artefact import Artefact, Found, Picture, Row, Scale
from benchmarks.papers.layers import CONFIGS, MODES, built, operators, problem
from benchmarks.relational.settings import MODELS
from dacergnn.datasets.synthetic import SPECIFICATIONS

HEADS, WIDTH = 1, 64


def attention_work(scale: Scale) -> Found:
    """Counts table 1: the work of HGT's attention as it is written, and as it is compiled with C and R."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    for name in hector.data(scale):
        sizes = problem(name, scale).sizes()
        written = 2 * HEADS * WIDTH * WIDTH * sizes["E"] + HEADS * WIDTH * sizes["E"]
        once = 2 * HEADS * WIDTH * WIDTH * sizes["U"] + HEADS * WIDTH * sizes["E"]
        layer = built("hgt", name, CONFIGS["C+R"], scale)
        ours = sum(o.cost.flops for o in operators(layer).operators if o.role == "forward")
        saved = 100 * (1 - sizes["U"] / sizes["E"])
        rows.append((name, written / 1e9, once / 1e9, ours / 1e9, saved))
    spec = SPECIFICATIONS["mag"]
    summary["mag saved"] = 100 * (1 - spec.compaction)
    columns = ("graph", "attention by edge GFLOP", "attention by pair GFLOP", "whole layer, compiled GFLOP", "saved %")
    return Found(columns, rows, Picture(columns[1:4], "GFLOP", logarithmic=True), summary)


def unoptimized(scale: Scale) -> Found:
    """Measures table 6: unoptimized layers against the libraries, and in how many cases they are slower."""
    rows: list[Row] = []
    summary: dict[str, float] = {}
    for model in MODELS:
        for mode in MODES:
            found = hector.speedups(hector.compared(scale), model, mode, "unoptimized")
            if found:
                values = (sum(v < 1 for v in found), min(found), geometric_mean(found), max(found))
                rows.append((model, MODES[mode], *values))
                names = ("slower", "worst", "mean", "best")
                summary |= {f"unopt {model} {mode} {name}": float(v) for name, v in zip(names, values, strict=True)}
    columns = ("layer", "mode", "slower cases", "worst", "mean", "best")
    return Found(columns, rows, Picture(columns[3:], "fastest library / ours", 2, reference=1.0), summary)


def graphs(scale: Scale) -> Found:
    """Counts table 4: the graphs with their densities."""
    found = hector.graphs(scale)
    density = {name: 1e6 * n[2] / n[0] ** 2 for name, n in hector.counts(scale).items()}
    rows = [(*row, share) for row, share in zip(found.rows, density.values(), strict=True)]
    summary = {**found.summary, **{f"{name.removesuffix('~')} density": share for name, share in density.items()}}
    return Found((*found.columns, "density in millionths"), rows, found.picture, summary, found.notes)


ARTEFACTS = {
    "figure 1": Artefact("inference by kind of work", hector.inference_by_kind),
    "figure 5": Artefact("layers against the libraries' layers", hector.against_libraries),
    "figure 6": Artefact("RGAT's inference by kind of operator", hector.breakdown),
    "table 1": Artefact("work of HGT's attention", attention_work),
    "table 4": Artefact("graphs", graphs),
    "table 5": Artefact("speed-ups of compaction and reordering", hector.optimizations),
    "table 6": Artefact("unoptimized layers against the libraries", unoptimized),
}
