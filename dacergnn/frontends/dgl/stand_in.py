"""Stand-ins for DGL graphs: their own classes, over frames that hold recorded values."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from torch import Tensor

from dacergnn.frontends.dgl.edges import GraphEdges, Relation
from dacergnn.frontends.dgl.form import size
from dacergnn.frontends.dgl.hooks import install
from dacergnn.frontends.dgl.operators import unsupported
from dacergnn.frontends.dgl.recorder import Recorder
from dacergnn.frontends.dgl.relations import summed
from dacergnn.frontends.symbolic.callers import LIBRARIES
from dacergnn.frontends.symbolic.edges import unseen
from dacergnn.frontends.symbolic.sizes import unnoted
from dacergnn.runtime.cuda_device import random_state, set_random_state

_OF_FORM = frozenset((
    "apply_edges", "apply_nodes", "multi_update_all", "update_all", "local_scope", "local_var", "ndata", "edata",
    "srcdata", "dstdata", "nodes", "edges", "srcnodes", "dstnodes", "ntypes", "etypes", "srctypes", "dsttypes",
    "canonical_etypes", "to_canonical_etype", "get_etype_id", "get_ntype_id", "get_ntype_id_from_src",
    "get_ntype_id_from_dst", "device", "idtype", "is_block", "is_homogeneous", "is_unibipartite", "in_degrees",
    "out_degrees", "num_nodes", "num_src_nodes", "num_dst_nodes", "num_edges", "number_of_nodes",
    "number_of_src_nodes", "number_of_dst_nodes", "number_of_edges",
))  # fmt: skip
"""Attributes that depend on the form of a graph alone, or whose results a tape notes."""

_CHANGES = ("add_edges", "remove_edges", "add_nodes", "remove_nodes")
"""Methods that change the structure of the graph itself."""


class RecordsMessages:
    """Extends a class of DGL, as a mixin: relations know their edges, and data that are stored are recorded."""

    _recorder: Recorder
    _user_graph: Any

    def __getitem__(self, key: Any) -> Any:
        this: Any = super()
        subgraph = this.__getitem__(key)
        recorded(self._recorder, subgraph, self._user_graph)
        if len(subgraph.canonical_etypes) == 1 and subgraph.canonical_etypes[0] in self._user_graph.canonical_etypes:
            edges = self._recorder.relation(self._user_graph, subgraph.canonical_etypes[0])
            self._recorder.register(subgraph._graph, edges)
        return subgraph

    def _edges_of(self, relations: list[Any]) -> GraphEdges | None:
        if len(relations) != 1 or relations[0] not in self._user_graph.canonical_etypes:
            return None
        return self._recorder.relation(self._user_graph, relations[0])

    def _set_n_repr(self, ntid: int, u: Any, data: Any) -> None:
        this: Any = self
        edges = self._edges_of(this.canonical_etypes)
        typed = edges if edges is not None and this._graph.num_nodes(ntid) == edges.plain_sizes[0] else None
        parent: Any = super()
        columns = {k: self._recorder.column(v, typed, "ntype") for k, v in data.items()}
        with unnoted():
            parent._set_n_repr(ntid, u, columns)

    def _set_e_repr(self, etid: int, edges: Any, data: Any) -> None:
        this: Any = self
        of = self._edges_of([this.canonical_etypes[etid]])
        parent: Any = super()
        columns = {k: self._recorder.column(v, of, "etype") for k, v in data.items()}
        with unnoted():
            parent._set_e_repr(etid, edges, columns)

    def update_all(self, *args: Any, **kwargs: Any) -> None:
        before, self._recorder.fills_zeros = self._recorder.fills_zeros, True
        try:
            parent: Any = super()
            parent.update_all(*args, **kwargs)
        finally:
            self._recorder.fills_zeros = before

    def multi_update_all(self, etype_dict: Any, cross_reducer: Any, apply_node_func: Any = None) -> None:
        this: Any = self
        device = self._recorder.trace.device
        state = random_state(device)
        sums = self._together(etype_dict, cross_reducer)
        if sums is None:
            set_random_state(device, state)
            parent: Any = super()
            parent.multi_update_all(etype_dict, cross_reducer, apply_node_func)
            return
        for name, data in sums.items():
            this._set_n_repr(this.get_ntype_id_from_dst(name), "__ALL__", data)
            if apply_node_func is not None:
                this.apply_nodes(apply_node_func, ntype=name)

    def _together(self, functions: dict[Any, Any], across: Any) -> dict[str, dict[str, Tensor]] | None:
        """Returns sums by node type and name, made by one program for all relations; None where that is impossible."""
        this: Any = self
        plain = [f for f in functions.values() if type(f) is tuple and len(f) == 2]
        names = {getattr(f[1], "name", None) for f in plain}
        if across not in ("sum", "mean") or len(plain) != len(functions) or len(plain) < 2:
            return None
        if len(names) != 1 or not names <= {"sum", "mean"}:
            return None
        relations = [this.to_canonical_etype(r) for r in functions]
        if any(r not in self._user_graph.canonical_etypes for r in relations):
            return None
        core, fn = import_module("dgl.core"), import_module("dgl.function")
        messages: list[Mapping[str, Any]] = [
            core.message_passing(this[r], m, fn.sum(s.msg_field, s.out_field), None)
            for r, (m, s) in zip(relations, plain, strict=True)
        ]
        parts = [self._recorder.relation(self._user_graph, r) for r in relations]
        return summed(self._recorder.trace, self._user_graph, parts, messages, names == {"mean"}, across == "mean")

    def __getattribute__(self, name: str) -> Any:
        if name not in _OF_FORM and not name.startswith("_"):
            caller = sys._getframe(1).f_code.co_filename  # pyright: ignore[reportPrivateUsage]
            if not caller.startswith(tuple(LIBRARIES)):
                get = super().__getattribute__
                get("_recorder").trace.reads(get("_user_graph"), f"{name} of a graph")
        return super().__getattribute__(name)

    def in_degrees(self, v: Any = "__ALL__", etype: Any = None) -> Any:
        return self._degrees(in_degrees, v, etype)

    def out_degrees(self, u: Any = "__ALL__", etype: Any = None) -> Any:
        return self._degrees(out_degrees, u, etype)

    def _degrees(self, function: Callable[[Any, Relation], Tensor], nodes: Any, etype: Any) -> Any:
        this: Any = self
        trace, relation = self._recorder.trace, this.to_canonical_etype(etype)
        own = this._graph is self._user_graph._graph or self._recorder.edges(this._graph) is not None
        if own and isinstance(nodes, str) and relation in self._user_graph.canonical_etypes:  # "__ALL__"
            return trace.torch(function, self._user_graph, relation)
        trace.reads(self._user_graph, "degrees of some nodes of a graph")
        parent: Any = super()
        return getattr(parent, function.__name__)(nodes, etype)


def in_degrees(graph: Any, relation: Relation) -> Tensor:
    """Returns how many edges of a relation lead to each destination [ND]."""
    with unseen():
        return graph.in_degrees(etype=relation)


def out_degrees(graph: Any, relation: Relation) -> Tensor:
    """Returns how many edges of a relation begin at each source [NS]."""
    with unseen():
        return graph.out_degrees(etype=relation)


def _counting(name: str, what: str) -> Callable[..., int]:
    """Returns a method that counts nodes or edges, of one type or of all."""

    def count(self: Any, kind: Any = None) -> int:
        number: int = getattr(super(RecordsMessages, self), name)(kind)
        graph = self._user_graph
        if what == "edges":
            names = self.canonical_etypes if kind is None else [self.to_canonical_etype(kind)]
            known = set(names) <= set(graph.canonical_etypes)
        else:
            kinds = self.srctypes if what == "src" else self.dsttypes
            names = kinds if kind is None else [kind]
            known = set(names) <= set(graph.srctypes if what == "src" else graph.dsttypes)
        key = what, tuple(names)
        # For another graph that was made of this one, or for both ends of a block, it is a plain number.
        return self._recorder.trace.extent(graph, key, number) if known and size(graph, key) == number else number

    return count


for _prefix in ("num_", "number_of_"):
    for _kind, _what in (("nodes", "src"), ("src_nodes", "src"), ("dst_nodes", "dst"), ("edges", "edges")):
        setattr(RecordsMessages, f"{_prefix}{_kind}", _counting(f"{_prefix}{_kind}", _what))


def _refused(name: str) -> Any:
    def refuse(self: RecordsMessages, *args: Any, **kwargs: Any) -> Any:
        raise unsupported(f"{name} of a graph")

    return refuse


for _name in _CHANGES:
    setattr(RecordsMessages, _name, _refused(_name))


@cache
def _class(base: type) -> type:
    return base if issubclass(base, RecordsMessages) else type(base.__name__, (RecordsMessages, base), {})


def recorded(recorder: Recorder, graph: Any, user_graph: Any) -> None:
    """Makes a graph object, which is our own copy, a stand-in for ``user_graph`` or a part of it."""
    graph.__class__ = _class(type(graph))
    graph._recorder, graph._user_graph = recorder, user_graph


def is_graph(value: object) -> bool:
    """Returns whether an object is a DGL graph or block; dgl is imported already if it is."""
    return is_graph_class(type(value))


def is_graph_class(kind: type) -> bool:
    """Returns whether objects of a class are DGL graphs or blocks."""
    return any(c.__module__ == "dgl.heterograph" and c.__name__ == "DGLGraph" for c in kind.__mro__)


class StandIn:
    """Holds a stand-in for one graph of a call, and the data that have been stored in it since."""

    def __init__(self, recorder: Recorder, graph: Any) -> None:
        install()
        self.original = graph
        self.graph = copy.copy(graph)
        recorded(recorder, self.graph, graph)
        relations = graph.canonical_etypes
        for relation in relations if len(relations) == 1 else ():
            recorder.register(graph._graph, recorder.relation(graph, relation))
        only = recorder.relation(graph, relations[0]) if len(relations) == 1 else None
        sources = graph.num_src_nodes() if only is not None else -1
        self.graph._node_frames = [
            _frame(recorder, f, only if f.num_rows == sources else None, "ntype") for f in graph._node_frames
        ]
        self.graph._edge_frames = [
            _frame(recorder, f, recorder.relation(graph, relations[i]), "etype")
            for i, f in enumerate(graph._edge_frames)
        ]
        self._before = self._columns()

    def _columns(self) -> list[dict[str, Any]]:
        return [{k: c.storage for k, c in f._columns.items() if hasattr(c, "storage")} for f in self._frames]

    @property
    def _frames(self) -> list[Any]:
        return [*self.graph._node_frames, *self.graph._edge_frames]

    def changes(self) -> list[dict[str, Any]]:
        """Returns the columns of each frame that are new or replaced."""
        pairs = zip(self._columns(), self._before, strict=True)
        return [{k: v for k, v in now.items() if before.get(k) is not v} for now, before in pairs]

    def store(self, changes: list[dict[str, Any]]) -> bool:
        """Brings the user's graph up to date; returns whether anything had changed."""
        graph, stored = self.original, False
        frames = [*graph._node_frames, *graph._edge_frames]
        for frame, mine, before, changed in zip(frames, self._frames, self._before, changes, strict=True):
            gone = [name for name in before if name not in mine]
            for name in gone:
                frame.pop(name)
            frame.update(changed)
            stored = stored or bool(gone or changed)
        return stored


def _frame(recorder: Recorder, frame: Any, edges: GraphEdges | None, side: str) -> Any:
    """Copies a frame with recorded columns; columns that DGL has not fetched yet stay as they are."""
    clone = frame.clone()
    for name, column in frame._columns.items():
        if getattr(column, "index", column) is None and column.device is None and column.deferred_dtype is None:
            data = recorder.column(column.storage, edges, side)
            if data is not column.storage:
                clone._columns[name] = import_module("dgl.frame").Column(data)
    return clone
