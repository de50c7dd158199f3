"""Tells when two calls are so alike that what was made for one serves the other.

They are if they have the same structure and numbers, features that look alike, and the same edge tensors with the same
contents. Everything that remembers calls uses this test: repeated calls of layers with front ends, and CUDA graphs.
"""

from __future__ import annotations

import struct
import weakref
from array import array
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.config import CheckGraph
from dacergnn.frontends.dgl.graph_classes import is_graph_class
from dacergnn.graph import HeteroGraph
from dacergnn.modules.known_edges import Watched
from dacergnn.native import calls
from dacergnn.native.exchange import DESCRIBE
from dacergnn.runtime.edge_changes import is_compared

SIMPLE = frozenset((type(None), bool, int, float, str, torch.dtype))
_NAMES = ("requires_grad", "_version")
_FEATURES, _EDGES, _SAME, _EQUAL, _REAL, _TUPLE, _LIST, _DICTIONARY = range(8)
"""Values of `Argument` in the C++ code."""
_FLOATS = frozenset((torch.float64, torch.float32, torch.float16, torch.bfloat16))
_CONTAINERS: dict[type[Any], int] = {tuple: _TUPLE, list: _LIST, dict: _DICTIONARY}
_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_functions, _dispatches = _C._len_torch_function_stack, _C._len_torch_dispatch_stack
_tracing, _transforms = _C._get_tracing_state, _C._functorch.peek_interpreter_stack
_STATE = (torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype,
          _C._get_deterministic_algorithms)  # fmt: skip
_is_graph = lru_cache(maxsize=64)(is_graph_class)


class CallSignature:
    """Describes what the arguments of a call look like; it keeps no tensor and no graph alive.

    Args:
        args: Tensors, graphs, simple values, and tuples, lists and dictionaries of them.
        kwargs: Likewise.
        check: Whether the numbers of edges are compared (`Config.check_graph`).
        compared: Positions, among the `leaves`, of floating-point tensors whose numbers are compared like edges. Others
            only have to look alike.

    Raises:
        TypeError: A value is of a kind that cannot be compared, or torch does not tell how a tensor looks.
    """

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        check: CheckGraph,
        compared: frozenset[int] = frozenset(),
    ) -> None:
        if DESCRIBE is None:
            raise TypeError("this version of torch does not describe tensors to C code")
        self._check: CheckGraph = check
        self._compared = compared
        self._words = array("q", [1, DESCRIBE, *map(id, _NAMES)])
        self._kept: list[Any] = []  # so that no other objects get their ids
        self._references: list[weakref.ref[Any]] = []
        self._kinds: list[int] = []
        self._watched_places: list[int] = []
        watched: list[Any] = []
        self._add(args, watched)
        self._add(kwargs, watched)
        self._watched = Watched(watched, check) if watched else None
        self.state = [state() for state in _STATE]
        """The settings of torch: gradients, inference mode, default type, deterministic algorithms."""
        self._address = self._words.buffer_info()[0]
        self._same = calls.function("same_call")
        leaves = self._same(args, kwargs, self._address, True)
        if not isinstance(leaves, list):
            raise TypeError("torch does not tell how a tensor looks")
        self.features = [i for i, kind in enumerate(self._kinds) if kind == _FEATURES]
        """Positions, among the leaves, of tensors whose numbers do not matter."""

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any], check: CheckGraph) -> CallSignature | None:
        """Returns the signature of a call; None where there is none."""
        try:
            return cls(args, kwargs, check)
        except (TypeError, RuntimeError):
            return None

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the tensors and graphs among the arguments of a call that is like this one; None for another."""
        leaves = self._same(args, kwargs, self._address, False)
        if leaves is False or [state() for state in _STATE] != self.state:
            return None
        watched = self._watched
        if watched is not None and not watched.same([leaves[i] for i in self._watched_places]):
            return None
        return leaves

    def _add(self, value: Any, watched: list[Any]) -> None:
        kind: type[Any] = type(value)
        if isinstance(value, Tensor):
            self._add_tensor(value, watched)
        elif kind is HeteroGraph or _is_graph(kind):
            self._words.extend((_SAME, self._lasts(value)))
            if kind is not HeteroGraph:
                self._watched_places.append(len(self._kinds))
                watched.append(value)
            self._kinds.append(_SAME)
        elif kind in _CONTAINERS:
            self._words.extend((_CONTAINERS[kind], id(kind), len(value)))
            for item in value:
                if kind is dict:
                    self._words.append(self._keep(item))
                self._add(value[item] if kind is dict else item, watched)
        elif kind is float:
            self._words.extend((_REAL, id(float), *struct.unpack("q", struct.pack("d", value))))
        elif kind in SIMPLE:
            self._words.extend((_EQUAL, id(kind), self._keep(value)))
        else:
            raise TypeError(f"{kind.__name__} is no argument that can be compared")

    def _add_tensor(self, tensor: Tensor, watched: list[Any]) -> None:
        place, kind = len(self._kinds), type(tensor)
        plain = (kind is Tensor or kind is nn.Parameter) and tensor.layout is torch.strided
        numbers = [0] * (8 + 2 * tensor.dim())
        if plain and tensor.dtype in _FLOATS and place not in self._compared:
            self._words.extend((_FEATURES, id(kind), *numbers))
            self._kinds.append(_FEATURES)
        elif plain:
            compared = is_compared(tensor, self._check)
            self._words.extend((_EDGES, self._lasts(tensor), 0, compared, *[0] * (5 + 2 * tensor.dim() + compared)))
            self._kinds.append(_EDGES)
        elif kind is Tensor or kind is nn.Parameter or hasattr(tensor, "as_tensor"):  # sparse, or an index of PyG
            self._words.extend((_SAME, self._lasts(tensor)))
            self._watched_places.append(place)
            watched.append(tensor)
            self._kinds.append(_SAME)
        else:
            raise TypeError(f"{kind.__name__} is a tensor of another kind")

    def _keep(self, value: Any) -> int:
        self._kept.append(value)
        return id(value)

    def _lasts(self, value: Any) -> int:
        """Returns the id of an object; when the object is freed, this signature no longer covers any call."""
        words = self._words
        self._references.append(weakref.ref(value, lambda _: words.__setitem__(0, 0)))
        return id(value)


def is_modified() -> bool:
    """Returns whether a mode or a transformation of torch sees what a call does, so that the call is like no other."""
    return bool(_functions() or _dispatches()) or _tracing() is not None or _transforms() is not None
