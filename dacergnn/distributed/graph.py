"""The part of a graph that one process has, and the rows that it reads of others."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dacergnn.config import size_of
from dacergnn.distributed.exchange import Channel, equal_everywhere
from dacergnn.distributed.exchanging import OwnNodes
from dacergnn.distributed.part import ONLY, Key, Part, Piece
from dacergnn.distributed.rounds import run_in_rounds
from dacergnn.errors import ArrayError, DacergnnError, DistributedError
from dacergnn.graph import HeteroGraph

Nodes = Tensor | dict[str, Tensor]
_MOST = 1 << 10
"""Number of pieces up to which fewer rows at a time are tried."""


@dataclass(frozen=True, eq=False)
class _Types:
    """Holds the types of the edges and nodes of the whole graph, and their numbers."""

    edges: Tensor | None
    num_edges: int | None
    nodes: Tensor | None
    num_nodes: int | None


class DistributedGraph:
    """Holds the in-edges of the nodes of this process, in numbers of its own.

    A layer computes the results of own nodes by ``layer(graph.exchange(x), graph.edge_index, ...)``, of which the first
    ``graph.num_own`` rows are those of own nodes, in the order of ``graph.own``. Parameters are shared by
    `torch.nn.parallel.DistributedDataParallel`. All processes make the graph together, and call `exchange` together.

    Args:
        edge_index: [2, E] integers of the whole graph, sources and destinations; or a dictionary of these by (source
            type, relation, destination type).
        owners: [N] int64, the process of each node (`partition`); or a dictionary of these by node type.
        group: The processes; None for all of them.
        timeout: Seconds after which an exchange with a process that does not answer fails.

    Attributes:
        own: [own] int64, the nodes of this process in the whole graph, ascending; by type if there are types.
        num_own: Their number; by type if there are types.
        edge_index: The in-edges of own nodes, as numbers of the rows that `exchange` returns; by relation.
        edges: [E'] int64, the positions of these edges in the whole graph; by relation.

    Raises:
        ArrayError: The arrays do not describe a divided graph.
        DistributedError: `torch.distributed` is not initialized.
    """

    def __init__(
        self, edge_index: Tensor | Mapping[Key, Tensor], owners: Nodes, *, group: dist.ProcessGroup | None = None,
        timeout: float = 300.0,
    ) -> None:  # fmt: skip
        if not dist.is_initialized():
            raise DistributedError("torch.distributed is not initialized; call init_process_group first.")
        self._typed = isinstance(edge_index, Mapping)
        if self._typed != isinstance(owners, Mapping):
            raise ArrayError("owners", "must be a dictionary by node type if edge_index is one, and a tensor if not")
        edges: dict[Key, Tensor] = (
            dict(edge_index) if isinstance(edge_index, Mapping) else {(ONLY, ONLY, ONLY): edge_index}
        )
        by_type: dict[str, Tensor] = owners if isinstance(owners, dict) else {ONLY: owners}
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        # A group of its own: other collectives, as those of gradients, must not come between.
        # Positions are on the host, where rows need not be.
        backend = "cpu:gloo,cuda:nccl" if dist.get_backend(group) == "nccl" else None
        self._group: Any = dist.new_group(
            ranks, timeout=timedelta(seconds=timeout), backend=backend, use_local_synchronization=True
        )
        self.rank = dist.get_rank(self._group)
        self._check(edges, by_type)
        self._compare("owners", by_type)
        self._compare("edge_index", edges)
        self._sizes = sum(index.size(1) for index in edges.values()), sum(map(len, by_type.values()))
        self._own = {kind: (nodes == self.rank).nonzero().view(-1) for kind, nodes in by_type.items()}
        self._edges = {
            key: (by_type[key[2]][index[1].long()] == self.rank).nonzero().view(-1) for key, index in edges.items()
        }
        parts = {key: index[:, self._edges[key]].long() for key, index in edges.items()}
        self._part = Part(self._group, by_type, self._own, parts)
        self._whole = self._part.piece({kind: torch.arange(len(own)) for kind, own in self._own.items()})
        self._exchanges, self._index = self._whole.exchanges, self._whole.edge_index
        self._pieces: dict[object, list[Piece]] = {}
        self._exchanging: list[OwnNodes] = []
        self._types: WeakKeyDictionary[HeteroGraph, _Types] = WeakKeyDictionary()
        self._graphs: WeakKeyDictionary[Piece, dict[_Types, HeteroGraph]] = WeakKeyDictionary()

    def exchange(self, x: Any) -> Any:
        """Returns the rows of own nodes, then those that own nodes read of others; differentiable, also twice.

        Args:
            x: [own, ...] rows; a dictionary of these by node type if the graph has types.

        Raises:
            ArrayError: There is not one row for each own node.
            DistributedError: Another process has failed.
        """
        rows = self._rows(x)
        return self._plain({kind: self._exchanges[kind](own) for kind, own in rows.items()})

    def run(self, layer: nn.Module, x: Any, *values: Any, memory: str | int | None = None) -> Any:
        """Returns the results of a layer for own nodes, computed piece by piece.

        Nodes that read no other process come first. The rows of each further piece are received while the one before is
        computed, and are dropped after it. The backward receives and computes them again. Gradients are those of ``x``,
        ``values`` and the parameters of the layer; they cannot be differentiated again.

        Args:
            layer: Called with rows, edges, and values of edges, for each piece; returns rows of nodes.
            x: [own, ...] rows; a dictionary of these by node type if the graph has types.
            values: [E', ...] further arguments of the layer, one row for each edge in ``edges``; dictionaries of these
                by relation if the graph has types. Or the result of `hetero_graph`, for a layer that takes a graph in
                place of edges.
            memory: A size that rows of nodes and their gradients may take at a time in the largest piece, as in "2GB";
                None for one piece of the nodes that read no other process, and one of all others.

        Raises:
            ArrayError: There is not one row for each own node, or for each edge.
            DistributedError: The layer computes statistics over nodes, no piece is small enough, or another process has
                failed.
        """
        rows = self._rows(x)
        types = None
        if values and isinstance(values[0], HeteroGraph):
            types, values = self._types.get(values[0]), values[1:]
            if types is None:
                raise ArrayError("values[0]", "is another graph; pass what `hetero_graph` returns without exchanges")

        def edges(piece: Piece) -> Any:
            if types is not None:
                return self._graph(piece, types)
            return piece.edge_index if self._typed else piece.edge_index[ONLY, ONLY, ONLY]

        by_relation = [dict(value) if self._typed else {(ONLY, ONLY, ONLY): value} for value in values]
        for number, value in enumerate(by_relation):
            for key, own in value.items():
                count = len(self._edges.get(key, ()))
                if key not in self._edges or len(own) != count:
                    name = f"values[{number}]" + (f"[{key}]" if self._typed else "")
                    raise ArrayError(name, f"has {len(own)} rows, but this process has {count} edges")
        pieces = self._divided({kind: own.shape[1:].numel() * own.itemsize for kind, own in rows.items()}, memory)
        return self._plain(run_in_rounds(layer, pieces, edges, self._typed, rows, by_relation))

    def _divided(self, sizes: dict[str, int], memory: str | int | None) -> list[Piece]:
        """Returns the fewest pieces that stay within a limit in all processes; kept for later calls.

        Args:
            sizes: The bytes of a row by node type.
            memory: The limit.
        """
        key, limit = (tuple(sizes.items()), memory), None if memory is None else size_of(str(memory))
        if memory is not None and limit is None:
            raise DacergnnError(f'memory={memory!r}; pass a size, as in "2GB".')
        count, need = 1, 0
        while key not in self._pieces and count <= _MOST:
            pieces = self._part.pieces(count)
            following = [*pieces[1:], pieces[0]]
            most = max(2 * a.held(sizes) + b.received(sizes) for a, b in zip(pieces, following, strict=True))
            found = torch.tensor([most, int(limit is not None and most > limit)])
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self._group)
            need, too_large = found.tolist()
            if not too_large:
                self._pieces[key] = pieces
            count *= 2
        if key not in self._pieces:
            raise DistributedError(f"memory={memory!r}: rows of the smallest pieces take {need} bytes; allow more.")
        return self._pieces[key]

    def _rows(self, x: Any) -> dict[str, Tensor]:
        """Returns rows by node type, in the order of the types: all processes must exchange the same at once."""
        rows: dict[str, Tensor] = dict(x) if self._typed else {ONLY: x}
        for kind, own in rows.items():
            if kind not in self._own or len(own) != len(self._own[kind]):
                name, count = (f"x[{kind!r}]", self._own.get(kind)) if self._typed else ("x", self._own[ONLY])
                wanted = "no nodes of this type" if count is None else f"{len(count)} own nodes"
                raise ArrayError(name, f"has {len(own)} rows, but this process has {wanted}")
        return {kind: rows[kind] for kind in self._own if kind in rows}

    def hetero_graph(
        self,
        edge_type: Tensor | None = None,
        num_edge_types: int | None = None,
        node_type: Tensor | None = None,
        num_node_types: int | None = None,
        *,
        exchanges: bool = False,
    ) -> HeteroGraph:
        """Returns the part as a graph of our own layers and of compiled functions, whose destinations are own nodes.

        Args:
            edge_type: [E] the types of all edges of the whole graph.
            num_edge_types: The number of these types; None for those of the whole graph.
            node_type: [N] the types of all nodes of the whole graph.
            num_node_types: The number of these types, likewise.
            exchanges: Whether layers take rows of own nodes only, and exchange themselves what takes the fewest bytes:
                these rows, values that are computed of them first, or parts of sums. All processes then make the graph
                together, and call layers together, with gradients of the same arrays. Else layers take the rows that
                `exchange` returns.
        """
        if self._typed:
            raise ArrayError("edge_index", "is a dictionary; pass its parts to the layers, or graphs without types")
        for name, types, count in (("edge_type", edge_type, self._sizes[0]), ("node_type", node_type, self._sizes[1])):
            if types is not None and types.shape != (count,):
                raise ArrayError(name, f"has shape {list(types.shape)}; give the types of the whole graph, [{count}]")
        counts = _number_of(edge_type, num_edge_types), _number_of(node_type, num_node_types)
        types = _Types(edge_type, counts[0], node_type, counts[1])
        graph = self._graph(self._whole, types)
        if exchanges:
            graph = OwnNodes.of(graph, self._exchanges[ONLY], self._part.owners[ONLY], self._own[ONLY], node_type)
            self._exchanging.append(graph)
            return graph
        self._types[graph] = types
        return graph

    def _graph(self, piece: Piece, types: _Types) -> HeteroGraph:
        """Returns a piece as a graph, whose destinations are the targets; made once."""
        known = self._graphs.setdefault(piece, {})
        if types not in known:
            key, exchange = (ONLY, ONLY, ONLY), piece.exchanges[ONLY]
            nodes = torch.cat([self._own[ONLY][piece.own[ONLY]], exchange.read])
            known[types] = HeteroGraph.from_arrays(
                piece.edge_index[key],
                None if types.edges is None else types.edges[self._edges[key][piece.edges[key]]],
                num_nodes=(len(nodes), len(piece.targets[ONLY])),
                num_edge_types=types.num_edges,
                node_type=None if types.nodes is None else types.nodes[nodes],
                num_node_types=types.num_nodes,
            )
        return known[types]

    @property
    def own(self) -> Any:
        return self._plain(self._own)

    @property
    def num_own(self) -> Any:
        return self._plain({kind: len(nodes) for kind, nodes in self._own.items()})

    @property
    def edge_index(self) -> Any:
        return self._index if self._typed else self._index[ONLY, ONLY, ONLY]

    @property
    def edges(self) -> Any:
        return self._edges if self._typed else self._edges[ONLY, ONLY, ONLY]

    @property
    def rows_read(self) -> int:
        """Returns the number of rows of other processes that an exchange receives."""
        return sum(sum(exchange.receives) for exchange in self._exchanges.values())

    @property
    def bytes_received(self) -> int:
        """Returns the bytes that other processes have sent to this one since the graph was made."""
        pieces = [self._whole, *(piece for pieces in self._pieces.values() for piece in pieces)]
        channels: list[Channel] = [exchange for piece in pieces for exchange in piece.exchanges.values()]
        channels += [channel for graph in self._exchanging for channel in graph.channels]
        return sum(channel.bytes_received for channel in channels)

    def _plain(self, by_type: dict[str, Any]) -> Any:
        return by_type if self._typed else by_type[ONLY]

    def _compare(self, name: str, tensors: Mapping[Any, Tensor]) -> None:
        """Raises ArrayError unless all processes have the same tensors: rows would be those of other nodes."""
        own = zlib.crc32(repr([(key, tensor.shape) for key, tensor in tensors.items()]).encode())
        for tensor in tensors.values():
            own = zlib.crc32(tensor.cpu().contiguous().numpy().data, own)
        if not equal_everywhere(own, self._group):
            raise ArrayError(name, "differs between the processes; divide the same graph by the same seed in all")

    def _check(self, edges: Mapping[Key, Tensor], owners: Mapping[str, Tensor]) -> None:
        size = dist.get_world_size(self._group)
        for kind, nodes in owners.items():
            name = f"owners[{kind!r}]" if self._typed else "owners"
            if nodes.dim() != 1 or nodes.dtype != torch.int64:
                raise ArrayError(
                    name, f"is {nodes.dtype} {list(nodes.shape)}; give the process of each node, int64 [N]"
                )
            if len(nodes) and not 0 <= int(nodes.min()) <= int(nodes.max()) < size:
                raise ArrayError(name, f"has values up to {int(nodes.max())}, but there are {size} processes")
        for key, index in edges.items():
            name = f"edge_index[{key}]" if self._typed else "edge_index"
            if index.dim() != 2 or index.size(0) != 2 or index.is_floating_point():
                raise ArrayError(name, f"is {index.dtype} {list(index.shape)}; give integers [2, E]")
            for row, kind in zip(index, (key[0], key[2]), strict=True):
                if kind not in owners:
                    raise ArrayError(name, f"has nodes of type {kind!r}, which owners lacks")
                if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < len(owners[kind]):
                    raise ArrayError(name, f"reaches node {int(row.max())}, but owners has {len(owners[kind])} nodes")


def _number_of(types: Tensor | None, given: int | None) -> int | None:
    """Returns the number of types of the whole graph; a part of it may lack the last ones."""
    return given if given is not None or types is None or not len(types) else int(types.max()) + 1
