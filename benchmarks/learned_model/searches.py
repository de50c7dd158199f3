"""Compares ways to search for plans by one model, in equal time: a beam, random plans, an evolution of plans."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph
from dacergnn.plan import Plan
from dacergnn.sdfg_passes import Compilation
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.measure import Runnable, seconds
from dacergnn.tuning.predictor import Model
from dacergnn.tuning.search import PlanCandidate, beam_search, settle_schedules
from dacergnn.tuning.space import Compile, needs_build, neighbours, random_plans
from dacergnn.tuning.tuned import EVALUATIONS, FINAL_REPEAT, ready

POPULATION = 6
"""Plans that an evolution keeps."""
CROSSED = 0.3
"""Share of new plans that join the answers of two plans; the others change one answer."""
SEARCHES: tuple[str, ...] = ("beam", "random", "evolution")


@dataclass(frozen=True)
class Searched:
    """Holds what a search found.

    Attributes:
        predicted: Predicted seconds of its plan, over those of the default.
        measured: Measured seconds of its plan, over those of the default.
        programs: How many programs it compiled.
    """

    predicted: float
    measured: float
    programs: int


def compare(run: Compile, results: int, graph: HeteroGraph, model: Model, seed: int = 0) -> dict[str, Searched]:
    """Searches in each way, as long as a beam takes with `EVALUATIONS` programs, and measures the plans found.

    Args:
        run: Compiles the program by a plan, for this graph.
        results: How many arrays the program returns.
    """
    facts, counts = GraphFacts.of(graph), dict.fromkeys(SEARCHES, 0)

    def counted(name: str) -> Compile:
        def compiled(plan: Plan) -> Compilation:
            counts[name] += 1
            return run(plan)

        return compiled

    start = time.perf_counter()
    best = {"beam": beam_search(counted("beam"), facts, model, evaluations=EVALUATIONS)[0]}
    limit = time.perf_counter() - start
    for name, search in (("random", _random), ("evolution", _evolution)):
        deadline = time.perf_counter() + limit
        found = search(counted(name), facts, model, random.Random(seed), lambda end=deadline: time.perf_counter() > end)
        best[name] = min(found, key=lambda candidate: candidate.seconds)
    default = _candidate(run(Plan()), Plan(), facts, model)
    programs = {0: default.found, **{n: best[name].found for n, name in enumerate(SEARCHES, start=1)}}
    measured = seconds(ready({n: Runnable(one, results) for n, one in programs.items()}, graph), FINAL_REPEAT)
    return {
        name: Searched(best[name].seconds / default.seconds, measured[n] / measured[0], counts[name])
        for n, name in enumerate(SEARCHES, start=1)
    }


def _candidate(found: Compilation, plan: Plan, facts: GraphFacts, model: Model) -> PlanCandidate:
    return PlanCandidate(plan, found, settle_schedules(found, facts, model, plan))


def _random(
    run: Compile, facts: GraphFacts, model: Model, rng: random.Random, over: Callable[[], bool]
) -> Iterator[PlanCandidate]:
    """Yields the default and random plans, until the time is over."""
    for plan, found in random_plans(run, rng, 10_000, about=needs_build):
        yield _candidate(found, plan, facts, model)
        if over():
            return


def _evolution(
    run: Compile, facts: GraphFacts, model: Model, rng: random.Random, over: Callable[[], bool]
) -> Iterator[PlanCandidate]:
    """Yields plans that change or join the best of the plans before, until the time is over."""
    kept = [_candidate(run(Plan()), Plan(), facts, model)]
    yield kept[0]
    while not over():
        plan = _joined(kept, rng) if len(kept) > 1 and rng.random() < CROSSED else _changed(rng.choice(kept), rng)
        try:
            made = _candidate(run(plan), plan, facts, model)
        except DacergnnError:  # an answer does away with a question that another one answers
            continue
        yield made
        kept = sorted([*kept, made], key=lambda candidate: candidate.seconds)[:POPULATION]


def _changed(parent: PlanCandidate, rng: random.Random) -> Plan:
    """Returns a plan with one more deviation."""
    known = parent.plan.by_question.keys()
    plans = [p for p in neighbours(parent.plan, parent.found) if all(map(needs_build, p.by_question.keys() - known))]
    return rng.choice(plans) if plans else Plan()


def _joined(kept: list[PlanCandidate], rng: random.Random) -> Plan:
    """Returns a plan with each answer of one of two plans."""
    one, other = (candidate.plan.by_question for candidate in rng.sample(kept, 2))
    return Plan.of({name: rng.choice([p for p in (one, other) if name in p])[name] for name in {**one, **other}})
