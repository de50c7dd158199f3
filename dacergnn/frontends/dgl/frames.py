"""Views of the columns that a stand-in for a DGL graph holds."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dacergnn.frontends.dgl.ends import Relation
from dacergnn.frontends.dgl.refusals import unsupported

_dgl: Any = import_module("dgl")
Frame = dict[str, Any]


class Columns(MutableMapping[str, Any]):
    """Shows the columns of the nodes or edges of one type, ``what`` they are, and how many there are."""

    def __init__(self, frame: Frame, count: int, what: str) -> None:
        self._frame, self._count, self._what = frame, count, what

    def __getitem__(self, key: str) -> Any:
        return self._frame[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if value.shape[0] != self._count:
            raise rows_differ(self._what)
        self._frame[key] = value

    def __delitem__(self, key: str) -> None:
        del self._frame[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame)

    def __len__(self) -> int:
        return len(self._frame)

    # torch does not capture what these inherit.

    def update(self, *args: Any, **columns: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for key, value in dict(*args, **columns).items():
            self[key] = value

    def pop(self, key: str, *default: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._frame.pop(key, *default)


class TypedColumns(MutableMapping[str, Any]):
    """Shows the columns of several types: under each name, those of all types that have it."""

    def __init__(self, parts: dict[Any, Columns]) -> None:
        self._parts = parts

    def __getitem__(self, key: str) -> dict[Any, Any]:
        return {kind: columns[key] for kind, columns in self._parts.items() if key in columns}

    def __setitem__(self, key: str, value: dict[Any, Any]) -> None:
        for kind, data in value.items():
            self._parts[kind][key] = data

    def __delitem__(self, key: str) -> None:
        for columns in self._parts.values():
            columns.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for columns in self._parts.values() for name in columns))

    def __len__(self) -> int:
        return len([*iter(self)])

    def pop(self, key: str, *default: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = self[key]
        del self[key]
        return found


class Space(NamedTuple):
    """Holds the columns of a type, as DGL's views of nodes and edges return them."""

    data: MutableMapping[str, Any]


class NodesView:
    """Shows the nodes of a stand-in, at one end of edges if it is a block."""

    def __init__(self, graph: Any, side: str) -> None:
        self._graph, self._side = graph, side

    def __getitem__(self, kind: Any) -> Space:
        if not isinstance(kind, str):
            raise unsupported("data of some nodes")
        return Space(self._graph.node_columns(self._side, [kind]))

    def __call__(self, ntype: str | None = None) -> Tensor:
        graph = self._graph
        count = graph.count(self._side, [graph.only_kind(self._side) if ntype is None else ntype])
        return torch.arange(count, dtype=graph.idtype, device=graph.device)


class EdgesView:
    """Shows the edges of a stand-in."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __getitem__(self, relation: str | Relation) -> Space:
        return Space(self._graph.edge_columns([self._graph.to_canonical_etype(relation)]))

    def __call__(self, form: str = "uv", order: str = "eid", etype: Any = None) -> Any:
        graph = self._graph
        ends = graph.ends[graph.to_canonical_etype(etype)]
        if order != "eid":
            raise unsupported(f"edges of a graph in order of {order}")
        src, dst = ends.src.to(graph.idtype), ends.dst.to(graph.idtype)
        numbers = torch.arange(src.shape[0], dtype=graph.idtype, device=src.device)
        return numbers if form == "eid" else (src, dst, numbers) if form == "all" else (src, dst)


def rows_differ(what: str) -> Exception:
    """Returns the error of DGL for a column of another number of rows than there are nodes or edges."""
    return _dgl.DGLError(f"Expect number of features to match number of {what}.")
