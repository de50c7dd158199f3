"""A call that looks like the one before it is about the same graph: it is bound without being examined again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dacergnn.frontends import Binding
from dacergnn.graph import HeteroGraph

_Seen = tuple[type, Any, object, object, int]
"""Type of a tensor; shape, dtype and layout of features; or weak reference, None, None and version of others."""


@dataclass(frozen=True)
class Repeated:
    """How the arguments of a call looked, and how to bind such arguments; keeps none of their tensors alive."""

    form: list[object]
    seen: list[_Seen]
    graph: HeteroGraph
    bind: Callable[..., Binding]

    @classmethod
    def of(
        cls, graph: HeteroGraph, bind: Callable[..., Binding], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Repeated | None:
        """From a call about ``graph``; None if one cannot tell that another is like it."""
        form, values = _spread(args, kwargs)
        if not all(isinstance(v, Tensor) for v in values):
            return None
        seen: list[_Seen] = []
        for value in values:
            if value.is_floating_point():
                seen.append((type(value), value.shape, value.dtype, value.layout, 0))
            elif value.is_inference():  # counts no versions
                return None
            else:
                seen.append((type(value), weakref.ref(value), None, None, value._version))
        return cls(form, seen, graph, bind)

    def covers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether features have the types and shapes they had, and all other tensors are the same, unwritten."""
        form, values = _spread(args, kwargs)
        if form != self.form:
            return False
        for value, (kind, what, dtype, layout, version) in zip(values, self.seen, strict=True):
            if type(value) is not kind:
                return False
            if dtype is None:
                if what() is not value or value._version != version:
                    return False
            elif value.shape != what or value.dtype is not dtype or value.layout is not layout:
                return False
        return True


def _spread(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[object], list[Any]]:
    """Where the arguments and the items of dictionaries among them stand, and what they are."""
    form: list[object] = []
    values: list[Any] = []
    for value in (*args, kwargs):
        if type(value) is dict:
            form.append(tuple(value))
            values += value.values()
        else:
            form.append(None)
            values.append(value)
    return form, values
