"""Exchanges rows of nodes between processes, and their gradients the other way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dacergnn.errors import DistributedError
from dacergnn.runtime.dynamo import skipped_by_dynamo

Move = Callable[[Tensor], Tensor]


def equal_everywhere(number: int, group: dist.ProcessGroup) -> bool:
    """Tells whether all processes of a group, which call this together, have the same number."""
    numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(numbers, torch.tensor([number]), group=group)
    return all(int(other) == number for other in numbers)


class Channel:
    """Moves rows between the processes of a group, which all make it together, and call it together.

    Args:
        group: The group of processes.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.bytes_received = 0
        """Holds the bytes that other processes have sent to this one."""
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def counted(self, counts: list[int]) -> list[int]:
        """Returns what the processes have for this one, given what this one has for each of them."""
        return self._start(torch.tensor(counts), [1] * self.size, [1] * self.size)().tolist()

    def _start(self, rows: Tensor, sends: list[int], receives: list[int]) -> Callable[[], Tensor]:
        """Begins to send rows, process by process; returns a function that waits for those that arrive.

        Raises:
            DistributedError: Another process has failed.
        """
        received = rows.new_empty((sum(receives), *rows.shape[1:]))
        try:
            work: Any = dist.all_to_all_single(
                received, rows.contiguous(), receives, sends, group=self.group, async_op=True
            )
        except RuntimeError as error:
            raise self._failed(error) from None
        under_way = [(work, received)]

        def wait() -> Tensor:
            work, received = under_way.pop()  # whoever keeps this function keeps no rows
            try:
                work.wait()
            except RuntimeError as error:
                raise self._failed(error) from None
            own = receives[self.rank] * (received.nbytes // max(len(received), 1))
            self.bytes_received += received.nbytes - own
            return received

        del work, received
        return wait

    def _failed(self, error: RuntimeError) -> DistributedError:
        who = f"process {self.rank} of {self.size} cannot exchange rows, since another one has failed or is too late"
        return DistributedError(f"{who}; see its own error, and start again from a checkpoint ({error}).")


class Exchange(Channel):
    """Sends rows of own nodes to the processes that read them, and receives the rows that this one reads.

    Args:
        owners: [N] int64, the process that each node of the whole graph belongs to.
        read: [H] int64, the nodes of other processes that this one reads, ascending within each process.
        group: The group of processes.
    """

    def __init__(self, owners: Tensor, read: Tensor, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self.read = read
        own = (owners == self.rank).nonzero().view(-1)
        self.own_count = len(own)
        self.receives: list[int] = torch.bincount(owners[read], minlength=self.size).tolist()
        self.sends = self.counted(self.receives)
        asked = self._start(read, self.receives, self.sends)()
        self.sent = torch.searchsorted(own, asked)
        """Holds [S] int64, the own rows that others read, process by process."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Returns [own + H, ...]: the rows of own nodes, then those of the nodes that are read; differentiable.

        Args:
            rows: [own, ...].

        Raises:
            DistributedError: Another process has failed.
        """
        return _Exchanged.apply(self._gather, self._scatter, rows)  # pyright: ignore[reportUnknownMemberType, reportReturnType]

    def added_up(self, rows: Tensor) -> Tensor:
        """Returns [own, ...]: the rows of own nodes, plus those that other processes have for them; differentiable.

        Args:
            rows: [own + H, ...] of own nodes, then of the nodes that are read.

        Raises:
            DistributedError: Another process has failed.
        """
        return _Exchanged.apply(self._scatter, self._gather, rows)  # pyright: ignore[reportUnknownMemberType, reportReturnType]

    def start(self, rows: Tensor) -> Callable[[], Tensor]:
        """Begins to exchange rows, and returns a function that waits for those received, [H, ...].

        Args:
            rows: [own, ...] the rows of own nodes.
        """
        return self._start(rows.index_select(0, self.sent.to(rows.device)), self.sends, self.receives)

    def start_back(self, rows: Tensor) -> Callable[[], Tensor]:
        """Begins to send [H, ...] to where these rows came from; returns a function that waits for [S, ...]."""
        return self._start(rows, self.receives, self.sends)

    def _gather(self, rows: Tensor) -> Tensor:
        """Returns own rows, then received ones."""
        return torch.cat([rows, self.start(rows)()])

    def _scatter(self, rows: Tensor) -> Tensor:
        """Returns [own, ...]: the own rows of [own + H, ...], plus what others have for them, process by process."""
        received = self.start_back(rows[self.own_count :])()
        return rows[: self.own_count].clone().index_add_(0, self.sent.to(rows.device), received)


class EdgeExchange(Channel):
    """Moves a value of each edge from the process of its destination to that of its source.

    Args:
        owners: [E'] int64, the process of the source of each edge that ends at an own node.
        group: The group of processes.
    """

    def __init__(self, owners: Tensor, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self._order = owners.sort(stable=True).indices
        self._sends: list[int] = torch.bincount(owners, minlength=self.size).tolist()
        self._receives = self.counted(self._sends)

    def __call__(self, values: Tensor) -> Tensor:
        """Returns [E'', ...], values of the edges that start at own nodes, process by process; differentiable.

        Args:
            values: [E', ...] of the edges that end at own nodes.

        Raises:
            DistributedError: Another process has failed.
        """
        return _Exchanged.apply(self._there, self._back, values)  # pyright: ignore[reportUnknownMemberType, reportReturnType]

    def _there(self, values: Tensor) -> Tensor:
        return self._start(values.index_select(0, self._order.to(values.device)), self._sends, self._receives)()

    def _back(self, values: Tensor) -> Tensor:
        received = self._start(values, self._receives, self._sends)()
        return torch.empty_like(received).index_copy_(0, self._order.to(values.device), received)


class _Exchanged(torch.autograd.Function):
    """Moves rows between processes; the gradients move the other way, by a function that is differentiable alike."""

    @staticmethod
    def forward(ctx: Any, there: Move, back: Move, rows: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.there, ctx.back = there, back
        return there(rows)

    @staticmethod
    @skipped_by_dynamo
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, _Exchanged.apply(ctx.back, ctx.there, gradient)  # pyright: ignore[reportUnknownMemberType]
