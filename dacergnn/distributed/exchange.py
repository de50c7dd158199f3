"""Exchanges rows of nodes between processes, and their gradients the other way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dacergnn.errors import DistributedError

Move = Callable[[Tensor], Tensor]


class Exchange:
    """Sends rows of own nodes to the processes that read them, and receives the rows that this one reads.

    All processes of the group make it together, and call it together.

    Args:
        owners: [N] int64, the process that each node of the whole graph belongs to.
        read: [H] int64, the nodes of other processes that this one reads, ascending within each process.
        group: The group of processes.
    """

    def __init__(self, owners: Tensor, read: Tensor, group: dist.ProcessGroup) -> None:
        self.group, self.read = group, read
        self.bytes_received = 0
        """Holds the bytes that other processes have sent to this one."""
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        own = (owners == self.rank).nonzero().view(-1)
        self.own_count = len(own)
        self.receives: list[int] = torch.bincount(owners[read], minlength=self.size).tolist()
        counts = self._all_to_all(torch.tensor(self.receives), [1] * self.size, [1] * self.size)
        self.sends: list[int] = counts.tolist()
        asked = self._all_to_all(read, self.receives, self.sends)
        self.sent = torch.searchsorted(own, asked)
        """Holds [S] int64, the own rows that others read, process by process."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Returns [own + H, ...]: the rows of own nodes, then those of the nodes that are read; differentiable.

        Args:
            rows: [own, ...].

        Raises:
            DistributedError: Another process has failed.
        """
        return _Exchanged.apply(self.gather, self.scatter, rows)  # pyright: ignore[reportUnknownMemberType, reportReturnType]

    def gather(self, rows: Tensor) -> Tensor:
        """Returns own rows, then received ones."""
        received = self._all_to_all(rows.index_select(0, self.sent), self.sends, self.receives)
        return torch.cat([rows, received])

    def scatter(self, rows: Tensor) -> Tensor:
        """Returns [own, ...]: the own rows of [own + H, ...], plus what others have for them, process by process."""
        own, read = rows[: self.own_count], rows[self.own_count :].contiguous()
        return own.clone().index_add_(0, self.sent, self._all_to_all(read, self.receives, self.sends))

    def _all_to_all(self, rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        received = rows.new_empty((sum(receives), *rows.shape[1:]))
        try:
            dist.all_to_all_single(received, rows.contiguous(), receives, sends, group=self.group)
        except RuntimeError as error:
            who = (
                f"process {self.rank} of {self.size} cannot exchange rows, since another one has failed or is too late"
            )
            raise DistributedError(f"{who}; see its own error, and start again from a checkpoint ({error}).") from None
        own = receives[self.rank] * (received.nbytes // max(len(received), 1))
        self.bytes_received += received.nbytes - own
        return received


class _Exchanged(torch.autograd.Function):
    """Moves rows between processes; the gradients move the other way, by a function that is differentiable alike."""

    @staticmethod
    def forward(ctx: Any, there: Move, back: Move, rows: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.there, ctx.back = there, back
        return there(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, _Exchanged.apply(ctx.back, ctx.there, gradient)  # pyright: ignore[reportUnknownMemberType]
