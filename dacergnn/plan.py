"""Defines plans: the decisions of passes by the names of their questions, to compile programs the same way again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from reprlib import repr as short
from typing import Any

from dacergnn.errors import DacergnnError

MODEL = "(model)"
"""Name of a layer that is the whole model, as `explain` prints it."""


@dataclass(frozen=True)
class Plan:
    """Holds answers to the questions that passes ask; where a plan has no answer, they decide by cost.

    The result of ``compile_program`` holds the questions of a program, with their options. A plan of all its answers
    leads to the same program again, on every graph. ``explain(model, verbose=True)`` shows them.

    Args:
        answers: (question, answer) pairs, for all layers whose programs ask; `Plan.of` takes a mapping.
        layers: (name, plan) pairs, which come before ``answers``; `explain` prints the names of layers.
    """

    answers: tuple[tuple[str, str], ...] = ()
    layers: tuple[tuple[str, Plan], ...] = ()

    def __post_init__(self) -> None:
        pairs: Any = self.answers
        try:
            pairs = tuple(sorted((str(question), _text(question, answer)) for question, answer in pairs))
        except (TypeError, ValueError):
            raise DacergnnError(f"answers={self.answers!r}: pass pairs of questions and answers.") from None
        _check_once([*[question for question, _ in pairs], *[name for name, _ in self.layers]])
        nested = [name for name, plan in self.layers if plan.layers]
        if nested:
            raise DacergnnError(f'plan: layer "{nested[0]}" has layers of its own; give it answers by question.')
        object.__setattr__(self, "answers", pairs)
        object.__setattr__(self, "layers", tuple(sorted(self.layers, key=lambda layer: layer[0])))

    @classmethod
    def of(cls, answers: Mapping[str, Any]) -> Plan:
        """Returns the plan with these answers by question; a mapping holds the answers for the layer of its name."""
        layers = {name: cls.of(own) for name, own in answers.items() if isinstance(own, Mapping)}
        return cls(tuple((q, a) for q, a in answers.items() if q not in layers), tuple(layers.items()))

    @cached_property
    def by_question(self) -> Mapping[str, str]:
        """Returns the answers for all layers, by question."""
        return dict(self.answers)

    def of_layer(self, name: str) -> Plan:
        """Returns the answers for one layer: its own, and those for all layers."""
        return dict(self.layers).get(name, Plan()).over(Plan(self.answers))

    def of_model(self) -> Plan:
        """Returns the answers for a model that is one layer; raises DacergnnError if others are named."""
        self.check_layers([MODEL])
        return self.of_layer(MODEL)

    def check_layers(self, known: Sequence[str]) -> None:
        """Raises DacergnnError if a named layer is not among the known ones."""
        unknown = [name for name, _ in self.layers if name not in known]
        if unknown:
            raise DacergnnError(
                f'plan: no layer "{unknown[0]}" is compiled here, but these: {", ".join(known) or "none"}; give it the '
                "name that explain prints."
            )

    def over(self, other: Plan) -> Plan:
        """Returns the answers of this plan, and another plan's answers to what is left open; neither names a layer."""
        return Plan.of({**other.by_question, **self.by_question})

    def to_json(self) -> str:
        """Returns one line of JSON: an object of answers by question, with an object for each named layer."""
        return json.dumps({**dict(self.answers), **{name: dict(plan.answers) for name, plan in self.layers}})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Returns the plan that `to_json` wrote; raises DacergnnError for any other text."""
        try:
            answers = json.loads(text, object_pairs_hook=_object)
        except json.JSONDecodeError as error:
            raise DacergnnError(f"plan: {error}; pass the text that to_json() makes.") from None
        if not isinstance(answers, dict):
            raise DacergnnError(f"plan: {text[:60]!r} is no object of answers by question.")
        return cls.of(answers)  # pyright: ignore[reportUnknownArgumentType]

    def save(self, path: str | Path) -> None:
        """Writes a file that `load` and ``--plan`` of the command line read."""
        try:
            Path(path).write_text(self.to_json() + "\n")
        except OSError as error:
            raise DacergnnError(f"plan: {path} cannot be written: {error.strerror}.") from None

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Returns the plan that a file holds; raises DacergnnError, with the name of the file, if there is none."""
        try:
            return cls.from_json(Path(path).read_text())
        except OSError as error:
            problem = f"it cannot be read: {error.strerror}; name a file that Plan.save or dacergnn tune run wrote."
        except UnicodeDecodeError:
            problem = "it holds no text; name a file that Plan.save or dacergnn tune run wrote."
        except DacergnnError as error:
            problem = str(error)
        raise DacergnnError(f"{path}: {problem}")


def _text(question: object, answer: object) -> str:
    """Returns an answer as text; raises DacergnnError for values that are no answer."""
    if isinstance(answer, bool) or not isinstance(answer, str | int):
        raise DacergnnError(f'plan: the answer to "{question}" is {short(answer)}; give one of its options as text.')
    return str(answer)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of JSON; raises DacergnnError for equal names, since a dict would keep only the last."""
    _check_once([name for name, _ in pairs])
    return dict(pairs)


def _check_once(names: Sequence[str]) -> None:
    double = [name for name in names if names.count(name) > 1]
    if double:
        raise DacergnnError(f'plan: "{double[0]}" is answered twice.')
