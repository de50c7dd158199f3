"""The space of plans of a program: what follows from what the passes choose by cost, one answer changed at a time.

A plan in this space holds only the answers that deviate, since each of them may change what is asked after it.
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
    """The plans with one more deviation.

    Args:
        plan: Deviations from what passes choose by cost.
        compilation: The program as it is compiled by them.
    """
    for name, question in compilation.asked.items():
        if name not in plan.by_question:
            for option in question.options:
                if option != question.answer:
                    yield Plan.of({**plan.by_question, name: option})


def needs_build(question: str) -> bool:
    """Returns whether another answer leads to other code."""
    return question.rpartition("/")[2] not in RUN_TIME


def random_plans(
    run: Compile,
    rng: random.Random,
    count: int,
    deviations: int = 6,
    about: Callable[[str], bool] = lambda question: True,
) -> Iterator[tuple[Plan, Compilation]]:
    """Up to ``count`` plans that lead to different programs, and these; the first deviates in nothing.

    Each of the others has 1 to ``deviations`` random deviations. A question is as likely as any other, and so are its
    options, so that those with many do not crowd out the rest.

    Args:
        about: Which questions are answered in another way.
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
    """The plan with 1 to ``deviations`` other answers that need no build; none of them leads to other questions."""
    questions = {n: q for n, q in compilation.asked.items() if not needs_build(n) and len(q.options) > 1}
    changed = rng.sample(sorted(questions), min(rng.randint(1, deviations), len(questions)))
    others = {n: rng.choice([o for o in questions[n].options if o != questions[n].answer]) for n in changed}
    return Plan.of({**plan.by_question, **others})
