"""Parts of a model that are called as they are, since torch does not look into them, or finds more than rows there."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from dacergnn.errors import UnsupportedLayerError
from dacergnn.frontends.pyg.message_passing import is_message_passing
from dacergnn.modules.layer import CompiledLayer, core_of


class Part(nn.Module):
    """Stands for a part while torch captures a model: a call of it is one operation.

    Args:
        function: The part.
        name: Its name in messages.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__()
        self._held = (function,)  # in a tuple, so that it is no module of this one
        self.name = name
        self.problem: Exception | None = None
        """Tells what a call with few rows has raised."""
        self.keys: tuple[Any, ...] | None = None
        """Tells the keys of the results; None for a single one."""
        self.number = secrets.randbits(62)
        _PARTS[self.number] = self

    @property
    def function(self) -> Any:
        """Returns the part."""
        return self._held[0]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        results = run_part(self.number, args, kwargs)
        keys = _keys(self.number)
        return results[0] if keys is None else dict(zip(keys, results, strict=True))

    def results(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
        """Returns the results of a call, in the order of their keys.

        Raises:
            UnsupportedLayerError: A result is no tensor.
        """
        return self._tensors(self.function(*args, **kwargs))

    def _tensors(self, result: Any) -> tuple[Tensor, ...]:
        found = [result] if self.keys is None else [result.get(key) for key in self.keys]
        for rows in found:
            if not isinstance(rows, Tensor) or not rows.dim():
                remedy = "give layers that return rows of nodes, or a dictionary of these by node type"
                raise UnsupportedLayerError("result", type(rows).__name__, remedy, self.name)
        return (*found,)

    def described(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
        """Returns what the results of a call look like, by a call with few rows of ones and edges of zeros."""
        sizes = _Sizes(t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor))
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            few = tree_map(lambda t: sizes.sample(t) if isinstance(t, Tensor) else t, (args, kwargs))
            function = self.function
            if isinstance(function, CompiledLayer):  # whose programs make choices for the graph of their first call
                function = core_of(function).runner.uncompiled
            try:
                result = function(*few[0], **few[1])
            except Exception as problem:
                self.problem = problem
                raise
        self.keys = (*[k for k, rows in result.items() if rows is not None],) if isinstance(result, Mapping) else None
        like = next(t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor))
        return tuple([like.new_empty(sizes.of(t.shape), dtype=t.dtype) for t in self._tensors(result)])


_CHILDREN = "_modules"
"""The name of the dictionary of a module's children."""
_PARTS: weakref.WeakValueDictionary[int, Part] = weakref.WeakValueDictionary()


def run_part(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
    """Returns the results of a part, or what these look like while torch captures it."""
    part = _PARTS[number]
    is_fake = any(hasattr(value, "fake_mode") for value in tree_leaves((args, kwargs)))
    return part.described(args, kwargs) if is_fake else part.results(args, kwargs)


def part_of(number: int) -> Part:
    """Returns the part with this number."""
    return _PARTS[number]


def _keys(number: int) -> tuple[Any, ...] | None:
    return _PARTS[number].keys


_keys.__dict__["_dynamo_marked_constant"] = True  # so that torch calls it while it captures


class _Sizes:
    """Gives each size of some tensors that varies a small number that no other one has."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._known: dict[Any, int] = {}
        """The numbers of symbols."""
        self._sizes: dict[int, torch.SymInt] = {}
        """The first size of each number."""
        for size in (s for tensor in tensors for s in tensor.shape if isinstance(s, torch.SymInt)):
            self._sizes.setdefault(self._number(size), size)

    def _number(self, size: torch.SymInt) -> int:
        symbols: Any = size.node.expr.free_symbols
        for symbol in sorted(symbols, key=str):
            group = _group(symbol, size.node.shape_env)
            self._known.setdefault(group, 101 + 2 * len(self._known))
        return int(size.node.expr.xreplace({s: self._known[_group(s, size.node.shape_env)] for s in symbols}))

    def sample(self, tensor: Tensor) -> Tensor:
        """Returns a small tensor in place of another one."""
        shape = [self._number(size) if isinstance(size, torch.SymInt) else size for size in tensor.shape]
        make = torch.ones if tensor.is_floating_point() else torch.zeros
        return make(shape, dtype=tensor.dtype, device=tensor.device)

    def of(self, shape: Iterable[int]) -> list[Any]:
        """Returns the shape that a result has, by that of a small one."""
        rows, *others = shape
        return [self._sizes.get(rows, rows), *others]


def _group(symbol: Any, environment: Any) -> Any:
    """Returns what a size counts, as the name of an argument says; arrays of the same nodes have sizes of their own."""
    name: Any = environment.var_to_sources[symbol][0].name if symbol in environment.var_to_sources else symbol
    text = str(name() if callable(name) else name)
    return text.partition(" of ")[2].partition("']")[0] or text


def parts_among(functions: Iterable[Any], chosen: Callable[[nn.Module], bool]) -> dict[int, Part]:
    """Returns a part for each chosen module, by its identity; modules within these have none."""
    found: dict[int, Part] = {}
    open_modules = [function for function in functions if isinstance(function, nn.Module)]
    while open_modules:
        module = open_modules.pop()
        if chosen(module):
            found.setdefault(id(module), Part(module, type(module).__name__))
        else:
            open_modules += module.children()
    return found


def is_operation(module: nn.Module) -> bool:
    """Returns whether torch sees a module as one operation: a compiled layer that is not as well written in Python."""
    return isinstance(module, CompiledLayer) and (f := core_of(module).frontend) is not None and not f.inlined


def is_layer(module: nn.Module) -> bool:
    """Returns whether a module is a layer of a graph library, or one that is compiled."""
    return is_operation(module) or is_message_passing(module)


@contextmanager
def standing_in(functions: Iterable[Any], others: Mapping[int, nn.Module]) -> Generator[None]:
    """Has other modules stand for those within functions, by the identity of these."""
    modules = dict.fromkeys(m for function in functions if isinstance(function, nn.Module) for m in function.modules())
    children: list[tuple[dict[str, Any], str, nn.Module]] = []
    for inside in ({id(d): d for module in modules if (d := vars(module)[_CHILDREN])}).values():  # layers may share it
        children += [(inside, name, child) for name, child in inside.items() if id(child) in others]
    try:
        for inside, name, child in children:
            inside[name] = others[id(child)]
        yield
    finally:
        for inside, name, child in children:
            inside[name] = child
