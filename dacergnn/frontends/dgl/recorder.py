"""One recorded forward over DGL graphs: the edges of each index, and the recorder of this thread."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.dgl.edges import GraphEdges, Relation
from dacergnn.frontends.symbolic.edges import end_index
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.frontends.symbolic.value import Value

_INTEGERS = (torch.int32, torch.int64)
_local = threading.local()


class Recorder:
    """Holds the edges of the graphs of one call, by DGL's index of each graph."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.fills_zeros = False
        """Tells whether rows that no message reaches become zero, as in `update_all`, whatever the reduction."""
        self._relations: dict[tuple[int, Relation], GraphEdges] = {}
        self._indices: dict[int, tuple[Any, GraphEdges]] = {}  # holds the index, so that the id stays its own

    def relation(self, graph: Any, relation: Relation) -> GraphEdges:
        """Returns the edges of a relation of a user's graph."""
        key = (id(graph), relation)
        edges = self._relations.get(key)
        if edges is None:
            edges = self._relations[key] = GraphEdges(self.trace, graph, relation)
        return edges

    def register(self, index: Any, edges: GraphEdges) -> None:
        """Notes that a DGL index holds these edges."""
        self._indices[id(index)] = (index, edges)

    def edges(self, index: Any) -> GraphEdges | None:
        """Returns the edges of a DGL index; None for a graph that was made during the call."""
        entry = self._indices.get(id(index))
        return None if entry is None else entry[1]

    @property
    def only(self) -> GraphEdges | None:
        """Returns the edges of the call, if they are all of one relation."""
        return next(iter(self._relations.values())) if len(self._relations) == 1 else None

    def value(self, data: Any) -> Value:
        """Returns a tensor as a recorded value."""
        return data if type(data) is Value else self.trace.value(data)

    def column(self, data: Any, edges: GraphEdges | None, side: str) -> Any:
        """Returns a column of a frame: numbers as recorded values, integers as possible types of edges or nodes."""
        if type(data) is not Tensor and type(data) is not torch.nn.Parameter:
            return data
        if data.dim() and self.trace.takes(data.dtype, data.device):
            return self.trace.value(data)
        if data.dtype in _INTEGERS and data.dim() == 1 and edges is not None:
            return end_index(edges, side, data)
        return data

    @contextmanager
    def active(self) -> Generator[None]:
        """Records functions of DGL on this thread while it is active."""
        before = recording()
        _local.recorder = self
        try:
            yield
        finally:
            _local.recorder = before


def recording() -> Recorder | None:
    """Returns the recorder of this thread, if it records."""
    return getattr(_local, "recorder", None)
