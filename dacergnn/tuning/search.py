"""Searches for plans by a beam, which holds the plans that a performance model predicts to be fastest (Singh et al.).

Questions that need no other code are settled operator by operator; no pass runs again for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dacergnn.config import Rates
from dacergnn.errors import DacergnnError
from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation
from dacergnn.tuning.features import RATES, Described, ProgramFeatures, describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.predictor import Model, least_gains
from dacergnn.tuning.space import Compile, needs_build, neighbours

RELEVANT = 0.05
"""Schedules are settled of operators that take at least this share of the analytic seconds."""


@dataclass(frozen=True)
class PlanCandidate:
    """Holds a plan as its deviations from the default, the program that it leads to, and its predicted seconds."""

    plan: Plan
    found: Compilation
    seconds: float


def predicted(compilation: Compilation, facts: GraphFacts, model: Model, rates: Rates = RATES) -> float:
    """Returns the predicted seconds of a compiled program, forward and backward together."""
    return float(model.predict([describe(*compilation.parts).on(facts, rates, model.threads)])[0])


def settle_schedules(
    compilation: Compilation, facts: GraphFacts, model: Model, plan: Plan | None = None, rates: Rates = RATES
) -> float:
    """Settles schedules that need no other code by a model, in place; returns the predicted seconds.

    Each other answer is first tried alone, for operators that take a relevant share of the analytic seconds. Answers
    that help for certain (`least_gains`) are then taken together, the best first, as long as each still helps.

    Args:
        plan: Answers that stay as they are.
        rates: Rates of the machine, by which features are computed.
    """
    described = describe(*compilation.parts)
    threads = model.threads
    best = described.on(facts, rates, threads)
    answered = plan.by_question if plan is not None else {}
    matters = best.seconds >= RELEVANT * best.seconds.sum()
    trials = [trial for trial in _open(compilation) if matters[trial.operator] and trial.question not in answered]
    alone = [_with(described, best, trial, facts, rates, threads) for trial in trials]
    gains = least_gains(model, best, alone)
    settled: set[str] = set()
    for n in sorted((n for n, gain in enumerate(gains) if gain > 0), key=lambda n: -gains[n]):
        trial = trials[n]
        if trial.question in settled:
            continue
        if settled:
            alone[n] = _with(described, best, trial, facts, rates, threads)
        if not settled or least_gains(model, best, alone[n : n + 1])[0] > 0:
            best = alone[n]
            settled.add(trial.question)
            setattr(described.scheduled[trial.operator].node, trial.choice, int(trial.answer))
            compilation.asked[trial.question] = replace(compilation.asked[trial.question], answer=trial.answer)
    return float(model.predict([best])[0])


@dataclass(frozen=True)
class _Trial:
    """Holds another answer to a question about an operator's schedule; ``choice`` is the property of its node."""

    question: str
    operator: int
    choice: str
    answer: str


def _open(compilation: Compilation) -> Iterator[_Trial]:
    """Yields the other answers to questions that need no other code."""
    number = 0
    for role, part in zip(("forward", "backward"), compilation.parts, strict=False):
        for operator in Program(part).operators:
            for choice in operator.run_time:
                name = f"{role}/select_schedule/{operator.statements[0].target.name}/{choice}"
                asked = compilation.asked.get(name)
                if asked is not None and _has_groups(operator):
                    yield from (_Trial(name, number, choice, o) for o in asked.options if o != asked.answer)
            number += 1


def _has_groups(operator: GraphOperator) -> bool:
    """Tells whether an operator loops over groups; of others, the model has not learned the effect of answers."""
    return len(Levels.of(operator.space, operator.statements).spaces) > 1


def _with(
    described: Described, best: ProgramFeatures, trial: _Trial, facts: GraphFacts, rates: Rates, threads: int
) -> ProgramFeatures:
    """Returns the features with another answer for one operator."""
    node, number = described.scheduled[trial.operator].node, trial.operator
    before = getattr(node, trial.choice)
    setattr(node, trial.choice, int(trial.answer))
    try:
        row, cost = described.of_operator(number, facts, rates, threads)
    finally:
        setattr(node, trial.choice, before)
    dependent, seconds = best.dependent.copy(), best.seconds.copy()
    dependent[number], seconds[number] = row, cost
    return replace(best, dependent=dependent, seconds=seconds)


def beam_search(
    run: Compile,
    facts: GraphFacts,
    model: Model,
    *,
    width: int = 4,
    depth: int = 3,
    evaluations: int = 200,
    rates: Rates = RATES,
    on_step: Callable[[Sequence[PlanCandidate], int], None] = lambda beam, seen: None,
) -> list[PlanCandidate]:
    """Returns the plans that a model predicts to be fastest, best first, each leading to another program.

    The search starts from the plan that costs least. In each step plans deviate in one more answer, and the ``width``
    best go on. If there are too many to compile, answers that helped most at their first use come first.

    Args:
        run: Compiles the program by a plan.
        evaluations: The most programs to compile; each step but the last leaves half of the rest to later steps.
        rates: Rates of the machine, by which features are computed.
        on_step: Called with the best plans so far, and the number of compiled programs.
    """

    def candidate(plan: Plan) -> PlanCandidate:
        compilation = run(plan)
        return PlanCandidate(plan, compilation, settle_schedules(compilation, facts, model, plan, rates))

    start = candidate(Plan())
    best, beam, seen = [start], [start], {start.found.plan}
    effects: dict[tuple[str, str], float] = {}
    compiled = 1
    for left in range(depth, 0, -1):
        further = [(c, plan, _last(plan, c.plan)) for c in beam for plan in neighbours(c.plan, c.found)]
        further = [(c, plan, answer) for c, plan, answer in further if needs_build(answer[0])]
        further.sort(key=lambda one: one[0].seconds * effects.get(one[2], 1.0))
        reached: list[PlanCandidate] = []
        for before, plan, answer in further[: (evaluations - compiled) // min(left, 2)]:
            compiled += 1
            try:
                child = candidate(plan)
            except DacergnnError:  # an answer does away with a question that was answered before it
                continue
            effects.setdefault(answer, child.seconds / before.seconds)
            if child.found.plan not in seen:
                seen.add(child.found.plan)
                reached.append(child)
        beam = sorted(reached, key=lambda c: c.seconds)[:width]
        best = sorted([*best, *reached], key=lambda c: c.seconds)
        on_step(best, compiled)
        if not beam:
            break
    return best


def _last(plan: Plan, before: Plan) -> tuple[str, str]:
    """Returns the question that a plan answers and the plan before it does not, and its answer."""
    (question,) = plan.by_question.keys() - before.by_question.keys()
    return question, plan.by_question[question]
