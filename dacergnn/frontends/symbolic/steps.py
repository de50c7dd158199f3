"""The steps of a recorded call, in terms of its arguments: functions of torch and programs, one after the other.

Calls whose arguments have the same form can repeat them, also for other numbers of nodes and edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.frontend import ProgramSource
from dacergnn.frontends.symbolic.sizes import Guard, Role, Size, number

_RANDOM = ("dropout", "rand", "bernoulli", "multinomial", "normal", "exponential", "uniform", "run_layer")
"""Beginnings or ends of the names of functions that draw random numbers; a layer may."""


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor of the call: an argument, or a result of a step."""

    number: int


@dataclass(frozen=True, eq=False)
class Own:
    """Stands for a tensor that is the same in all calls, such as a parameter."""

    tensor: Tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return id(self.tensor)


@dataclass(frozen=True)
class Extent:
    """Stands for the size of an axis."""

    role: Role


@dataclass(frozen=True)
class TorchCall:
    """Holds a function of torch that the call has run; ``results`` are the slots of the tensors that it returns."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[int, ...]
    grad: bool


@dataclass(frozen=True)
class Input:
    """Describes an array of a program: a tensor, in the order of the user's edges if ``on_edges``, or graph data."""

    tensor: Slot | Own | None
    on_edges: bool
    data: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Output:
    """Describes an output of a program, a tensor with rows in the order of the user's edges if ``on_edges``.

    ``views`` are tensors that share its memory: their slots, and their shapes without rows, None for the same shape.
    """

    position: int
    on_edges: bool
    slot: int
    views: tuple[tuple[int, tuple[int, ...] | None], ...]


@dataclass(frozen=True)
class ProgramRun:
    """Holds a program that the call has run along some edges."""

    program: ProgramSource
    edges: Any
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    grad: bool


Step = TorchCall | ProgramRun
Filler = Callable[[Sequence[Any], Mapping[int, Tensor]], Any]


def without_vain_steps(steps: Sequence[Step], needed: set[int]) -> tuple[Step, ...]:
    """Returns the steps that the ``needed`` slots depend on, and the steps with other effects."""
    kept: list[Step] = []
    for step in reversed(steps):
        made = slots_made(step)
        if made.isdisjoint(needed) and not (isinstance(step, TorchCall) and has_effects(step)):
            continue
        kept.append(step)
        needed = needed | _slots_in(_reads(step))
    return tuple(reversed(kept))


def slots_made(step: Step) -> set[int]:
    """Returns the slots of what a step makes."""
    if isinstance(step, ProgramRun):
        return {s for o in step.outputs for s in (o.slot, *(slot for slot, _ in o.views))}
    return {*step.results}


def roles_read(steps: Iterable[Step]) -> tuple[set[int], set[Role]]:
    """Returns the slots of tensors, and the roles of sizes, that some steps read."""
    parts = [part for step in steps for part in _stand_ins(_reads(step))]
    return {p.number for p in parts if isinstance(p, Slot)}, {p.role for p in parts if isinstance(p, Extent)}


def own_tensors(steps: Iterable[Step]) -> list[Tensor]:
    """Returns the tensors that some steps read and that are the same in all calls."""
    found = {part for step in steps for part in _stand_ins(_reads(step)) if isinstance(part, Own)}
    return [part.tensor for part in found]


def _reads(step: Step) -> tuple[Any, ...]:
    """Returns templates of what a step reads."""
    if isinstance(step, ProgramRun):
        return step.edges, [i.tensor for i in step.inputs]
    return step.args, step.kwargs


def has_effects(step: TorchCall) -> bool:
    """Returns whether a function may do more than return tensors: write to some, or draw random numbers."""
    name = step.function.__name__
    writes = name.startswith(("__i", "__set")) or (name.endswith("_") and not name.endswith("__"))
    # A function that returns an argument has written to it, also if no keyword such as out says so.
    returned = not _slots_in((step.args, step.kwargs)).isdisjoint(step.results)
    return writes or returned or step.kwargs.get("out") is not None or draws(name)


def draws(name: str) -> bool:
    """Returns whether a function of torch draws random numbers, by its name."""
    return name.strip("_").startswith(_RANDOM) or name.strip("_").endswith(_RANDOM)


def _stand_ins(tree: Any) -> Iterator[Slot | Own | Extent]:
    """Yields what stands for tensors and sizes in a template."""
    kind = type(tree)
    if kind in (Slot, Own, Extent):
        yield tree
        return
    if kind is dict:
        tree = tree.values()
    elif kind is slice:
        tree = (tree.start, tree.stop, tree.step)
    elif kind not in (tuple, list) and not hasattr(kind, "_fields"):
        return
    for item in tree:
        yield from _stand_ins(item)


def _slots_in(tree: Any) -> set[int]:
    numbers: set[int] = set()
    for part in _stand_ins(tree):
        if not isinstance(part, Own):
            numbers.add(part.number if isinstance(part, Slot) else part.role[0])
    return numbers


def slots_of(result: Any, guards: Iterable[Guard]) -> set[int]:
    """Returns the slots that occur in the template of a result and in guards."""
    roles = [role for guard in guards for role in guard[1:3] if isinstance(role, tuple)]
    return _slots_in(result) | {slot for slot, _ in roles}


def filler(tree: Any) -> Filler:
    """Returns a function that fills a template: it is called once for each call, so that it asks for no types.

    It takes the tensors of the call by slots, and what to use in place of those that are the same in all calls, by
    their ids.
    """
    kind = type(tree)
    if kind is Slot:
        position = tree.number
        return lambda tensors, _: tensors[position]
    if kind is Own:
        tensor = tree.tensor
        return lambda _, instead: instead.get(id(tensor), tensor)
    if kind is Extent:
        slot, axis = tree.role
        return lambda tensors, _: tensors[slot].shape[axis]
    if _is_constant(tree):
        return lambda *_: tree
    if kind in (tuple, list) and len(tree) > 1 and all(type(item) is Slot for item in tree):
        chosen = itemgetter(*[slot.number for slot in tree])
        return lambda tensors, _: kind(chosen(tensors))
    if kind is dict:
        values = filler(tuple(tree.values()))
        return lambda tensors, instead: dict(zip(tree, values(tensors, instead), strict=True))
    items = [tree.start, tree.stop, tree.step] if kind is slice else [*tree]
    varying = [(i, filler(item)) for i, item in enumerate(items) if not _is_constant(item)]
    as_one = kind is tuple or kind is list

    def fill(tensors: Sequence[Any], instead: Mapping[int, Tensor]) -> Any:
        made = items.copy()
        for i, part in varying:
            made[i] = part(tensors, instead)
        return kind(made) if as_one else kind(*made)

    return fill


def _is_constant(tree: Any) -> bool:
    """Returns whether a template is the same object in all calls; users may change lists and dictionaries."""
    kind = type(tree)
    if kind in (Slot, Own, Extent, list, dict):
        return False
    if kind is slice:
        return _is_constant((tree.start, tree.stop, tree.step))
    return all(map(_is_constant, tree)) if kind is tuple or hasattr(kind, "_fields") else True


def plain_sizes(tree: Any) -> Any:
    """Returns a structure with plain numbers in place of sizes."""
    kind = type(tree)
    if kind is Size:
        return number(tree)
    if kind is tuple or kind is list:
        return kind([plain_sizes(v) for v in tree])
    if kind is torch.Size:
        return torch.Size(map(number, tree))
    return {k: plain_sizes(v) for k, v in tree.items()} if kind is dict else tree


def hold(guards: Iterable[Guard], tensors: Sequence[Any]) -> bool:
    """Returns whether the sizes of ``tensors`` compare as the guards have noted."""
    for compare, (slot, axis), other, outcome in guards:
        size = tensors[slot].shape[axis]
        if type(other) is tuple:
            other = tensors[other[0]].shape[other[1]]
        if compare(size, other) is not outcome:
            return False
    return True
