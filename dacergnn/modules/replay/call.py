"""The arguments of a call, and when two calls are alike."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.frontends.dgl.stand_in import is_graph_class
from dacergnn.graph import HeteroGraph
from dacergnn.modules.replay.snapshot import forms

SIMPLE = frozenset((type(None), bool, int, float, str, torch.dtype))
_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_functions, _dispatches = _C._len_torch_function_stack, _C._len_torch_dispatch_stack
_tracing, _transforms = _C._get_tracing_state, _C._functorch.peek_interpreter_stack
_STATE = (torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype,
          _C._get_deterministic_algorithms)  # fmt: skip
_is_graph = lru_cache(maxsize=64)(is_graph_class)


class Call:
    """The arguments of a call: what they look like, and the tensors and graphs among them.

    ``outline`` is equal for calls of the same structure and the same numbers; ``tensors`` have to look alike besides.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.graphs: list[Any] = []
        self.outline: list[Any] = [state() for state in _STATE]
        self._add(args)
        if kwargs:
            self._add(kwargs)
        ids = [*map(id, self.tensors)]
        self.outline += map(ids.index, ids)
        self.ids = ids

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """None for a call that is not like any other, or under a mode of torch."""
        if _functions() or _dispatches() or _tracing() is not None or _transforms() is not None:
            return None
        try:
            return cls(args, kwargs)
        except TypeError:
            return None

    def _add(self, value: Any) -> None:
        kind, outline = type(value), self.outline
        if kind is Tensor or kind is nn.Parameter:
            self.tensors.append(value)
            outline.append(kind)
        elif kind in SIMPLE:
            outline.append(repr(value))  # tells 1 from True, and 0.0 from -0.0
        elif kind is tuple or kind is list:
            outline += (kind, len(value))
            for item in value:
                self._add(item)
        elif kind is dict:
            outline += (kind, tuple(value))
            for item in value.values():
                self._add(item)
        elif kind is HeteroGraph or _is_graph(kind):
            outline.append(kind)
            self.graphs.append(value)
        else:
            raise TypeError

    @property
    def comparable(self) -> bool:
        """Whether torch tells what the tensors look like, and those of integers hold nothing else."""
        try:
            return bool(self.form) and not any(vars(self.tensors[i]) for i in self.integers)
        except RuntimeError:  # of a sparse tensor, say
            return False

    @cached_property
    def form(self) -> list[Any]:
        """Equal for calls that are alike; only of calls that are comparable."""
        return [*self.outline, *forms(self.tensors)]

    @cached_property
    def integers(self) -> list[int]:
        """Positions of tensors that hold no floating-point numbers."""
        return [i for i, t in enumerate(self.tensors) if not t.is_floating_point()]

    @property
    def same(self) -> list[Any]:
        """What has to be the very same in calls that are alike: tensors of integers, and graphs."""
        return self.pick(self.integers)

    def pick(self, integers: list[int]) -> list[Any]:
        """That, given the positions of those tensors."""
        return [*[self.tensors[i] for i in integers], *self.graphs]
