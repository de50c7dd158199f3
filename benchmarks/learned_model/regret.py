"""Measures by how much chosen plans are slower than the fastest measured ones, on layers and graphs in use."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph
from dacergnn.modules.ways.contest import WORTH_S, Contest
from dacergnn.plan import Plan
from dacergnn.sdfg_passes import Compilation
from dacergnn.tuning.features import describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.measure import Runnable, TimedStep, Times, measure, seconds
from dacergnn.tuning.predictor import Model
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.scores import Scores, scores
from dacergnn.tuning.search import beam_search
from dacergnn.tuning.space import Compile, needs_build, neighbours, random_plans
from dacergnn.tuning.tuned import FINAL_REPEAT, FINALISTS, MEASURED, REPEAT, challengers, fastest, ready

BUDGET_S = 30.0
"""Seconds for all programs in turns, which run less often where they are slow."""
VARIANTS = 8
"""The most plans that differ from the default in one schedule that needs no build."""


@dataclass(frozen=True)
class Regret:
    """Holds the seconds of plans of one program on one graph.

    Attributes:
        default: Seconds of the plan that passes choose by cost (``tune="off"``).
        model: Seconds of the plan that ``tune="model"`` chooses.
        fast: Seconds of the plan that ``tune="fast"`` chooses, by a race of runs on random numbers.
        measure: Seconds of the plan that ``tune="measure"`` chooses, out of ten that it has measured.
        best: Seconds of the plan that was fastest before all of these ran once more, for these figures.
        deviations: Answers in which the fastest plan differs from the default one, by question.
        plans: How many different programs have been measured.
        choosing: Seconds that the choice of ``tune="model"`` took.
        scores: Scores of the model's predictions for these programs.
    """

    default: float
    model: float
    fast: float
    measure: float
    best: float
    deviations: Mapping[str, str]
    plans: int
    choosing: float
    scores: Scores


def regret(
    run: Compile, results: int, graph: HeteroGraph, model: Model, *, builds: int, evaluations: int, seed: int = 0
) -> Regret:
    """Measures chosen plans and others in turns.

    Args:
        run: Compiles the program by a plan, for this graph.
        results: How many arrays the program returns.
        builds: The most plans that deviate in one answer and need a build of their own; a quarter as many plans with
            more deviations are measured, too.
        evaluations: The most programs that the search of ``tune="measure"`` compiles.
    """
    facts = GraphFacts.of(graph)
    start = time.perf_counter()
    ranked = challengers(run, facts, model)
    choosing = time.perf_counter() - start
    default_program = run(Plan())
    rivals = [found for _, found in ranked]
    chosen = rivals[0] if ranked and ranked[0][0] > 0 else default_program
    searched = [c.found for c in beam_search(run, facts, model, evaluations=evaluations)[: MEASURED - 1]]
    compilations = [default_program, chosen, *rivals, *searched, *_others(run, builds, random.Random(seed))]
    runnables = [Runnable(one, results) for one in compilations]
    distinct = {_identity(runnable): n for n, runnable in reversed([*enumerate(runnables)])}
    numbers = [distinct[_identity(runnable)] for runnable in runnables]
    steps = ready({n: runnables[n] for n in distinct.values()}, graph)
    samples = {
        n: _sample(compilations[n], facts, times, model.threads)
        for n, times in measure(steps, REPEAT, budget=BUDGET_S).items()
    }
    default, model_choice, *others = numbers
    raced = _winner(steps, default, [*dict.fromkeys(others[: len(rivals)])], graph)
    picked = fastest({n: steps[n] for n in {default, *others[len(rivals) : len(rivals) + len(searched)]}})
    finalists = {default, model_choice, raced, picked, *sorted(samples, key=lambda n: samples[n].seconds)[:FINALISTS]}
    final = seconds({n: steps[n] for n in finalists}, FINAL_REPEAT, BUDGET_S)
    best = min(final, key=final.__getitem__)
    # The least of several means is too low, so what is chosen and what is best run once more.
    again = seconds({n: steps[n] for n in {default, model_choice, raced, picked, best}}, FINAL_REPEAT, BUDGET_S)
    predicted = model.predict([sample.program for sample in samples.values()])
    return Regret(
        default=again[default],
        model=again[model_choice],
        fast=again[raced],
        measure=again[picked],
        best=again[best],
        deviations=dict({*compilations[best].plan.answers} - {*compilations[default].plan.answers}),
        plans=len(samples),
        choosing=choosing,
        scores=scores([*samples.values()], predicted),
    )


def _winner(steps: Mapping[int, TimedStep], default: int, others: list[int], graph: HeteroGraph) -> int:
    """Returns the number of the program that wins a race against the default one."""
    settled: list[int] = []
    rivals = [number for number in others if number != default]
    race = Contest("a program", default, lambda graph: rivals, settled.append)
    race.note(None, 2 * WORTH_S, graph)
    while not settled:
        number, runner = race.take(graph)
        seconds = sum(filter(None, steps[number]()))
        race.note(runner, seconds, graph)
    return settled[0]


def _sample(
    compilation: Compilation, facts: GraphFacts, times: Iterable[Times | None], threads: int
) -> Measured:  # fmt: skip
    program, both = describe(*compilation.parts).on(facts, threads=threads), Times.together(times)
    return Measured(program, both.mean, both.deviation, "", "", family="", runs=both.runs, machine="")


def _others(run: Compile, builds: int, rng: random.Random) -> Iterator[Compilation]:
    """Yields programs by plans that deviate in one answer, then by plans that deviate in more."""
    default = run(Plan())
    plans = [*neighbours(Plan(), default)]
    for building, most in ((True, builds), (False, VARIANTS)):
        kind = [plan for plan in plans if needs_build(next(iter(plan.by_question))) == building]
        for plan in rng.sample(kind, min(most, len(kind))):
            try:
                yield run(plan)
            except DacergnnError:  # the answer does away with another
                continue
    for _, compilation in random_plans(run, rng, builds // 4, about=needs_build):
        yield compilation


def _identity(runnable: Runnable) -> tuple[object, ...]:
    """Returns a key that is equal for programs with the same code and schedule."""
    return tuple((part.code, *part.schedule.items()) for part in runnable.program.parts)
