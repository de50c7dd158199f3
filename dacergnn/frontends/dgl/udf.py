"""User-defined message and reduce functions, called once for all edges or nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from torch import Tensor

from dacergnn.frontends.dgl.edges import GraphEdges
from dacergnn.frontends.dgl.mailbox import Mailbox, at_reached
from dacergnn.frontends.dgl.operators import end_values, in_dgl, unsupported
from dacergnn.frontends.dgl.recorder import Recorder


class EndData(Mapping[str, Any]):
    """Holds the data of the nodes at one end of all edges."""

    def __init__(self, recorder: Recorder, edges: GraphEdges, side: str, frame: Mapping[str, Any]) -> None:
        self._recorder, self._edges, self._side, self._frame = recorder, edges, side, frame

    def __getitem__(self, key: str) -> Any:
        data = self._frame[key]
        if isinstance(data, Tensor) and data.is_floating_point():
            return end_values(self._recorder, self._edges, self._side, data)
        ends = self._edges.graph.edges(etype=self._edges.relation, order="eid")
        return self._recorder.trace.results(data)[ends[self._side == "dst"].long()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame)

    def __len__(self) -> int:
        return len(self._frame)


def edge_function(
    recorder: Recorder, original: Any, graph: Any, eid: Any, etype: Any, func: Any, *, orig_eid: Any = None
) -> Any:
    """Calls a message function for all edges of a relation, and returns its results."""
    edges = recorder.edges(graph._graph)
    if edges is None or not isinstance(eid, str):  # "__ALL__"
        raise unsupported("a function over some edges, or over a graph that was made in forward,")
    source, destination = graph._graph.metagraph.find_edge(graph.get_etype_id(etype))
    frames = graph._node_frames
    batch = import_module("dgl.udf").EdgeBatch(
        graph, range(edges.count), etype, EndData(recorder, edges, "src", frames[source]),
        graph._edge_frames[graph.get_etype_id(etype)], EndData(recorder, edges, "dst", frames[destination]),
    )  # fmt: skip
    return func(batch)


def reduce_function(
    recorder: Recorder, original: Any, graph: Any, func: Any, msgdata: Any, *, orig_nid: Any = None
) -> Any:
    """Calls a reduce function for all destinations, and returns its results."""
    edges = recorder.edges(graph._graph)
    if edges is None:
        return in_dgl(recorder, original, graph, func, msgdata)
    kind = graph.dsttypes[0]
    data = graph._node_frames[graph.get_ntype_id_from_dst(kind)]
    messages = {k: Mailbox(recorder, edges, recorder.value(v)) for k, v in msgdata.items()}
    count = edges.rows["dst"] or 0
    results = func(import_module("dgl.udf").NodeBatch(graph, range(count), kind, data, msgs=messages))
    return {k: at_reached(recorder, edges, v) for k, v in results.items()}
