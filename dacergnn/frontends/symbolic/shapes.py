"""Shapes of results, as torch finds them on meta tensors; kept by function, shapes and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType, NoneType
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.sizes import Size, number

_KEPT = 8192
_PLAIN = frozenset(
    (int, float, bool, str, NoneType, EllipsisType, torch.dtype, torch.device, torch.memory_format, torch.layout)
)
_known: dict[object, Any] = {}


def result_shape(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns shape and dtype of the result, a list of them for several results; raises the errors of torch."""
    try:
        key = (func, _key(args), _key(tuple(kwargs.items())) if kwargs else ())
        shape_and_dtype = _known.get(key)
    except _NoKey:
        key = shape_and_dtype = None
    if shape_and_dtype is None:
        result = func(*_meta(args), **{k: _meta(v) for k, v in kwargs.items()})
        several = isinstance(result, tuple | list)
        shape_and_dtype = [(r.shape, r.dtype) for r in result] if several else (result.shape, result.dtype)
        if key is not None:
            if len(_known) >= _KEPT:
                _known.clear()
            _known[key] = shape_and_dtype
    return shape_and_dtype


def known_sizes(args: Iterable[Any], kwargs: Mapping[str, Any], values: Sequence[Tensor]) -> list[Size]:
    """Returns the sizes among the arguments of a function, and the numbers of rows of its values."""
    sizes: list[Any] = [v.shape[0] for v in values if v.dim()]
    waiting = [*args, *kwargs.values()]
    while waiting:
        item = waiting.pop()
        if type(item) is Size:
            sizes.append(item)
        elif type(item) in (tuple, list, torch.Size):
            waiting += item
    return [size for size in sizes if type(size) is Size]


def with_rows(shape: torch.Size, known: Sequence[Size]) -> torch.Size:
    """Returns a shape with the known size that equals its number of rows in place of that number, if there is one."""
    rows = next((size for size in known if len(shape) and number(size) == shape[0]), None)
    if rows is None or not all(rows == size for size in known if number(size) == number(rows)):
        return shape
    return torch.Size((rows, *shape[1:]))


class _NoKey(Exception):
    pass


def _key(value: Any) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind is Size:
        return (int, number(value))
    if isinstance(value, Tensor):
        return (*map(number, value.shape), value.dtype)
    if kind in (tuple, list, torch.Size):
        return (kind, *[_key(v) for v in value])
    if kind is slice:
        return (slice, _key(value.start), _key(value.stop), _key(value.step))
    raise _NoKey


def _meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if type(value) is torch.device:  # meta tensors hold no numbers that could be moved
        return torch.device("meta")
    if type(value) in (tuple, list):
        return type(value)([_meta(v) for v in value])
    return value
