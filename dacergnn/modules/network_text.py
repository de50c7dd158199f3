"""The text of a network: one line for each step, with numbers for tensors and the names of what a call is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from dacergnn.frontends.symbolic.edges import EdgeForm, PartedForm
from dacergnn.frontends.symbolic.relations import RelationsForm
from dacergnn.frontends.symbolic.row_sets import RowsForm
from dacergnn.frontends.symbolic.steps import Extent, Input, Own, ProgramRun, Slot, Step, TorchCall


class NetworkText:
    """Writes steps.

    Args:
        names: Names by slots, such as ``x`` or ``x.size(0)``; other tensors have numbers.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names

    def of(self, steps: Iterable[Step], result: Any) -> str:
        """Returns the text of steps and of their result."""
        lines = [self._program(s) if isinstance(s, ProgramRun) else self._call(s) for s in steps]
        return "\n".join([*lines, f"return {self._text(result)}"])

    def _call(self, step: TorchCall) -> str:
        arguments = [self._text(v) for v in step.args]
        arguments += [f"{name}={self._text(v)}" for name, v in step.kwargs.items()]
        line = f"{step.function.__name__}({', '.join(arguments)}){self._mode(step)}"
        return f"{self._slots(step.results)} = {line}" if step.results else line

    def _program(self, step: ProgramRun) -> str:
        name = step.program.source if not isinstance(step.program.source, str) else _title(step.program.source)
        inputs = ", ".join(map(self._input, step.inputs))
        results = [slot for o in step.outputs for slot in (o.slot, *[s for s, _ in o.views if s != o.slot])]
        return f"{self._slots(results)} = run {name}({inputs}) on {self._edges(step.edges)}{self._mode(step)}"

    def _input(self, given: Input) -> str:
        return " ".join(map(str, given.data)) if given.tensor is None else self._text(given.tensor)

    def _edges(self, edges: Any) -> str:
        if isinstance(edges, RowsForm):
            return f"{self._text(edges.rows)} rows"
        if isinstance(edges, RelationsForm):
            return f"relations({', '.join(map(self._edges, edges.relations))})"
        if isinstance(edges, PartedForm):
            return f"{self._text(edges.parts)} graphs of {self._edges(edges.one)}"
        if not isinstance(edges, EdgeForm):
            return "a graph"
        ends = [self._text(t) for t in edges.tensors]
        typed = [f"{kind} {name}" for kind, name in zip(edges.typed, ends[1 + edges.paired :], strict=True)]
        sizes = [self._text(size) for size in edges.sizes]
        flow = " against the flow" if edges.flipped else ""
        return f"edges({', '.join([*ends[: 1 + edges.paired], *typed, *sizes])}){flow}"

    @staticmethod
    def _mode(step: Step) -> str:
        return "" if step.grad else "  # without gradients"

    def _slots(self, slots: Iterable[int]) -> str:
        return ", ".join(self._name(slot) for slot in slots)

    def _name(self, slot: int) -> str:
        return self._names.get(slot, f"%{slot}")

    def _text(self, tree: Any) -> str:
        if isinstance(tree, Slot):
            return self._name(tree.number)
        if isinstance(tree, Own):
            return f"constant{list(tree.tensor.shape)}"
        if isinstance(tree, Extent):
            name = self._name(tree.role[0])
            return name if name.endswith(")") else f"{name}.size({tree.role[1]})"
        if isinstance(tree, list | tuple):
            parts = ", ".join(map(self._text, tree))
            return f"[{parts}]" if isinstance(tree, list) else f"({parts})"
        if isinstance(tree, dict):
            return "{" + ", ".join([f"{k!r}: {self._text(v)}" for k, v in tree.items()]) + "}"
        if isinstance(tree, slice):
            return ":".join(["" if v is None else self._text(v) for v in (tree.start, tree.stop, tree.step)])
        return "a tensor" if isinstance(tree, Tensor) else repr(tree)


def _title(source: str) -> str:
    """Returns the name of a program."""
    return source.removeprefix("def ").partition("(")[0]
