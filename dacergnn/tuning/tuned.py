"""Compiles programs by a plan that a performance model finds, or that is the fastest measured of a model's best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import dace

from dacergnn.config import Config
from dacergnn.graph import HeteroGraph
from dacergnn.library_nodes.node import Typeclass
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning.features import describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.measure import RandomArrays, Runnable, TimedStep, build_runnables, seconds
from dacergnn.tuning.model_file import SHIPPED, model_digest, model_file
from dacergnn.tuning.predictor import Model, Predictor, least_gains
from dacergnn.tuning.search import beam_search
from dacergnn.tuning.space import Compile

MEASURED = 10
"""Number of plans that are measured."""
REPEAT = 10
FINALISTS, FINAL_REPEAT = 5, 3 * REPEAT
"""So many of the fastest are measured again, longer, because the least of many means is too low."""
CHALLENGERS, EVALUATIONS = 2, 20
"""Number of programs that race against the default, and of programs that are compiled to find them."""
LEAST_GAIN = -0.05
"""A program races if it gains more than this at least: the race costs little and tells for certain."""
_ELEMENTS = 1 << 24


def shipped() -> Predictor:
    """Returns the model that comes with the package."""
    return _loaded(SHIPPED, "")


def model_of(chosen: str | None) -> Predictor:
    """Returns the model that decides: the user's, that of this machine, or the shipped one (`model_file`)."""
    return _loaded(model_file(chosen), model_digest(chosen))


@cache
def _loaded(path: Path, digest: str) -> Predictor:
    return Predictor.load(path)


def tuned(
    sdfg: dace.SDFG,
    wrt: Sequence[str],
    config: Config,
    index: Typeclass,
    graph: HeteroGraph,
    model: Model | None = None,
    *,
    shared: bool = False,
) -> Compilation:
    """Runs `compile_program` with a plan that is found as ``config.tune`` says, for a graph on the CPU.

    Answers of ``config.plan`` stay as they are.

    "model" searches for plans, and takes the best if it is faster than the default for certain (`least_gains`), which
    takes seconds. "measure" builds the most promising plans and runs them on the graph, which takes minutes.
    """
    facts, model = GraphFacts.of(graph), model or model_of(config.model)

    def run(plan: Plan) -> Compilation:
        return compile_program(sdfg, wrt, config, index, facts, tuned=plan, shared=shared, keep=False)

    if config.tune == "model":
        return next((found for gain, found in challengers(run, facts, model) if gain > 0), None) or run(Plan())
    promising = beam_search(run, facts, model)[: MEASURED - 1]
    candidates = [run(Plan()), *(candidate.found for candidate in promising)]
    results = len(Program(sdfg).outputs)
    return candidates[fastest(ready({n: Runnable(c, results) for n, c in enumerate(candidates)}, graph))]


def promising(
    sdfg: dace.SDFG,
    wrt: Sequence[str],
    config: Config,
    index: Typeclass,
    graph: HeteroGraph,
    model: Predictor | None = None,
    *,
    shared: bool = False,
    guard: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Compilation]:
    """Returns programs that may race against the default one on a graph.

    See `challengers`.

    Args:
        guard: Returns a lock for the time in which one program is compiled.
    """
    facts = GraphFacts.of(graph)

    def run(plan: Plan) -> Compilation:
        with guard():
            return compile_program(sdfg, wrt, config, index, facts, tuned=plan, shared=shared, keep=False)

    return [found for _, found in challengers(run, facts, model or model_of(config.model))]


def challengers(run: Compile, facts: GraphFacts, model: Model) -> list[tuple[float, Compilation]]:
    """Returns up to `CHALLENGERS` programs that may be faster than the default by a model, the best first.

    Each comes with what it gains at least (`least_gains`), which is more than `LEAST_GAIN`.

    Args:
        run: Compiles the program by a plan.
    """
    default = run(Plan())
    found = [c.found for c in beam_search(run, facts, model, evaluations=EVALUATIONS) if c.found.plan != default.plan]
    if not found:
        return []
    start, *others = (describe(*c.parts).on(facts, threads=model.threads) for c in (default, *found))
    least = least_gains(model, start, others)
    order = sorted(range(len(found)), key=lambda n: -least[n])
    return [(float(least[n]), found[n]) for n in order[:CHALLENGERS] if least[n] > LEAST_GAIN]


def ready(runnables: Mapping[int, Runnable], graph: HeteroGraph) -> dict[int, TimedStep]:
    """Builds numbered programs and gives them arrays of random numbers."""
    build_runnables([*runnables.values()])
    arrays = RandomArrays(_ELEMENTS, device=graph.device)
    return {number: TimedStep(runnable, graph, arrays) for number, runnable in runnables.items()}


def fastest(steps: Mapping[int, TimedStep]) -> int:
    """Returns the number of the fastest program; the best of a first round run again, longer."""
    first = seconds(steps, REPEAT)
    best = sorted(first, key=first.__getitem__)[:FINALISTS]
    again = seconds({n: steps[n] for n in best}, FINAL_REPEAT)
    return min(again, key=again.__getitem__)
