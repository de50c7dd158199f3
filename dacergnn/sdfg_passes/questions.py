"""Records questions of passes, which are decided by cost unless a plan answers them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan

Site = TypeVar("Site")
KEEP = "keep"
"""The answer that leaves something as it is."""


@dataclass(frozen=True)
class Question:
    """Describes a decision of a pass: one of several options, all of which give a right program."""

    options: tuple[str, ...]
    answer: str


@dataclass
class Questions:
    """Answers questions by a plan, and keeps a record of all that were asked.

    Names of questions are like paths: the program, the pass that asks, and what it decides.
    """

    plan: Plan = field(default_factory=Plan)
    prefix: str = ""
    asked: dict[str, Question] = field(default_factory=dict[str, Question])
    by_plan_only: bool = False

    def of(self, part: str) -> Questions:
        """Returns the questions of a part, with the same record."""
        return Questions(self.plan, f"{self.prefix}{part}/", self.asked)

    def given(self, name: str) -> str | None:
        """Returns the plan's answer, if it has one."""
        return self.plan.by_question.get(self.prefix + name)

    def ask(self, name: str, options: Sequence[str], default: str) -> str:
        """Returns the plan's answer, or else the default, which must be one of the options.

        Raises:
            DacergnnError: The plan's answer is none of the options.
        """
        answer = self.given(name)
        self.note(name, options, default if answer is None else answer)
        return self.asked[self.prefix + name].answer

    def note(self, name: str, options: Sequence[str], answer: str) -> None:
        """Records a decision; raises DacergnnError if it is none of the options."""
        if answer not in options:
            raise DacergnnError(
                f'plan: "{self.prefix}{name}" cannot be answered with {answer!r}; options: {", ".join(options)}.'
            )
        self.asked[self.prefix + name] = Question(tuple(options), answer)

    def rounds(self) -> Iterator[Questions]:
        """Yields parts for a pass that goes over a program until it finds nothing more to do.

        If the plan decides anything, later rounds do only what it says: else they would undo choices that cost more.
        """
        decided = any(question.startswith(self.prefix) for question in self.plan.by_question)
        for number in count():
            part = self.of(str(number))
            part.by_plan_only = decided and number > 0
            yield part

    def open(self, sites: Mapping[str, Site]) -> dict[str, Site]:
        """Returns the sites to decide about: all of them, or those that the plan answers."""
        return {name: site for name, site in sites.items() if not self.by_plan_only or self.given(name) is not None}

    def check(self, absent: Sequence[str] = (), elsewhere: Collection[str] = ()) -> None:
        """Raises DacergnnError if the plan answers a question that was not asked.

        Args:
            absent: Parts that this program lacks, so that they cannot ask.
            elsewhere: Questions that another program may ask.
        """
        others = tuple(f"{part}/" for part in absent)
        stray = [q for q in self.plan.by_question if q not in self.asked and not q.startswith(others)]
        stray = [q for q in stray if q not in elsewhere]
        if stray:
            raise DacergnnError(
                f'plan: nothing asks "{stray[0]}" of this program; it may be of another program or version. Asked: '
                f"{', '.join(self.asked)}."
            )


def answers(asked: Mapping[str, Question]) -> Plan:
    """Returns the plan that repeats all answers."""
    return Plan.of({name: question.answer for name, question in asked.items()})
