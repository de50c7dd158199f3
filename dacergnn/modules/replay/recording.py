"""Repeats a recorded call for other calls that are like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from dacergnn.frontends import ProgramSource
from dacergnn.frontends.symbolic.edges import Form
from dacergnn.frontends.symbolic.inputs import data_of_graph
from dacergnn.frontends.symbolic.sizes import Guard, Role, Size
from dacergnn.frontends.symbolic.tape import (
    Extent,
    Step,
    Tape,
    TorchCall,
    Unrepeatable,
    filled,
    hold,
    own_tensors,
    slots_of,
    without_vain_steps,
)
from dacergnn.graph import HeteroGraph
from dacergnn.modules.replay.reach import Unwatchable
from dacergnn.modules.replay.watch import Watch
from dacergnn.modules.signature import SIMPLE, CallSignature


class Runner(Protocol):
    """Runs programs."""

    def graph_of(self, form: Form, kept: set[int]) -> HeteroGraph:
        """Returns the graph of some edges; ``kept`` holds the ids of tensors that others keep."""
        ...

    def run_program(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the outputs of a program for arrays in the order of its parameters."""
        ...


class Recording:
    """Describes the steps of a call, so that other calls that are like it can run them.

    Args:
        signature: The signature of the call.
        watch: The objects that it can reach besides its arguments.
        leaves: The tensors and graphs among its arguments.
        tape: The steps that it ran.
        result: The result that it returned.
        forget: Is called when a graph is gone.

    Raises:
        Unwatchable: The result holds more than what the call made.
    """

    def __init__(
        self,
        signature: CallSignature,
        watch: Watch,
        leaves: Sequence[Any],
        tape: Tape,
        result: Any,
        forget: Callable[[object], None],
    ) -> None:
        self.signature, self.watch = signature, watch
        self.signature.when_gone(forget)
        self._known = self._overlap(leaves)
        self._result = _template(result, tape)
        needed = slots_of(self._result, tape.guards)
        self.steps: tuple[Step, ...] = without_vain_steps(tape.steps, needed)
        self._own = own_tensors(self.steps)
        self.draws = tape.draws
        """Tells whether it draws random numbers."""
        self.sizes = tape.sizes
        """The sizes of tensors that the call has used."""
        self._slots = tape.slots
        count = len(leaves)
        self._first: list[Guard] = []
        """Guards about the arguments alone."""
        self._later: list[Guard] = []
        for guard in tape.guards:
            places = [guard[1][0], guard[2][0] if isinstance(guard[2], tuple) else 0]
            (self._first if max(places) < count else self._later).append(guard)
        self._fix(frozenset(self.sizes))

    def _fix(self, roles: frozenset[Role]) -> None:
        """Restricts the recording to calls with the same sizes in these roles."""
        self._fixed = [(role, self.sizes[role]) for role in roles if role[0] < len(self.signature.axes)]

    def widen(self, other: Recording) -> bool:
        """Covers calls of any size in roles where the sizes of ``other`` differ, if both calls have done the same.

        Most of what Python does with a size is noticed. If two calls of different sizes have done the same, nothing has
        gone unnoticed. Returns whether this recording covers all calls that the other one covers.
        """
        same = self.steps == other.steps and self._result == other._result and self.sizes.keys() == other.sizes.keys()
        if same:
            free = {role for role, _ in self._fixed} - {role for role, _ in other._fixed}
            roles = {role for role, size in self.sizes.items() if other.sizes[role] == size}
            self._fix(frozenset(roles - free))
        return same and {*self._first, *self._later} <= {*other._first, *other._later}

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the tensors and graphs among the arguments of a call that is like the recorded one.

        None if the call is not like it, or if anything else has changed.
        """
        leaves = self.signature.leaves(args, kwargs)
        if leaves is None or not self.watch.unchanged() or self._overlap(leaves) != self._known:
            return None
        if any(leaves[slot].shape[axis] != size for (slot, axis), size in self._fixed):
            return None
        return leaves if hold(self._first, leaves) else None

    def device(self, leaves: Sequence[Any]) -> torch.device:
        """Returns the device of a call with these leaves."""
        return next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), torch.device("cpu"))

    def tensors(self, leaves: Sequence[Any]) -> list[Tensor]:
        """Returns the tensors that programs read besides arguments: parameters, and columns of graphs among these."""
        columns = [t for t in leaves[self.signature.count :] if isinstance(t, Tensor)]
        return [*self._own, *columns]

    def _overlap(self, leaves: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Returns the ids of leaves that the layer, or a graph, holds as well, 0 for others, and which are the same."""
        ids, held = [*map(id, leaves)], self.watch.ids
        alone = len({*ids}) == len(ids)
        return [i if i in held else 0 for i in ids], [] if alone else [ids.index(i) for i in ids]

    def run(self, runner: Runner, leaves: Sequence[Any], instead: Mapping[int, Tensor] | None = None) -> Any:
        """Returns the result for other arguments.

        Args:
            instead: The tensors to compute with in place of the layer's own, by their ids.

        Raises:
            Differs: A size within the call is not as it was.
        """
        if instead:
            leaves = [instead.get(id(leaf), leaf) for leaf in leaves]
        instead = instead or {}
        tensors: list[Any] = [*leaves, *[None] * (self._slots - len(leaves))]
        kept = {*map(id, leaves), *self.watch.ids}
        grad = torch.is_grad_enabled()
        for step in self.steps:
            if step.grad is grad:
                _run(step, runner, tensors, kept, instead)
            else:
                with torch.set_grad_enabled(step.grad):
                    _run(step, runner, tensors, kept, instead)
        if self._later and not hold(self._later, tensors):
            raise Differs
        return filled(self._result, tensors, instead)


class Differs(Exception):
    """Signals that a size is not as it was when a call was recorded."""


def _run(step: Step, runner: Runner, tensors: list[Any], kept: set[int], instead: Mapping[int, Tensor]) -> None:
    if isinstance(step, TorchCall):
        result = step.function(*filled(step.args, tensors, instead), **filled(step.kwargs, tensors, instead))
        made = () if result is None else (result,) if isinstance(result, Tensor) else result
        for slot, tensor in zip(step.results, made, strict=True):
            tensors[slot] = tensor
        return
    graph = step.edges
    if not isinstance(graph, HeteroGraph):
        graph = runner.graph_of(filled(graph, tensors, instead), kept)
    arrays: list[Tensor] = []
    for source in step.inputs:
        if source.tensor is None:
            arrays.append(data_of_graph(graph, *source.data))
        else:
            array = filled(source.tensor, tensors, instead)
            arrays.append(graph.to_canonical(array) if source.on_edges else array)
    outputs = runner.run_program(step.program, graph, arrays)
    for output in step.outputs:
        rows = outputs[output.position]
        rows = tensors[output.slot] = graph.from_canonical(rows) if output.on_edges else rows
        for slot, row in output.views:
            tensors[slot] = rows if row is None else rows.view(rows.size(0), *row)


def _template(tree: Any, tape: Tape) -> Any:
    """Returns the result with `Slot` and the like in place of tensors.

    Raises:
        Unwatchable: It holds more than tensors and simple values.
    """
    if isinstance(tree, Tensor):
        try:
            return tape.reference(tree)
        except Unrepeatable:
            raise Unwatchable("its result is not what the call has made") from None
    if type(tree) in (tuple, list):
        return type(tree)([_template(v, tape) for v in tree])
    if type(tree) is dict:
        return {k: _template(v, tape) for k, v in tree.items()}
    if type(tree) is Size:
        return Extent(tree.role)
    if type(tree) not in SIMPLE:
        raise Unwatchable("its result is not what the call has made")
    return tree
