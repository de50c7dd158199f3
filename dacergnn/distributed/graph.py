"""The part of a graph that one process has, and the rows that it reads of others."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dacergnn.distributed.exchange import Exchange
from dacergnn.errors import ArrayError, DistributedError
from dacergnn.graph import HeteroGraph

Key = tuple[str, str, str]
"""Node type of the sources, relation, node type of the destinations."""
Nodes = Tensor | dict[str, Tensor]
ONLY = ""
"""The one node type of a graph without types."""


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
        timeout: float = 30.0,
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
        self._group: Any = dist.new_group(ranks, timeout=timedelta(seconds=timeout), use_local_synchronization=True)
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
        self._exchanges: dict[str, Exchange] = {}
        numbers: dict[str, Tensor] = {}
        for kind, nodes in by_type.items():
            ends = [part[0] for key, part in parts.items() if key[0] == kind]
            read = torch.cat([*ends, nodes.new_empty(0)]).unique()
            read = read[nodes[read] != self.rank]
            read = read[nodes[read].sort(stable=True).indices]  # process by process
            self._exchanges[kind] = Exchange(nodes, read, self._group)
            numbers[kind] = nodes.new_full((len(nodes),), -1)
            numbers[kind][torch.cat([self._own[kind], read])] = torch.arange(len(self._own[kind]) + len(read))
        self._index = {
            key: torch.stack([numbers[key[0]][part[0]], numbers[key[2]][part[1]]]) for key, part in parts.items()
        }

    def exchange(self, x: Any) -> Any:
        """Returns the rows of own nodes, then those that own nodes read of others; differentiable, also twice.

        Args:
            x: [own, ...] rows; a dictionary of these by node type if the graph has types.

        Raises:
            ArrayError: There is not one row for each own node.
            DistributedError: Another process has failed.
        """
        rows: dict[str, Tensor] = dict(x) if self._typed else {ONLY: x}
        for kind, own in rows.items():
            if kind not in self._own or len(own) != len(self._own[kind]):
                name, count = (f"x[{kind!r}]", self._own.get(kind)) if self._typed else ("x", self._own[ONLY])
                wanted = "no nodes of this type" if count is None else f"{len(count)} own nodes"
                raise ArrayError(name, f"has {len(own)} rows, but this process has {wanted}")
        # In the order of the types, not of the user: all processes must exchange the same at once.
        return self._plain({kind: self._exchanges[kind](rows[kind]) for kind in self._own if kind in rows})

    def hetero_graph(
        self,
        edge_type: Tensor | None = None,
        num_edge_types: int | None = None,
        node_type: Tensor | None = None,
        num_node_types: int | None = None,
    ) -> HeteroGraph:
        """Returns the part as a graph of our own layers, whose destinations are the own nodes.

        Args:
            edge_type: [E] the types of all edges of the whole graph.
            num_edge_types: The number of these types.
            node_type: [N] the types of all nodes of the whole graph.
            num_node_types: The number of these types.
        """
        if self._typed:
            raise ArrayError("edge_index", "is a dictionary; pass its parts to the layers, or graphs without types")
        exchange = self._exchanges[ONLY]
        own = exchange.own_count
        for name, types, count in (("edge_type", edge_type, self._sizes[0]), ("node_type", node_type, self._sizes[1])):
            if types is not None and types.shape != (count,):
                raise ArrayError(name, f"has shape {list(types.shape)}; give the types of the whole graph, [{count}]")
        return HeteroGraph.from_arrays(
            self._index[ONLY, ONLY, ONLY],
            None if edge_type is None else edge_type[self._edges[ONLY, ONLY, ONLY]],
            num_nodes=(own + sum(exchange.receives), own),
            num_edge_types=num_edge_types,
            node_type=None if node_type is None else node_type[torch.cat([self._own[ONLY], exchange.read])],
            num_node_types=num_node_types,
        )

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
        return sum(exchange.bytes_received for exchange in self._exchanges.values())

    def _plain(self, by_type: dict[str, Any]) -> Any:
        return by_type if self._typed else by_type[ONLY]

    def _compare(self, name: str, tensors: Mapping[Any, Tensor]) -> None:
        """Raises ArrayError unless all processes have the same tensors: rows would be those of other nodes."""
        own = zlib.crc32(repr([(key, tensor.shape) for key, tensor in tensors.items()]).encode())
        for tensor in tensors.values():
            own = zlib.crc32(tensor.cpu().contiguous().numpy().data, own)
        sums = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(sums, torch.tensor([own]), group=self._group)
        if any(int(other) != own for other in sums):
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
