"""Divides the edges of a process further: into pieces, each with the in-edges of some of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from dacergnn.distributed.exchange import Exchange

Key = tuple[str, str, str]
"""Node type of the sources, relation, node type of the destinations."""
ONLY = ""
"""The one node type of a graph without types."""
Rows = dict[str, Tensor]
"""Rows of nodes, or their numbers, by node type."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Holds the in-edges of some own nodes, in numbers of its own.

    Args:
        targets: The nodes whose in-edges these are, as positions among own nodes, ascending.
        own: The own nodes that have numbers: targets come first, then others that are read; as positions.
        exchanges: Receive the nodes of other processes that are read, whose numbers come next.
        edge_index: [2, E'] int64 by relation.
        edges: [E'] int64, positions of the edges among those of the process.
    """

    targets: Rows
    own: Rows
    exchanges: dict[str, Exchange]
    edge_index: dict[Key, Tensor]
    edges: dict[Key, Tensor]

    def start(self, x: Rows) -> Callable[[], Rows]:
        """Begins to exchange rows of own nodes; returns a function that waits for all rows that have numbers."""
        waits = {kind: self.exchanges[kind].start(rows) for kind, rows in x.items()}
        return lambda: {kind: torch.cat([x[kind][self.own[kind]], wait()]) for kind, wait in waits.items()}

    def start_back(self, gradients: Rows, totals: Rows) -> Callable[[], None]:
        """Begins to send gradients of all rows that have numbers; returns a function that adds them up.

        Args:
            totals: Gradients of own nodes, which are added to.
        """
        waits: dict[str, Callable[[], Tensor]] = {}
        for kind, rows in gradients.items():
            count = len(self.own[kind])
            totals[kind].index_add_(0, self.own[kind].to(rows.device), rows[:count])
            waits[kind] = self.exchanges[kind].start_back(rows[count:])

        def wait() -> None:
            for kind, received in waits.items():
                rows = received()
                totals[kind].index_add_(0, self.exchanges[kind].sent.to(rows.device), rows)

        return wait

    def received(self, sizes: Mapping[str, int]) -> int:
        """Returns the bytes of rows of other processes, given the bytes of a row by node type."""
        return sum(size * sum(self.exchanges[kind].receives) for kind, size in sizes.items())

    def held(self, sizes: Mapping[str, int]) -> int:
        """Returns the bytes of all rows that have numbers, given the bytes of a row by node type."""
        return self.received(sizes) + sum(size * len(self.own[kind]) for kind, size in sizes.items())


@dataclass(frozen=True)
class Part:
    """Holds the nodes of a process and their in-edges.

    Args:
        group: The processes.
        owners: [N] int64, the process of each node of the whole graph.
        own: The nodes of this process, ascending.
        index: [2, E'] int64, the in-edges of these nodes, in numbers of the whole graph.
    """

    group: dist.ProcessGroup
    owners: Rows
    own: Rows
    index: dict[Key, Tensor]

    def piece(self, targets: Rows) -> Piece:
        """Returns the in-edges of some own nodes; all processes make a piece together.

        Args:
            targets: Positions among own nodes, ascending.
        """
        rank, edges = dist.get_rank(self.group), self._edges(targets)
        parts = {key: index[:, edges[key]] for key, index in self.index.items()}
        exchanges: dict[str, Exchange] = {}
        numbers: Rows = {}
        taken: Rows = {}
        for kind, owners in self.owners.items():
            ends = [part[0] for key, part in parts.items() if key[0] == kind]
            read = torch.cat([*ends, owners.new_empty(0)]).unique()
            mine = owners[read] == rank
            others = torch.searchsorted(self.own[kind], read[mine])
            others = others[~torch.isin(others, targets[kind])]
            taken[kind] = torch.cat([targets[kind], others])
            read = read[~mine]
            read = read[owners[read].sort(stable=True).indices]  # process by process
            exchanges[kind] = Exchange(owners, read, self.group)
            named = torch.cat([self.own[kind][taken[kind]], read])
            numbers[kind] = owners.new_full((len(owners),), -1)
            numbers[kind][named] = torch.arange(len(named))
        index = {key: torch.stack([numbers[key[0]][p[0]], numbers[key[2]][p[1]]]) for key, p in parts.items()}
        return Piece(targets, taken, exchanges, index, edges)

    def pieces(self, count: int) -> list[Piece]:
        """Returns the in-edges of all own nodes: first of those that read no other process, then of the others.

        Args:
            count: The number of pieces of each kind, with about as many edges and nodes each.
        """
        divided = {kind: self._divided(kind, count) for kind in self.owners}
        return [self.piece({kind: own[number] for kind, own in divided.items()}) for number in range(2 * count)]

    def _divided(self, kind: str, count: int) -> list[Tensor]:
        """Returns positions of own nodes: successive shares of those that read no other process, then of the others."""
        reads = torch.zeros(len(self.own[kind]), dtype=torch.bool)
        work = torch.ones(len(self.own[kind]), dtype=torch.int64)
        for key, (src, dst) in self.index.items():
            if key[2] == kind:
                targets = torch.searchsorted(self.own[kind], dst)
                work.index_add_(0, targets, torch.ones_like(targets))
                reads[targets[self.owners[key[0]][src] != dist.get_rank(self.group)]] = True
        found: list[Tensor] = []
        for nodes in ((~reads).nonzero().view(-1), reads.nonzero().view(-1)):
            done = work[nodes].cumsum(0)
            shares = (done - 1) * count // max(int(work[nodes].sum()), 1)
            found += [nodes[shares == share] for share in range(count)]
        return found

    def _edges(self, targets: Rows) -> dict[Key, Tensor]:
        """Returns the positions of the in-edges of own nodes."""
        found: dict[Key, Tensor] = {}
        for key, index in self.index.items():
            wanted = torch.zeros(len(self.owners[key[2]]), dtype=torch.bool)
            wanted[self.own[key[2]][targets[key[2]]]] = True
            found[key] = wanted[index[1]].nonzero().view(-1)
        return found
