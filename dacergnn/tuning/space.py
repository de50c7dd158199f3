"""The space of a program's plans: the default, which passes choose by cost, and plans that deviate in some answers.

A plan in this space holds only the deviating answers, since each of them may change which questions follow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from dacergnn.errors import DacergnnError
from dacergnn.library_nodes.traversal.plan import RUN_TIME
from dacergnn.plan import Plan
from dacergnn.sdfg_passes import Compilation

Compile = Callable[[Plan], Compilation]
"""Compiles a program, as `compile_program` does, by a plan."""


def neighbours(plan: Plan, compilation: Compilation) -> Iterator[Plan]:
    """Yields the plans with one more deviation.

    Args:
        plan: Deviations from the plan that passes choose by cost.
        compilation: The program, compiled by that plan.
    """
    for name, question in compilation.asked.items():
        if name not in plan.by_question:
            for option in question.options:
                if option != question.answer:
                    yield Plan.of({**plan.by_question, name: option})


def needs_build(question: str) -> bool:
    """Tells whether another answer to a question leads to other code."""
    return question.rpartition("/")[2] not in RUN_TIME


def random_plans(
    run: Compile,
    rng: random.Random,
    count: int,
    deviations: int = 6,
    about: Callable[[str], bool] = lambda question: True,
) -> Iterator[tuple[Plan, Compilation]]:
    """Yields up to ``count`` plans that lead to different programs, with these programs; the first is the default.

    Each of the others has 1 to ``deviations`` random deviations. All questions are equally likely, and so are the
    options of a question; so questions with many options are not drawn more often.

    Args:
        about: Tells which questions may be answered in another way.
    """
    start = run(Plan())
    yield Plan(), start
    seen = {start.plan}
    for _ in range(4 * count):
        if len(seen) >= count:
            return
        plan, compilation = Plan(), start
        for _ in range(rng.randint(1, deviations)):
            others = {n: q for n, q in compilation.asked.items() if n not in plan.by_question and len(q.options) > 1}
            open_questions = {n: q for n, q in others.items() if about(n)}
            if not open_questions:
                break
            name = rng.choice([*open_questions])
            question = open_questions[name]
            option = rng.choice([o for o in question.options if o != question.answer])
            further = Plan.of({**plan.by_question, name: option})
            try:
                plan, compilation = further, run(further)
            except DacergnnError:  # an answer does away with a question that was answered before it
                continue
        if compilation.plan not in seen:
            seen.add(compilation.plan)
            yield plan, compilation


def random_variant(plan: Plan, compilation: Compilation, rng: random.Random, deviations: int = 6) -> Plan:
    """Returns the plan with 1 to ``deviations`` other answers that need no build, and so lead to no other questions."""
    questions = {n: q for n, q in compilation.asked.items() if not needs_build(n) and len(q.options) > 1}
    changed = rng.sample(sorted(questions), min(rng.randint(1, deviations), len(questions)))
    others = {n: rng.choice([o for o in questions[n].options if o != questions[n].answer]) for n in changed}
    return Plan.of({**plan.by_question, **others})
