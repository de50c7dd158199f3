"""Stand-ins for DGL graphs, which torch can capture: plain objects with columns, and methods in functions of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.dgl.batches import EdgeBatch, NodeBatch, called_on_nodes
from dacergnn.frontends.dgl.degrees import marked
from dacergnn.frontends.dgl.ends import Ends, Relation
from dacergnn.frontends.dgl.frames import Columns, EdgesView, Frame, NodesView, TypedColumns
from dacergnn.frontends.dgl.graph_classes import STANDS_IN
from dacergnn.frontends.dgl.messages import built_in, degrees, infinite, reduced
from dacergnn.frontends.dgl.refusals import unsupported

_dgl: Any = import_module("dgl")
_BUILT_IN: Any = import_module("dgl.function.base").BuiltinFunction
_ALL = "__ALL__"
"""Stands for all nodes or edges in DGL's methods."""


class Index:
    """Stands for DGL's index of a graph, which its functions hand on."""

    def __init__(self, ends: dict[Relation, Ends]) -> None:
        self.ends = ends

    def number_of_etypes(self) -> int:
        """Returns the number of relations."""
        return len(self.ends)

    @property
    def only(self) -> Ends:
        """Returns the edges of a graph with one relation."""
        (ends,) = self.ends.values()
        return ends

    def __getattr__(self, name: str) -> Any:
        raise unsupported(f"{name} of the index of a graph")


class Scope:
    """Gives a stand-in copies of its columns, which are gone at the end of the context."""

    def __init__(self, graph: StandIn) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        graph = self._graph
        self._before = graph.columns
        graph.columns = graph.columns_apart()

    def __exit__(self, *problem: object) -> None:
        self._graph.columns = self._before


class StandIn:
    """Stands for a graph; classes that derive from this one also derive from DGL's class of graphs.

    Args:
        ends: The edges of each relation.
        columns: The columns of sources, of destinations and of edges, by type; the first two are the same unless the
            graph is a block.
        counts: Numbers of sources and of destinations by type.
        kinds: The types of sources, of destinations, and all of them.
        whole: The graph; it has more relations if this stands for a part of it.
        batches: The numbers of nodes of the graphs that it consists of, by type; None if it is one.
    """

    columns: tuple[dict[str, Frame], dict[str, Frame], dict[Relation, Frame]]
    before: tuple[dict[str, Frame], dict[str, Frame], dict[Relation, Frame]]
    """The columns of the graph, before the call."""
    attributes: frozenset[str]
    """The names of its attributes, before the call."""

    def __init__(
        self, ends: dict[Relation, Ends], columns: Any, counts: dict[str, dict[str, int]],
        kinds: tuple[list[str], list[str], list[str]], whole: Any, *, is_block: bool, idtype: torch.dtype,
        device: torch.device, batches: dict[str, Tensor] | None,
    ) -> None:  # fmt: skip
        self._batches = batches
        self.ends, self.columns, self._counts = ends, columns, counts
        self.srctypes, self.dsttypes, self.ntypes = kinds
        self.canonical_etypes, self.etypes = [*ends], [relation[1] for relation in ends]
        self.is_block, self.idtype, self.device, self._whole = is_block, idtype, device, whole
        self.is_unibipartite = is_block or not {*self.srctypes} & {*self.dsttypes}
        self.is_homogeneous = len(self.ntypes) == len(ends) == 1

    @property
    def original(self) -> Any:
        """Returns the graph that this stands for."""
        whole = self._whole
        return whole if len(self.ends) == len(whole.canonical_etypes) else whole[self.canonical_etypes[0]]

    # Types

    def to_canonical_etype(self, etype: Any) -> Relation:
        if etype is None:
            if len(self.canonical_etypes) != 1:
                raise unsupported("a call over several relations of a graph without their names")
            return self.canonical_etypes[0]
        if isinstance(etype, tuple):
            if etype not in self.ends:
                raise _dgl.DGLError(f'Edge type "{etype}" does not exist.')
            return etype
        found = [relation for relation in self.canonical_etypes if relation[1] == etype]
        if len(found) != 1:
            raise _dgl.DGLError(f'Edge type "{etype}" does not exist, or is ambiguous.')
        return found[0]

    def get_etype_id(self, etype: Any) -> int:
        return self.canonical_etypes.index(self.to_canonical_etype(etype))

    def get_ntype_id(self, ntype: str | None) -> int:
        return self.ntypes.index(self.only_kind("src") if ntype is None else ntype)

    def only_kind(self, side: str) -> str:
        """Returns the type of nodes at one end of edges, if it is one."""
        kinds = self.srctypes if side == "src" else self.dsttypes
        if len(kinds) != 1:
            raise unsupported("a call over several types of nodes without their names")
        return kinds[0]

    # Sizes and structure

    def count(self, side: str, kinds: Sequence[str]) -> int:
        """Returns how many nodes of some types there are at one end of edges."""
        return sum([self._counts[side][kind] for kind in kinds])

    def num_nodes(self, ntype: str | None = None) -> int:
        if self.is_block:
            if ntype is not None:
                raise unsupported("num_nodes of a block by type")
            return self.num_src_nodes() + self.num_dst_nodes()
        return self.count("src", self.ntypes if ntype is None else [ntype])

    def num_src_nodes(self, ntype: str | None = None) -> int:
        return self.count("src", self.srctypes if ntype is None else [ntype])

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        return self.count("dst", self.dsttypes if ntype is None else [ntype])

    def num_edges(self, etype: Any = None) -> int:
        if etype is None:
            return sum([ends.src.shape[0] for ends in self.ends.values()])
        return self.ends[self.to_canonical_etype(etype)].src.shape[0]

    def batch_num_nodes(self, ntype: str | None = None) -> Tensor:
        if self._batches is None:
            return torch.tensor([self.num_nodes(ntype)], device=self.device)
        return self._batches[self.only_kind("src") if ntype is None else ntype]

    @property
    def batch_size(self) -> int:
        return 1 if self._batches is None else next(iter(self._batches.values())).shape[0]

    number_of_nodes, number_of_edges = num_nodes, num_edges
    number_of_src_nodes, number_of_dst_nodes = num_src_nodes, num_dst_nodes

    def in_degrees(self, v: Any = _ALL, etype: Any = None) -> Any:
        return self._degrees("dst", v, etype)

    def out_degrees(self, u: Any = _ALL, etype: Any = None) -> Any:
        return self._degrees("src", u, etype)

    def _degrees(self, side: str, nodes: Any, etype: Any) -> Any:
        ends = self.ends[self.to_canonical_etype(etype)]
        found = degrees(ends, side, self.idtype)
        if isinstance(nodes, str):
            return marked(found, ends, side)
        return found[nodes].item() if isinstance(nodes, int) else found[torch.as_tensor(nodes).long()]

    @property
    def _graph(self) -> Index:
        return Index(self.ends)

    # Columns

    def columns_apart(self) -> Any:
        """Returns copies of the columns."""
        src, dst, data = self.columns
        sources = {kind: dict(frame) for kind, frame in src.items()}
        destinations = {kind: dict(frame) for kind, frame in dst.items()} if self.is_block else sources
        return sources, destinations, {relation: dict(frame) for relation, frame in data.items()}

    def node_columns(self, side: str, kinds: list[str]) -> Any:
        """Returns a view of the columns of nodes of some types."""
        src, dst, _ = self.columns
        frames = src if side == "src" else dst
        parts = {kind: Columns(frames[kind], self._counts[side][kind], "nodes") for kind in kinds}
        return parts[kinds[0]] if len(kinds) == 1 else TypedColumns(parts)

    def edge_columns(self, relations: list[Relation]) -> Any:
        """Returns a view of the columns of edges of some relations."""
        parts = {r: Columns(self.columns[2][r], self.ends[r].src.shape[0], "edges") for r in relations}
        return parts[relations[0]] if len(relations) == 1 else TypedColumns(parts)

    @property
    def ndata(self) -> Any:
        if self.is_block:
            raise unsupported("ndata of a block")
        return self.node_columns("src", self.ntypes)

    @property
    def srcdata(self) -> Any:
        return self.node_columns("src", self.srctypes)

    @property
    def dstdata(self) -> Any:
        return self.node_columns("dst", self.dsttypes)

    @property
    def edata(self) -> Any:
        return self.edge_columns(self.canonical_etypes)

    @property
    def nodes(self) -> NodesView:
        if self.is_block:
            raise unsupported("nodes of a block")
        return NodesView(self, "src")

    @property
    def srcnodes(self) -> NodesView:
        return NodesView(self, "src")

    @property
    def dstnodes(self) -> NodesView:
        return NodesView(self, "dst")

    @property
    def edges(self) -> EdgesView:
        return EdgesView(self)

    def local_scope(self) -> Scope:
        return Scope(self)

    def local_var(self) -> StandIn:
        return self._with(self.ends, self.columns_apart(), (self.srctypes, self.dsttypes, self.ntypes))

    def __getitem__(self, key: Any) -> StandIn:
        relation = self.to_canonical_etype(key)
        source, _, destination = relation
        src, dst, data = self.columns
        if len(self.ends) == 1:
            return self
        sources = {kind: src[kind] for kind in dict.fromkeys((source, destination)) if kind in src}
        columns = sources, {destination: dst[destination]} if self.is_block else sources, {relation: data[relation]}
        kinds = [source], [destination], [*dict.fromkeys((source, destination))]
        return self._with({relation: self.ends[relation]}, columns, kinds)

    def _with(self, ends: dict[Relation, Ends], columns: Any, kinds: Any) -> StandIn:
        return type(self)(
            ends,
            columns,
            self._counts,
            kinds,
            self._whole,
            is_block=self.is_block,
            idtype=self.idtype,
            device=self.device,
            batches=self._batches,
        )

    # Messages

    def apply_nodes(self, func: Any, v: Any = _ALL, ntype: str | None = None, inplace: bool = False) -> None:
        _check_all(v, inplace)
        kind = self.only_kind("dst") if ntype is None else ntype
        frame = self.columns[1][kind]
        self.node_columns("dst", [kind]).update(func(self._batch(kind, frame)))

    def apply_edges(self, func: Any, edges: Any = _ALL, etype: Any = None, inplace: bool = False) -> None:
        _check_all(edges, inplace)
        relation = self.to_canonical_etype(etype)
        self.edge_columns([relation]).update(self._messages(relation, func))

    def update_all(self, message_func: Any, reduce_func: Any, apply_node_func: Any = None, etype: Any = None) -> None:
        relation = self.to_canonical_etype(etype)
        found = self._passed(relation, message_func, reduce_func)
        if apply_node_func is not None:
            frame = {**self.columns[1][relation[2]], **found}
            found = apply_node_func(self._batch(relation[2], frame))
        self.node_columns("dst", [relation[2]]).update(found)

    def multi_update_all(self, etype_dict: Any, cross_reducer: Any, apply_node_func: Any = None) -> None:
        found: dict[str, list[dict[str, Tensor]]] = {}
        order: dict[str, list[int]] = {}
        last: Any = None
        for etype, functions in etype_dict.items():
            relation = self.to_canonical_etype(etype)
            if not isinstance(functions, tuple) or len(functions) not in (2, 3):
                raise unsupported("multi_update_all with other than two or three functions for a relation")
            message, last, *after = functions
            rows = self._passed(relation, message, last, infinities=True)
            if after and after[0] is not None:
                rows = after[0](self._batch(relation[2], {**self.columns[1][relation[2]], **rows}))
            found.setdefault(relation[2], []).append(rows)
            order.setdefault(relation[2], []).append(self.get_etype_id(relation))
        for kind, parts in found.items():
            rows = _across(parts, cross_reducer, order[kind])
            if getattr(last, "name", None) in ("max", "min"):
                rows = {name: value.masked_fill(value.isinf(), 0) for name, value in rows.items()}
            self.node_columns("dst", [kind]).update(rows)
            if apply_node_func is not None:
                self.apply_nodes(apply_node_func, ntype=kind)

    def _batch(self, kind: str, frame: Mapping[str, Any]) -> NodeBatch:
        return NodeBatch(frame, torch.arange(self._counts["dst"][kind], device=self.device))

    def _messages(self, relation: Relation, function: Any) -> dict[str, Tensor]:
        ends, (src, dst, data) = self.ends[relation], self.columns
        source, destination, own = src[relation[0]], dst[relation[2]], data[relation]
        if isinstance(function, _BUILT_IN):
            return {function.out_field: built_in(ends, function, {"u": source, "v": destination, "e": own})}
        return function(EdgeBatch(ends, source, own, destination))

    def _passed(
        self, relation: Relation, message: Any, reduction: Any, *, infinities: bool = False
    ) -> dict[str, Tensor]:
        """Returns what reaches the destinations of a relation."""
        ends, messages = self.ends[relation], self._messages(relation, message)
        if not isinstance(reduction, _BUILT_IN):
            return called_on_nodes(reduction, ends, self.columns[1][relation[2]], messages)
        if isinstance(message, _BUILT_IN) and message.out_field != reduction.msg_field:
            raise _dgl.DGLError("Invalid message and reduce function pairs.")
        values = reduced(ends, messages[reduction.msg_field], reduction.name)
        return {reduction.out_field: infinite(ends, values, reduction.name) if infinities else values}

    def __getattr__(self, name: str) -> Any:
        raise unsupported(f"{name} of a graph")


setattr(StandIn, STANDS_IN, True)


def _across(parts: list[dict[str, Tensor]], reducer: Any, order: list[int]) -> dict[str, Tensor]:
    """Returns what several relations give for the same nodes, as one."""
    if len(parts) == 1 and reducer != "stack":
        return parts[0]
    if reducer == "stack":
        parts = [part for _, part in sorted(zip(order, parts, strict=True), key=lambda pair: pair[0])]
    rows: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if name in part]
        if callable(reducer):
            rows[name] = reducer(values)
        elif reducer == "stack":
            rows[name] = torch.stack(values, 1)
        elif len(values) == 1:
            rows[name] = values[0]
        elif reducer in ("sum", "mean"):
            total = values[0]
            for value in values[1:]:
                total = total + value
            rows[name] = total if reducer == "sum" else total / len(values)
        elif reducer in ("max", "min"):
            rows[name] = getattr(torch, f"a{reducer}")(torch.stack(values, 0), 0)
        else:
            raise _dgl.DGLError(f"{reducer!r} is no cross type reducer.")
    return rows


def _check_all(which: Any, inplace: bool) -> None:
    if not isinstance(which, str) or inplace:
        raise unsupported("a function over some nodes or edges")
