"""Gradients that do not exist: of parameters that only lead to results which nobody differentiates.

A layer over several types computes the results of all types at once, so that its program has a gradient for every
parameter. In the original, what a backward does not reach keeps the gradient None, and optimizers leave it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dacergnn.runtime.transformed import is_transformed
from dacergnn.runtime.typed_rows import join_rows, split_rows


@dataclass(frozen=True)
class Results:
    """The results of a program over several types, and which of them its first parts lead to.

    Args:
        count: The number of results.
        leads_to: For each of these parts, positions of results; none for one that the program does not use.
    """

    count: int
    leads_to: Sequence[Sequence[int]]


class Reached:
    """Which results of one call the backward that runs at the moment comes from."""

    def __init__(self, count: int) -> None:
        self.count = count
        """The number of results."""
        self.results: list[bool] = []
        self._matters = False

    def parts(self, parts: Sequence[Tensor], leads_to: Sequence[Sequence[int]]) -> list[Tensor]:
        """Returns the parameters of a call, whose gradients exist where a result that they lead to is reached.

        Args:
            leads_to: Positions of results, for each parameter; none for one that the call does not use.
        """
        if not torch.is_grad_enabled() or is_transformed() or torch.compiler.is_compiling():
            return [*parts]
        trained = [i for i, part in enumerate(parts) if len(leads_to[i]) < self.count and part.requires_grad]
        found = [*parts]
        self._matters = bool(trained)
        if trained:
            own: Sequence[Tensor] = _Parts.apply(self, [leads_to[i] for i in trained], *[parts[i] for i in trained])  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
            for i, part in zip(trained, own, strict=True):
                found[i] = part
        return found

    def split(self, rows: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        """Returns the rows of each result."""
        if not self._matters:
            return split_rows(rows, sizes)
        return _Results.apply(self, tuple(sizes), rows)  # pyright: ignore[reportUnknownMemberType, reportReturnType]


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reached: Reached, leads_to: Sequence[Sequence[int]], *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.reached, ctx.leads_to = reached, leads_to
        return parts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        results = ctx.reached.results
        pairs = zip(gradients, ctx.leads_to, strict=True)
        return (None, None, *[g if any(results[i] for i in places) else None for g, places in pairs])


class _Results(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reached: Reached, sizes: tuple[int, ...], rows: Tensor) -> tuple[Tensor, ...]:
        ctx.reached, ctx.sizes = reached, sizes
        ctx.row = rows.shape[1:]
        ctx.set_materialize_grads(False)
        return rows.split(list(sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.reached.results = [g is not None for g in gradients]
        like = next((g for g in gradients if g is not None), None)
        if like is None:
            return None, None, None
        pairs = zip(gradients, ctx.sizes, strict=True)
        return None, None, join_rows([like.new_zeros(n, *ctx.row) if g is None else g for g, n in pairs])
