"""A call that looks like the one before it is about the same graph: it runs without being examined again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dacergnn.config import CheckGraph
from dacergnn.frontends import Binding
from dacergnn.frontends.frontend import Outputs
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.watched import Watched
from dacergnn.runtime.stacks import Stacks


@dataclass(frozen=True)
class Repeated:
    """How the arguments of a call looked, and what one like it runs (see `Binding`); keeps no tensor alive."""

    form: list[object]
    types: list[type]
    features: list[tuple[int, torch.Size, torch.dtype, torch.layout]]
    """Position among the tensors, and look."""
    others: list[int]
    """Positions of the other tensors."""
    watched: Watched
    """Those."""
    graph: HeteroGraph
    compiled: CompiledProgram
    again: Callable[..., list[Tensor]]
    stacks: Stacks | None
    finish: Callable[[Outputs], Any]

    @classmethod
    def of(
        cls,
        graph: HeteroGraph,
        compiled: CompiledProgram,
        binding: Binding,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        check: CheckGraph,
    ) -> Repeated | None:
        """From a call about ``graph``; None if one cannot tell that another is like it."""
        form, values = _spread(args, kwargs)
        if binding.again is None or not all(value is None or isinstance(value, Tensor) for value in values):
            return None
        features: list[tuple[int, torch.Size, torch.dtype, torch.layout]] = []
        others: list[int] = []
        for i, value in enumerate(values):
            if value is None:
                continue
            if value.is_floating_point() and value.layout is torch.strided:
                features.append((i, value.shape, value.dtype, value.layout))
            else:
                others.append(i)
        types, watched = [*map(type, values)], Watched([values[i] for i in others], check)
        made = graph, compiled, binding.again, binding.stacks, binding.finish
        return cls(form, types, features, others, watched, *made)

    def covers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether features have the types and shapes they had, and all other tensors are the same, unwritten."""
        form, values = _spread(args, kwargs)
        if form != self.form or [*map(type, values)] != self.types:
            return False
        if not self.watched.same([values[i] for i in self.others]):
            return False
        for i, shape, dtype, layout in self.features:
            value = values[i]
            if value.shape != shape or value.dtype is not dtype or value.layout is not layout:
                return False
        return True


def _spread(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[object], list[Any]]:
    """Where the arguments and the items of dictionaries and tuples among them stand, and what they are."""
    form: list[object] = []
    values: list[Any] = []
    for value in (*args, kwargs):
        if type(value) is dict:
            form.append(tuple(value))
            values += value.values()
        elif type(value) is tuple and not all(type(item) is int for item in value):
            form.append(len(value))
            values += value
        elif type(value) is tuple:
            form.append(value)
        else:
            form.append(None)
            values.append(value)
    return form, values
