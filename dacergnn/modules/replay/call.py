"""The arguments of a call, and when two calls are alike."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.frontends.dgl.stand_in import is_graph_class
from dacergnn.graph import HeteroGraph

SIMPLE = (type(None), bool, int, float, str, torch.dtype)
_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_is_graph = lru_cache(maxsize=64)(is_graph_class)


class Call:
    """The arguments of a call: what they look like, and the tensors and graphs among them.

    ``form`` is equal for calls of the same structure and the same numbers, whose tensors have the same types, shapes
    and so on; ``same`` are the objects that have to be the very same besides: graphs, and tensors of integers.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.same: list[Any] = []
        self.form: list[Any] = [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
                                torch.are_deterministic_algorithms_enabled()]  # fmt: skip
        self._add(args)
        if kwargs:
            self._add(kwargs)
        ids = [*map(id, self.tensors)]
        self.form += map(ids.index, ids)
        self.ids = ids

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """None for a call that is not like any other, or under a mode of torch."""
        if _C._len_torch_function_stack() or _C._len_torch_dispatch_stack() or _C._get_tracing_state():
            return None
        if _C._functorch.peek_interpreter_stack() is not None:
            return None
        try:
            return cls(args, kwargs)
        except (TypeError, RuntimeError):
            return None

    def _add(self, value: Any) -> None:
        kind, form = type(value), self.form
        if kind is Tensor or kind is nn.Parameter:
            self.tensors.append(value)
            if value.is_floating_point():
                form += (kind, value.dtype, value.shape, value.stride(), value.requires_grad, value.device)
            elif value.__dict__:
                raise TypeError
            else:
                form += (kind, value._version)
                self.same.append(value)
        elif kind in SIMPLE:
            form.append(repr(value))  # tells 1 from True, and 0.0 from -0.0
        elif kind is tuple or kind is list:
            form += (kind, len(value))
            for item in value:
                self._add(item)
        elif kind is dict:
            form += (kind, tuple(value))
            for item in value.values():
                self._add(item)
        elif kind is HeteroGraph or _is_graph(kind):
            form.append(kind)
            self.same.append(value)
        else:
            raise TypeError

    @property
    def graphs(self) -> list[Any]:
        """Graphs of DGL."""
        return [v for v in self.same if not isinstance(v, Tensor | HeteroGraph)]
