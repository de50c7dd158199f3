"""Steps of a call over numbered tensors, which other calls run again: programs on graphs, and functions of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from dacergnn.config import CheckGraph
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.symbolic.edges import Form
from dacergnn.frontends.symbolic.inputs import data_of_graph
from dacergnn.frontends.symbolic.sizes import Guard, Number, Role
from dacergnn.frontends.symbolic.steps import (
    ProgramRun,
    Slot,
    Step,
    TorchCall,
    draws,
    filler,
    has_effects,
    hold,
    own_tensors,
    roles_read,
    slots_made,
    slots_of,
    without_vain_steps,
)
from dacergnn.frontends.symbolic.tape import Tape
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lifetime import lasting
from dacergnn.modules.known_edges import Watched
from dacergnn.modules.network_text import NetworkText

_KEPT = 16
_Run = Callable[["Programs", list[Any], set[int], Mapping[int, Tensor]], None]
"""Runs a step: takes tensors by slots, the ids of tensors that others keep, and what to use instead of own tensors."""


class Programs(Protocol):
    """Finds graphs and runs programs on them."""

    @property
    def check(self) -> CheckGraph:
        """Returns whether integers are compared (`Config.check_graph`)."""
        ...

    def graph_of(self, form: Form, kept: set[int]) -> HeteroGraph:
        """Returns the graph of some edges; ``kept`` holds the ids of tensors that others keep."""
        ...

    def run_program(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the outputs of a program for arrays in the order of its parameters."""
        ...


class Differs(Exception):
    """Signals that a size is not as it was when a call was recorded."""


class Network:
    """Holds the steps of a recorded call, and which other calls they serve.

    Args:
        tape: The steps that the call has run.
        leaves: How many tensors and objects the call was given; they have the first numbers.
        result: The template of the result (`steps.filler`).
    """

    def __init__(self, tape: Tape, leaves: int, result: Any) -> None:
        self.result = result
        needed = slots_of(result, tape.guards)
        self.steps: tuple[Step, ...] = without_vain_steps(tape.steps, needed)
        kept = {id(step) for step in self.steps}
        made = [step for step in tape.steps[: tape.integers] if id(step) in kept]
        places = {_place(t) for step in made for t in map(tape.made, slots_made(step)) if _is_integers(t)}
        handed_out = [t for t in map(tape.made, slots_of(result, ())) if _is_integers(t) and _place(t) in places]
        self._integers = IntegerSteps(made, self.steps, leaves, remembers=not handed_out)  # users may write to results
        self.own = own_tensors(self.steps)
        """The tensors that all calls read."""
        self.sizes = tape.sizes
        """The sizes of tensors that the call has used."""
        self._leaves, self._slots = leaves, tape.slots
        self._runs = [(_run_of(step), step.grad) for step in self.steps[self._integers.count :]]
        self._filled = filler(result)
        self._acts = any(_acts(step, tape, leaves) for step in self.steps if isinstance(step, TorchCall))
        """Tells whether a run may change more than what it makes itself."""
        self._first: list[Guard] = []
        """Guards about the arguments alone."""
        self._later: list[Guard] = []
        """Guards about what steps make: integers first."""
        self._last: list[Guard] = []
        for guard in tape.guards:
            places = {guard[1][0], guard[2][0] if isinstance(guard[2], tuple) else 0}
            early = self._later if places <= {*range(leaves), *self._integers.made} else self._last
            (self._first if max(places) < leaves else early).append(guard)
        self._fix(frozenset(self.sizes))

    def _fix(self, roles: frozenset[Role]) -> None:
        """Restricts the network to calls with the same sizes in these roles."""
        self._fixed = [(role, self.sizes[role]) for role in roles if role[0] < self._leaves]

    def widen(self, other: Network) -> bool:
        """Covers calls of any size in roles where the sizes of ``other`` differ, if both calls have done the same.

        Most of what Python does with a size is noticed. If two calls of different sizes have done the same, nothing has
        gone unnoticed. Returns whether this network covers all calls that the other one covers.
        """
        same = self.steps == other.steps and self.result == other.result and self.sizes.keys() == other.sizes.keys()
        if same:
            free = {role for role, _ in self._fixed} - {role for role, _ in other._fixed}
            roles = {role for role, size in self.sizes.items() if other.sizes[role] == size}
            self._fix(frozenset(roles - free))
        return same and {*self._guards} <= {*other._guards}

    @property
    def _guards(self) -> list[Guard]:
        return [*self._first, *self._later, *self._last]

    @property
    def finds_out_late(self) -> bool:
        """Tells whether a call that it does not serve is found after it has had other effects than its result."""
        return bool(self._last) and self._acts

    def text(self, names: Mapping[int, str] | None = None) -> str:
        """Returns the steps as text, one in each line; ``names`` are those of what a call is given, by their places.

        Sizes are named by a tensor and its axis, results of steps by numbers.
        """
        return NetworkText(names or {}).of(self.steps, self.result)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Returns whether a call with these leaves has sizes that the network serves."""
        for (slot, axis), size in self._fixed:
            if leaves[slot].shape[axis] != size:
                return False
        return hold(self._first, leaves)

    def run(
        self, programs: Programs, leaves: Sequence[Any], kept: set[int], instead: Mapping[int, Tensor] | None = None
    ) -> Any:
        """Returns the result for the leaves of another call.

        Args:
            kept: The ids of tensors that others keep.
            instead: The tensors to compute with in place of those that are the same in all calls, by their ids.

        Raises:
            Differs: A size within the call is not as it was.
        """
        instead = instead or {}
        tensors: list[Any] = [*leaves, *[None] * (self._slots - len(leaves))]
        grad = torch.is_grad_enabled()
        kept |= self._integers.run(programs, tensors)
        if self._later and not hold(self._later, tensors):
            raise Differs
        for run, wanted in self._runs:
            if wanted is grad:
                run(programs, tensors, kept, instead)
            else:
                with torch.set_grad_enabled(wanted):
                    run(programs, tensors, kept, instead)
        if self._last and not hold(self._last, tensors):
            raise Differs
        return self._filled(tensors, instead)


def _acts(step: TorchCall, tape: Tape, leaves: int) -> bool:
    """Returns whether a step may draw random numbers, or write to memory that the network has not made."""
    if not has_effects(step) or step.kwargs.get("p") == 0:  # of a dropout
        return False
    given = [*map(tape.made, range(leaves)), *own_tensors([step])]
    places = {_place(t) for t in given if isinstance(t, Tensor) and t.layout is torch.strided}
    written = [tape.made(slot) for slot in slots_of((step.args[:1], step.kwargs.get("out")), ()).union(step.results)]
    return draws(step.function.__name__) or any(isinstance(t, Tensor) and _place(t) in places for t in written)


def _is_integers(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and value.layout is torch.strided


def _place(tensor: Any) -> int:
    """Returns the address of the memory that a tensor shows."""
    return tensor.untyped_storage().data_ptr()


def _tensors(made: Mapping[int, Any]) -> list[Tensor]:
    return [value for value in made.values() if isinstance(value, Tensor)]


class IntegerSteps:
    """Holds the steps that compute integers from integers and sizes, and what they have made of the last ones.

    Graphs are found by their tensors. So calls with the same integers have the same tensors made of them.

    Args:
        steps: The steps.
        all_steps: The steps of the network, these first.
        leaves: How many tensors and numbers a call is given.
        remembers: Whether calls may have the same tensors.
    """

    def __init__(self, steps: Sequence[Step], all_steps: Sequence[Step], leaves: int, *, remembers: bool) -> None:
        self._runs, self.count = [*map(_run_of, steps)], len(steps)
        self.made = {slot for step in steps for slot in slots_made(step)}
        tensors, roles = roles_read(steps)
        self._tensors = sorted(slot for slot in tensors if slot < leaves)
        self._roles = sorted(role for role in roles if role[0] < leaves)
        edges = [step.edges for step in all_steps if isinstance(step, ProgramRun)]
        self._remembers = remembers and not self.made.isdisjoint(slots_of(edges, ()))
        self._known: list[tuple[Watched, list[int], dict[int, Any], Watched]] = []

    def run(self, programs: Programs, tensors: list[Any]) -> set[int]:
        """Puts what the steps make into ``tensors``; returns the ids of what is kept."""
        if not self._remembers:
            for run in self._runs:
                run(programs, tensors, set(), {})
            return set()
        self._known = [entry for entry in self._known if entry[0].is_alive]
        given = [tensors[slot] for slot in self._tensors]
        sizes = [tensors[slot].shape[axis] for slot, axis in self._roles]
        made = None
        for seen, known, results, unwritten in self._known:
            if known == sizes and seen.same(given) and unwritten.same(_tensors(results)):
                made = results
                break
        if made is None:
            # What is made may be a view; it keeps the memory alive, but not the tensor of the user.
            aliases = [t.detach() if slot in self._tensors else t for slot, t in enumerate(tensors)]
            with lasting():
                for run in self._runs:
                    run(programs, aliases, set(), {})
            made = {slot: aliases[slot] for slot in self.made}
            seen = Watched(given, programs.check), sizes, made, Watched(_tensors(made), programs.check)
            self._known = [seen, *self._known[: _KEPT - 1]]
        for slot, value in made.items():
            tensors[slot] = value
        return {*map(id, made.values())}


def _run_of(step: Step) -> _Run:
    """Returns a function that runs a step."""
    return _run_of_torch(step) if isinstance(step, TorchCall) else _run_of_program(step)


def _run_of_torch(step: TorchCall) -> _Run:
    function, args, kwargs, slots = step.function, filler(step.args), filler(step.kwargs), step.results

    def run(programs: Programs, tensors: list[Any], kept: set[int], instead: Mapping[int, Tensor]) -> None:
        result = function(*args(tensors, instead), **kwargs(tensors, instead))
        if isinstance(result, int):
            result = Number(result)
        made = () if result is None else (result,) if isinstance(result, Tensor | Number) else result
        for slot, tensor in zip(slots, made, strict=True):
            tensors[slot] = tensor

    return run


def _run_of_program(step: ProgramRun) -> _Run:
    program, outputs = step.program, step.outputs
    known = step.edges if isinstance(step.edges, HeteroGraph) else None
    edges, inputs = filler(step.edges), [*enumerate(step.inputs)]
    slots = [s.tensor.number if isinstance(s.tensor, Slot) else -1 for s in step.inputs]  # most of them are slots
    others = [(i, filler(s.tensor)) for i, s in inputs if slots[i] < 0 and s.tensor is not None]
    of_graph = [(i, s.data) for i, s in inputs if s.tensor is None]
    on_edges = [i for i, s in inputs if s.on_edges]

    def run(programs: Programs, tensors: list[Any], kept: set[int], instead: Mapping[int, Tensor]) -> None:
        graph = programs.graph_of(edges(tensors, instead), kept) if known is None else known
        arrays: list[Any] = [None if slot < 0 else tensors[slot] for slot in slots]
        for i, fill in others:
            arrays[i] = fill(tensors, instead)
        for i in on_edges:
            arrays[i] = graph.to_canonical(arrays[i])
        for i, data in of_graph:
            arrays[i] = data_of_graph(graph, *data)
        results = programs.run_program(program, graph, arrays)
        for output in outputs:
            rows = results[output.position]
            rows = tensors[output.slot] = graph.from_canonical(rows) if output.on_edges else rows
            for slot, row in output.views:
                tensors[slot] = rows if row is None else rows.view(rows.size(0), *row)

    return run
