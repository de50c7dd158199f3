"""Keeps what modules hold through a call that should leave no trace in them."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from dacergnn.errors import DacergnnError
from dacergnn.frontends.symbolic.expr import version
from dacergnn.modules.user_code import is_user, named_by, user_functions
from dacergnn.runtime.cuda_device import random_state, set_random_state
from dacergnn.runtime.transformed import is_fake

FORWARDS = "_compiled_forwards"
"""Name of the attribute that holds the compiled forwards of a module."""
_LARGE, _LARGE_ARGUMENT = 1 << 26, 1 << 16
"""Bytes of a parameter, and of an argument, of which no copy is made: 64 MiB and 64 KiB. Few forwards write to one.

All buffers are copied.
"""
_is_transformed: Any = torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
_SEQUENCES = (list, deque)
_TABLES = (dict, OrderedDict)


class Contents:
    """Holds what a tree of modules has at one moment: attributes, what is in containers, numbers of tensors and arrays.

    It holds the states of the random numbers of Python and NumPy as well, and of generators that modules have.

    Containers are lists, dictionaries and sets that attributes of the modules lead to, also by objects of users'
    classes, or that the code of users' classes names.

    Args:
        arguments: Tensors that a call of the module may write to, or add hooks to.
    """

    def __init__(self, module: nn.Module, arguments: Sequence[Tensor] = ()) -> None:
        self._module = module
        lazy = any(map(is_lazy, module.parameters()))  # what the first call makes of its parameters has to stay
        self._functions = user_functions(module)
        named = [] if lazy else self._named()
        containers = [] if lazy else _containers(module, named)
        held_items = chain.from_iterable(held.values() if isinstance(held, _TABLES) else held for held in containers)
        items = [*named, *held_items]
        tensors = [*{id(t): t for t in items if isinstance(t, Tensor)}.values()]
        hooks = [t._backward_hooks for t in (*tensors, *arguments)]
        self._contents = [(held, held.copy()) for held in (*containers, *hooks) if held is not None]
        self._unhooked = [t for t, known in zip((*tensors, *arguments), hooks, strict=True) if known is None]
        buffers = {*map(id, module.buffers())}
        large = [t for t in tensors if id(t) not in buffers and _bytes(t) >= _LARGE]
        large += [t for t in arguments if _bytes(t) >= _LARGE_ARGUMENT]
        self._large = [(t, version(t)) for t in large]
        small = [t for t in (*tensors, *arguments) if not any(t is other for other in large)]
        self._numbers = [(t, t.detach().clone()) for t in small if _has_numbers(t)]
        arrays = {id(a): a for a in items if isinstance(a, np.ndarray) and a.flags.writeable and a.nbytes < _LARGE}
        self._arrays = [(array, array.copy()) for array in arrays.values()]
        self._generators = [(g, g.get_state()) for g in items if isinstance(g, torch.Generator)]
        self._random = random.getstate(), np.random.get_state()  # noqa: NPY002  users' code may draw from it

    def _named(self) -> list[Any]:
        """Returns the global objects that users' code names."""
        return [value for function in self._functions for value in named_by(function)]

    @torch.no_grad()
    def restore(self) -> None:
        """Gives back what has changed; a backward may need other tensors unwritten.

        Raises:
            DacergnnError: A parameter or an argument of which there is no copy was written to.
        """
        for held, before in self._contents:
            if not _same(held, before):
                held.clear()
                (held.extend if isinstance(held, _SEQUENCES) else held.update)(before)
        for array, numbers in self._arrays:
            array[...] = numbers
        for generator, state in self._generators:
            generator.set_state(state)
        random.setstate(self._random[0])
        np.random.set_state(self._random[1])  # noqa: NPY002
        for tensor in self._unhooked:
            if tensor._backward_hooks:
                tensor._backward_hooks.clear()
        for tensor, numbers in self._numbers:
            if tensor.shape != numbers.shape:
                tensor.data = numbers.clone()
            elif not same_numbers(tensor, numbers):
                tensor.copy_(numbers)
        for tensor, before in self._large:
            if version(tensor) != before:
                raise DacergnnError(
                    f"{type(self._module).__name__} has written to a parameter or an argument {list(tensor.shape)} in "
                    "a call that cannot be compiled, or in a warm-up. Its former numbers are lost, since it is too "
                    "large for a copy; load them again, and leave this module out of what is optimized."
                )


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


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Returns whether tensors have the same numbers; NaN equals NaN."""
    a = a.detach()
    if a.shape != b.shape:
        return False
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _has_numbers(tensor: Tensor) -> bool:
    """Returns whether the numbers of a tensor can be looked at: not without memory, or within a transform."""
    return not (tensor.is_meta or is_fake() or _is_transformed(tensor))


def _bytes(tensor: Tensor) -> int:
    return tensor.nbytes if tensor.layout is torch.strided else _LARGE_ARGUMENT


def _is(a: object, b: object) -> bool:
    return a is b


def _containers(module: nn.Module, named: Sequence[Any]) -> list[Any]:
    """Returns the containers that a tree of modules, and what its code names, leads to."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [*[vars(part) for part in module.modules()], *named]
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


@contextmanager
def as_before(module: nn.Module, arguments: Any, failures: tuple[type[Exception], ...]) -> Generator[None]:
    """Restores what the module holds if a call fails, arguments and their hooks, random numbers, and torch's modes.

    Then the original can run it.
    """
    device = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    state, grad, dtype = random_state(device), torch.is_grad_enabled(), torch.get_default_dtype()
    before = Contents(module, [t for t in tree_leaves(arguments) if isinstance(t, Tensor)])
    try:
        yield
    except failures:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        set_random_state(device, state)
        before.restore()
        raise
