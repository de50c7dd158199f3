"""Plans: what the passes decide, by the names of their questions, so that a program can be compiled so again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dacergnn.errors import DacergnnError


@dataclass(frozen=True)
class Plan:
    """Answers to the questions that passes ask; what a plan leaves out, they decide by cost.

    ``compile_program`` hands out the questions of a program, with their options, as those of its result; a plan of all
    of its answers compiles the program to the same again, on every graph.

    Args:
        answers: (question, answer) pairs; `Plan.of` takes a mapping.
    """

    answers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        pairs: Any = self.answers
        try:
            pairs = tuple(sorted((str(question), str(answer)) for question, answer in pairs))
        except (TypeError, ValueError):
            raise DacergnnError(f"answers={self.answers!r}: pass pairs of questions and answers.") from None
        if len({question for question, _ in pairs}) < len(pairs):
            raise DacergnnError(f"answers={self.answers!r}: a question is answered twice.")
        object.__setattr__(self, "answers", pairs)

    @classmethod
    def of(cls, answers: Mapping[str, str]) -> Plan:
        """The plan that gives these answers by question."""
        return cls(tuple(answers.items()))

    @cached_property
    def by_question(self) -> Mapping[str, str]:
        """The answers by question."""
        return dict(self.answers)

    def over(self, other: Plan) -> Plan:
        """The plan that answers as this one does, and as another one where this one does not."""
        return Plan.of({**other.by_question, **self.by_question})

    def to_json(self) -> str:
        """One line of JSON, an object of answers by question."""
        return json.dumps(dict(self.answers))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Returns what `to_json` wrote; DacergnnError for anything else."""
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise DacergnnError(f"plan: {error}; pass the text that to_json() makes.") from None
        if not isinstance(found, dict):
            raise DacergnnError(f"plan: {text[:60]!r} is no object of answers by question.")
        return cls.of(found)  # pyright: ignore[reportUnknownArgumentType]
