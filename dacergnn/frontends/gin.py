"""GIN as a program, for layers of any library."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.convolution_programs import gin
from dacergnn.frontends.features import is_sparse
from dacergnn.frontends.frontend import Frontend, ProgramSource, spec
from dacergnn.frontends.linear import ResultNetwork


class GINProgram(Frontend):
    """Holds the shared part of the front ends of GIN layers: ``network`` is applied to the sums."""

    network: ResultNetwork
    aggr: str

    def check_width(self, x: Tensor) -> int:
        """Returns the number of columns that the features must have."""
        return self.network.shape[1] if self.network.has_linear else x.shape[-1]

    def gin_program(self, x: Tensor, own: str, norm: bool) -> ProgramSource:
        """Returns the program for features like ``x``; ``own`` names the array of own features, and is "" for none."""
        first = self.network.has_linear and self.aggr in ("add", "sum", "mean") and self._narrows(x)
        key = own, norm, first, x.size(1)
        return self.program(key, partial(self._gin, *key))

    def gin_arrays(self, program: ProgramSource, x: Tensor, x_own: Tensor | None, norm: Tensor | None) -> list[Tensor]:
        """Returns the arrays of the program, in order."""
        arrays: dict[str, Any] = {"x": x, "x_own": x_own, "norm": norm}
        arrays |= zip(("W", "bias"), self.network.parameters(self.module), strict=False)
        eps = self.parameters.get("eps")
        arrays["eps"] = eps.to(x.dtype)
        return [arrays[name] for name in program.arrays]

    def _narrows(self, x: Tensor) -> bool:
        """Returns whether it is cheaper to transform features than their sums (Cached Operator Reordering, Table 2).

        The gradient of W is computed from the sums. If features need no gradients, having the sums saves a pass over
        the edges.
        """
        if is_sparse(x):
            return True
        m, k = self.network.shape
        weight_only = torch.is_grad_enabled() and not x.requires_grad
        return 2 * m < k if weight_only else m < k

    def _gin(self, own: str, norm: bool, first: bool, k: int) -> ProgramSource:
        linear, features = self.network.has_linear, "h" if first else "x"
        m = self.network.shape[0] if linear else k
        return ProgramSource.of(
            gin, x=spec("NS", k), x_own=spec("ND", k) if own == "x_own" else None,
            eps=spec("ONE") if own else None, W=spec("ONE", m, k) if linear else None,
            bias=spec("ONE", m) if self.network.has_bias else None, norm=spec("E") if norm else None,
            reduce=self.aggr if self.aggr in ("max", "min") else "sum", transform_first=first, features=features,
            own={"": "", "x": features, "x_own": "h_own" if first else "x_own"}[own],
        )  # fmt: skip
