"""Describes a module apart from its numbers: its options, hooks, submodules and the shapes of its parameters.

Every call checks whether the module has changed. C code compares objects by identity. If one differs, a slower check
tells whether it matters: a new parameter of the same shape, or a tensor that a hook makes at every call, does not.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dacergnn.errors import UnsupportedMachineError
from dacergnn.frontends.frontend import helpers, methods
from dacergnn.modules.snapshot import Snapshot

_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_TRACKED = ("_parameters", "_buffers", "_modules")
_AT_EVERY_CALL = ("training",)
"""Attributes that front ends read at every call."""
_ASIDE = ("_state_dict", "_load_state_dict", "_non_persistent", "_with_kwargs", "_always_called")
"""Parts of the names of dictionaries that no call depends on, or that change only together with others."""


class ModuleState:
    """Describes the state of some modules, and of those within them, at one moment."""

    def __init__(self, *modules: nn.Module) -> None:
        self._modules = [m for top in modules for m in top.modules()]
        self._tensors: list[Tensor] = []
        self._outline = [_outline(m, self._tensors) for m in self._modules]
        self.training = bytes(m.training for m in self._modules)
        """Holds a byte for each module, also within others: 1 if it is in training."""
        self._snapshot: Snapshot | None = None
        self.check: tuple[Callable[[int], bool], int] = (_unknown, 0)
        """A function and its argument; it returns whether every attribute is known to be the same object as before."""

    def watch(self) -> None:
        """Makes `check` compare with this moment, unless a parameter has no shape yet, since it gets one unnoticed."""
        parameters = [p for m in self._modules for p in vars(m)["_parameters"].values()]
        if any(p is not None and is_lazy(p) for p in parameters):
            return
        tables: list[Any] = []
        sequences: list[Any] = []
        for module in self._modules:
            _holders(vars(module), tables, sequences)
        classes = [*dict.fromkeys(c for m in self._modules for c in _classes(m))]
        tables += [vars(cls) for cls in classes]
        tables += [vars(sys.modules[name]) for name in dict.fromkeys(c.__module__ for c in classes if helpers(c))]
        with suppress(UnsupportedMachineError):  # the slower check does without a compiler
            self._snapshot = Snapshot(tables=tables, sequences=sequences, objects=self._modules)
            self.check = self._snapshot.check

    def same(self, other: ModuleState) -> bool:
        """Returns whether a module in both states has equal options, the same hooks, and parameters of equal shapes."""
        return self._outline == other._outline

    def same_tensors(self, other: ModuleState) -> bool:
        """Returns whether the modules hold the same tensor objects in both states, apart from parameters."""
        pairs = zip(self._tensors, other._tensors, strict=False)
        return len(self._tensors) == len(other._tensors) and all(a is b for a, b in pairs)


def _unknown(_: int) -> bool:
    return False


class _Is:
    """Wraps an object that equals itself alone, and keeps it alive so that no other object gets its id."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Is) and self.value is other.value

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def _outline(module: nn.Module, tensors: list[Tensor]) -> list[Any]:
    """Returns the comparable parts of a module, and adds its tensors apart from parameters to ``tensors``."""
    own = vars(module)
    parameters = [(name, _shape(p)) for name, p in own["_parameters"].items()]
    children = [(name, _Is(m)) for name, m in own["_modules"].items()]
    skipped = (*_TRACKED, *_AT_EVERY_CALL)
    tensors += [buffer for buffer in own["_buffers"].values() if buffer is not None]
    others = [(name, _frozen(value, tensors)) for name, value in own.items() if name not in skipped]
    code = [(name, _Is(f)) for cls in _classes(module) for name, f in (*methods(cls), *helpers(cls))]
    return [_Is(type(module)), code, parameters, [*own["_buffers"]], children, others]


def _classes(module: nn.Module) -> Sequence[type]:
    """Returns the classes whose methods a module runs, up to that of all modules."""
    classes = type(module).__mro__
    return classes[: classes.index(nn.Module)]


def _shape(parameter: Tensor | None) -> object:
    """Returns the shape of a parameter, which front ends read when they are made; its class if it has no shape."""
    if parameter is None or is_lazy(parameter):
        return type(parameter)
    return parameter.shape


def _frozen(value: Any, tensors: list[Tensor]) -> object:
    """Returns a form of an attribute's value that can be compared with its form at another moment."""
    kind: type[Any] = type(value)
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if kind in _SIMPLE:
        return kind, repr(value)  # as text, since NaN does not equal itself
    if kind in (dict, OrderedDict):
        return kind, [(_frozen(k, tensors), _frozen(v, tensors)) for k, v in value.items()]
    if kind in (list, tuple):
        return kind, [_frozen(v, tensors) for v in value]
    return _Is(value)


def _holders(table: dict[Any, Any], tables: list[Any], sequences: list[Any]) -> None:
    """Collects a dictionary, and the dictionaries, lists and sets in it."""
    tables.append(table)
    for name, value in table.items():
        kind = type(value)
        if isinstance(name, str) and any(part in name for part in _ASIDE):
            continue
        if kind in (dict, OrderedDict):
            _holders(value, tables, sequences)
        elif kind in (list, set):
            sequences.append(value)
