"""Checks that the programs of a model ask all questions that a user's plan answers.

Layers are compiled when they are called. A question is known to be unused once all layers that it may concern have
been called, with gradients if it concerns gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dacergnn.errors import DacergnnError
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.plan import MODEL, Plan

_OF_GRADIENTS = ("backward/", "cache_or_recompute/")


class PlanUse:
    """Knows the layers that follow a plan, and the questions that they have asked."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.layers: dict[str, LayerUse] = {}

    def layer(self, name: str = MODEL) -> LayerUse:
        """Adds a layer, and returns the object that notes its questions."""
        use = self.layers[name] = LayerUse(self)
        return use

    @property
    def unasked(self) -> list[str]:
        """Returns the questions that no program has asked so far."""
        return [question for question, _ in self._unasked()]

    def check(self) -> None:
        """Raises DacergnnError if it is known that nobody asks a question."""
        for question, layers in self._unasked():
            if all(layer.would_have_asked(question) for layer in layers):
                whom = "this layer" if len(layers) == 1 else "any layer of this model"
                raise DacergnnError(
                    f'plan: nothing asks "{question}" of {whom}; it may be of another program or version. '
                    "explain(model, verbose=True) shows what is asked."
                )

    def _unasked(self) -> Iterator[tuple[str, list[LayerUse]]]:
        """Yields each question that nobody has asked so far, and the layers that it may concern."""
        everywhere = [*self.layers.values()]
        own = [(plan, [self.layers[name]]) for name, plan in self.plan.layers if name in self.layers]
        for plan, layers in [(self.plan, everywhere), *own]:
            for question in plan.by_question:
                if not any(question in layer.asked for layer in layers):
                    yield question, layers


class LayerUse:
    """Notes what the programs of one layer ask of a plan."""

    def __init__(self, model: PlanUse) -> None:
        self.model = model
        self.asked: set[str] = set()
        self.differentiated = False
        self._builds = 0

    @property
    def alone(self) -> bool:
        """Returns whether no other layer follows the plan."""
        return len(self.model.layers) == 1

    def would_have_asked(self, question: str) -> bool:
        """Returns whether a program of the layer would have asked a question by now."""
        return self.differentiated if question.startswith(_OF_GRADIENTS) else self._builds > 0

    def note(self, programs: Iterable[CompiledProgram]) -> None:
        """Notes all programs that the layer has after a call; raises DacergnnError as `PlanUse.check` does."""
        variants = [variant for program in programs for variant in program.variants]
        if len(variants) == self._builds:
            return
        before, self._builds = self._builds, len(variants)
        for variant in variants:
            self.asked |= variant.asked
            self.differentiated |= variant.backward is not None
        try:
            self.model.check()
        except DacergnnError:
            self._builds = before  # so that the next call raises the error again
            raise
