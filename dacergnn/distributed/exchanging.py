"""Connects the graph of a process to those of the others, for layers that exchange rows themselves."""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dacergnn.distributed.exchange import Channel, EdgeExchange, Exchange, equal_everywhere
from dacergnn.errors import DistributedError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import Profile
from dacergnn.modules.ways.exchange import ExchangingGraph
from dacergnn.runtime.free_memory import return_freed_memory


class OwnNodes(ExchangingGraph):
    """Represents the nodes of this process and their in-edges; all processes make it together.

    Attributes:
        owners: [N] int64, the process of each node of the whole graph.
        own: [own] int64, the nodes of this process, ascending.
        node_type: [N] the types of the nodes of the whole graph, if any.
    """

    owners: Tensor
    own: Tensor
    exchange: Exchange
    node_type: Tensor | None

    @classmethod
    def of(
        cls, read: HeteroGraph, exchange: Exchange, owners: Tensor, own: Tensor, node_type: Tensor | None
    ) -> OwnNodes:
        """Returns the graph of own nodes.

        Args:
            read: The graph of their in-edges: sources are own nodes, then those that ``exchange`` reads.
            exchange: Receives rows of these.
            owners, own, node_type: The attributes.
        """
        graph = cls.of_encodings(read.encodings, read.edge_perm)
        graph.read, graph.exchange, graph.owners, graph.own, graph.node_type = read, exchange, owners, own, node_type
        graph.num_own = len(own)
        graph.nodes = HeteroGraph.from_arrays(
            torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), num_nodes=len(own),
            **graph._types(own),
        )  # fmt: skip
        owners_of_sources = graph._source_owners
        remote = (owners_of_sources != exchange.rank).nonzero().view(-1)
        pairs = read.index("E", "dst")[remote].long() * exchange.size + owners_of_sources[remote]
        totals = torch.tensor([len(exchange.read), len(pairs.unique()), len(remote)])
        del owners_of_sources, remote, pairs
        dist.all_reduce(totals, group=exchange.group)
        graph.rows, graph.sums, graph.edges = totals.tolist()
        profile: list[Any] = [(Profile.of(read).rows, Profile.of(read).hubs)]
        dist.broadcast_object_list(profile, dist.get_global_rank(exchange.group, 0), exchange.group)
        graph.profile = Profile(profile[0][0], hubs=profile[0][1])
        return_freed_memory()  # edges in wide numbers leave gaps
        return graph

    def with_read(self, rows: Tensor) -> Tensor:
        return self.exchange(rows)

    def added_up(self, sums: Tensor) -> Tensor:
        return self._written[2].added_up(sums)

    def at_sources(self, values: Tensor) -> Tensor:
        graph, edges, _ = self._written
        return graph.to_canonical(edges(values))

    def agree(self, key: str, text: str) -> None:
        if not equal_everywhere(zlib.crc32(key.encode()), self.exchange.group):
            raise DistributedError(
                f"this process calls {text}, but another one does not, or its layer has other sizes; call the same "
                "in all."
            )

    @property
    def written(self) -> HeteroGraph:
        return self._written[0]

    @property
    def channels(self) -> list[Channel]:
        """Returns what has moved rows beside ``exchange``."""
        return [*self._written[1:]] if "_written" in self.__dict__ else []

    @cached_property
    def _written(self) -> tuple[HeteroGraph, EdgeExchange, Exchange]:
        """Returns the graph of the out-edges, and what moves values of edges to it and sums from it."""
        read, group, rank = self.read, self.exchange.group, self.exchange.rank
        edges = EdgeExchange(self._source_owners, group)
        nodes = torch.cat([self.own, self.exchange.read])
        src, dst, etype = (
            edges(ends)
            for ends in (
                nodes[read.index("E", "src").long()],
                self.own[read.index("E", "dst").long()],
                read.index("E", "etype").long(),
            )
        )
        others = dst[self.owners[dst] != rank].unique()
        others = others[self.owners[others].sort(stable=True).indices]  # process by process
        targets = torch.cat([self.own, others])
        order = targets.argsort()
        dst = order[torch.searchsorted(targets[order], dst)]
        graph = HeteroGraph.from_arrays(
            (torch.searchsorted(self.own, src), dst), etype, num_nodes=(len(self.own), len(targets)), bipartite=True,
            **self._types(self.own, targets),
        )  # fmt: skip
        return graph, edges, Exchange(self.owners, others, group)

    @property
    def _source_owners(self) -> Tensor:
        """Returns [E'] int64, the process of the source of each edge."""
        exchange = self.exchange
        owners = torch.cat([torch.full((len(self.own),), exchange.rank), self.owners[exchange.read]])
        return owners[self.read.index("E", "src").long()]

    def _types(self, *nodes: Tensor) -> dict[str, Any]:
        """Returns the types of sources, and of destinations if they are others, for a graph."""
        counts = {"num_edge_types": self.read.size("R"), "num_node_types": self.read.size("T")}
        if self.node_type is None:
            return counts
        source, *others = (self.node_type[own] for own in nodes)
        return {**counts, "node_type": (source, *others) if others else source}
