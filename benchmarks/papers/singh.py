"""Measures the figures of Singh et al.: how well a model by graph networks predicts and ranks programs.

The samples are those of this repository, which are read from its folder ``benchmarks``.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from statistics import fmean

from benchmarks.learned_model.contenders import OURS
from benchmarks.learned_model.dataset import of_some_layers, samples_of
from benchmarks.learned_model.judging import Budget, Judged, by_depth, of_fold
from benchmarks.papers.artefact import Artefact, Found, Picture, Row, Scale
from benchmarks.programs import program_of
from dacergnn.cli.options import present
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import load
from dacergnn.tuning.features import describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.measure import Runnable, Times, measure
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.scores import scores
from dacergnn.tuning.space import needs_build, random_plans
from dacergnn.tuning.tuned import REPEAT, ready, shipped

FILES = Path(__file__).parents[2] / "benchmarks"
LAYERS = ("rgcn", "rgat", "hgt", "gcn", "gat", "gatv2", "sage", "gin", "monet")
"""Layers in place of the paper's nine networks."""
DEPTHS = (0, 1, 2, 4, 8)
QUICK_SAMPLES = 8_000


@cache
def samples(scale: Scale) -> tuple[Measured, ...]:
    """Returns the measured samples: all, or those of some layers.

    Raises:
        DacergnnError: They are not on this machine.
    """
    files = sorted(FILES.glob("performance_samples*.jsonl.xz"))
    if not files:
        raise DacergnnError(f"{FILES} holds no samples; run the command from a checkout of the repository.")
    rows = [row for file in files for row in load(file)]
    return tuple(samples_of(of_some_layers(rows, QUICK_SAMPLES, scale.seed) if scale.quick else rows))


def budget(scale: Scale) -> Budget:
    """Returns how models are trained."""
    return Budget(scale.pick(8, 20), scale.pick(1, 4), scale.seed)


@cache
def judged(scale: Scale) -> Judged:
    """Returns the predictions of all models for layers and graphs that they have not seen."""
    found = Judged()
    for fold in range(scale.pick(1, 5)):
        trial = of_fold(samples(scale), budget(scale), fold)
        found.add(trial.unseen, trial.predicted())
    return found


def quality(scale: Scale) -> Found:
    """Measures figure 8: mean error, largest error and R2 of all models."""
    found = judged(scale).scores
    rows: list[Row] = [
        (name, 100 * one.mean_error, 100 * one.largest_error, one.r2_seconds, one.r2, 100 * one.ranked)
        for name, one in found.items()
    ]
    ours = found[OURS]
    summary = {
        "terms over ours": found["terms"].mean_error / ours.mean_error,
        "trees over ours": found["trees"].mean_error / ours.mean_error,
        "ours r2": ours.r2_seconds,
        "terms r2": found["terms"].r2_seconds,
        "trees r2": found["trees"].r2_seconds,
    }
    columns = ("model", "mean error %", "largest error %", "R2 of time", "R2 of log time", "pairs ranked right %")
    notes = (
        f"{len(judged(scale).samples):,} samples of unseen layers on unseen graphs. All models learn from the same "
        'samples; "terms" is in the manner of Halide\'s model, "trees" in that of TVM\'s.',
    )
    return Found(columns, rows, Picture(("mean error %",), "mean error %"), summary, notes)


def ranking(scale: Scale) -> Found:
    """Measures figure 9: pairs of plans of layers in use that the model of the package ranks right."""
    data, count = present(scale.graphs(("aifb",), ("fb15k237",))[0]), scale.pick(8, 24)
    rows: list[Row] = []
    for model in LAYERS:
        run, results, graph = program_of(model, data, 64, 1, "infer")
        plans = [found for _, found in random_plans(run, random.Random(scale.seed), count, about=needs_build)]
        steps = ready({n: Runnable(plan, results) for n, plan in enumerate(plans)}, graph)
        facts, found = GraphFacts.of(graph), list[Measured]()
        for n, times in measure(steps, scale.pick(REPEAT, 3 * REPEAT)).items():
            program, both = describe(*plans[n].parts).on(facts, threads=scale.threads), Times.together(times)
            found.append(Measured(program, both.mean, both.deviation, model, data, model, both.runs, ""))
        one = scores(found, shipped().predict([sample.program for sample in found]))
        rows.append((model, len(found), one.pairs, 100 * one.ranked if one.pairs else None))
    shares = [float(row[3]) for row in rows if isinstance(row[3], float)]
    summary = {"ranked mean": fmean(shares), "ranked least": min(shares), "ranked most": max(shares)}
    columns = ("layer", "plans", "pairs", "ranked right %")
    notes = (f"Random plans of layers on {data}; pairs whose times do not differ for certain do not count.",)
    return Found(columns, rows, Picture(("ranked right %",), "% of pairs"), summary, notes)


def depth(scale: Scale) -> Found:
    """Measures what the paper's sweep over the depth (section III-B) measures, with the block of figure 6."""
    found = by_depth(samples(scale), scale.pick(DEPTHS[:4], range(9)), budget(scale)).judged().scores
    rows: list[Row] = [(n, 100 * s.mean_error, s.r2_seconds, s.r2, 100 * s.ranked) for n, s in found.items()]
    summary = {"best depth": float(max(found, key=lambda n: found[n].ranked))}
    columns = ("convolutions", "mean error %", "R2 of time", "R2 of log time", "pairs ranked right %")
    return Found(columns, rows, Picture((columns[4],), "% of pairs", lines=True), summary)


ARTEFACTS = {
    "figure 6": Artefact("quality by the number of convolutions", depth),
    "figure 8": Artefact("quality of the models", quality),
    "figure 9": Artefact("ranking of plans of layers in use", ranking),
}
