"""Keeps what modules hold through a call that should leave no trace in them."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dacergnn.errors import DacergnnError
from dacergnn.frontends.symbolic.expr import version
from dacergnn.modules.replay.reach import FORWARDS
from dacergnn.modules.replay.user_code import is_user, named_by, user_functions

_LARGE = 1 << 26
"""Bytes of a parameter of which no copy is made, as tables of embeddings have: 64 MiB. Few forwards write to one."""
_SEQUENCES = (list, deque)
_TABLES = (dict, OrderedDict)


class Contents:
    """Holds what a tree of modules holds at one moment: attributes, what is in containers, and the numbers of tensors.

    It holds the states of the random numbers of Python and NumPy as well, and of generators that modules have.

    Containers are lists, dictionaries and sets that attributes of the modules lead to, also by objects of users'
    classes, or that the code of users' classes names.

    Args:
        arguments: Tensors that a call of the module may add hooks to.
    """

    def __init__(self, module: nn.Module, arguments: Sequence[Tensor] = ()) -> None:
        self._module = module
        lazy = any(map(is_lazy, module.parameters()))  # what the first call makes of its parameters has to stay
        containers = [] if lazy else _containers(module)
        items = [*chain.from_iterable(held.values() if isinstance(held, _TABLES) else held for held in containers)]
        tensors = [*{id(t): t for t in items if isinstance(t, Tensor) and not t.is_meta}.values()]
        hooks = [t._backward_hooks for t in (*tensors, *arguments)]
        self._contents = [(held, held.copy()) for held in (*containers, *hooks) if held is not None]
        self._unhooked = [t for t, known in zip((*tensors, *arguments), hooks, strict=True) if known is None]
        large = [t for t in tensors if isinstance(t, nn.Parameter) and t.nbytes >= _LARGE]
        self._versions = [(t, version(t)) for t in large]
        self._numbers = [(t, t.detach().clone()) for t in tensors if not any(t is other for other in large)]
        self._generators = [(g, g.get_state()) for g in items if isinstance(g, torch.Generator)]
        self._random = random.getstate(), np.random.get_state()  # noqa: NPY002  users' code may draw from it

    @torch.no_grad()
    def restore(self) -> None:
        """Gives back what has changed; a backward may need other tensors unwritten.

        Raises:
            DacergnnError: A parameter of which there is no copy was written to.
        """
        for held, before in self._contents:
            if not _same(held, before):
                held.clear()
                (held.extend if isinstance(held, _SEQUENCES) else held.update)(before)
        for generator, state in self._generators:
            generator.set_state(state)
        random.setstate(self._random[0])
        np.random.set_state(self._random[1])  # noqa: NPY002
        for tensor in self._unhooked:
            if tensor._backward_hooks:
                tensor._backward_hooks.clear()
        for tensor, numbers in self._numbers:
            if not torch.equal(tensor, numbers):
                tensor.copy_(numbers)
        for tensor, before in self._versions:
            if version(tensor) != before:
                raise DacergnnError(
                    f"{type(self._module).__name__} has written to its parameter {list(tensor.shape)} in a call that "
                    "cannot be compiled, or in a warm-up. Its former numbers are lost, since it is too large for a "
                    "copy; load them again, and leave this module out of what is optimized."
                )

    def replace(self, replaced: Callable[[Any], Any]) -> None:
        """Puts other objects in the places of those that containers hold now."""
        for held in _containers(self._module):
            places = range(len(held)) if isinstance(held, _SEQUENCES) else [*held] if isinstance(held, _TABLES) else ()
            for place in places:
                value: Any = replaced(held[place])
                if value is not held[place]:
                    held[place] = value


@contextmanager
def contents_kept(module: nn.Module) -> Generator[None]:
    """Restores what a module holds at the end of the context."""
    contents = Contents(module)
    try:
        yield
    finally:
        contents.restore()


def _same(held: Any, before: Any) -> bool:
    if len(held) != len(before):
        return False
    if isinstance(held, _TABLES):
        return all(key in before and before[key] is value for key, value in held.items())
    return held == before if isinstance(held, set) else all(map(_is, held, before))


def _is(a: object, b: object) -> bool:
    return a is b


def _containers(module: nn.Module) -> list[Any]:
    """Returns the containers that a tree of modules leads to."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [vars(part) for part in module.modules()]
    waiting += [value for function in user_functions(module) for value in named_by(function)]
    while waiting:
        value = waiting.pop()
        if id(value) in found:
            continue
        if type(value) in _TABLES:
            found[id(value)] = value
            waiting += [v for key, v in value.items() if key != FORWARDS]
        elif type(value) in (*_SEQUENCES, set):
            found[id(value)] = value
            waiting += value
        elif type(value) is tuple:
            waiting += value
        elif is_user(type(value).__module__) and not isinstance(value, nn.Module | Tensor | type):
            waiting.append(getattr(value, "__dict__", None))
    return [*found.values()]
