"""What a case of the tests of front ends is: a layer in one mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tests.frontends.graphs import Edges, typed_edges

Call = tuple[tuple[Any, ...], dict[str, Any]]
K, M = 6, 8


@dataclass(frozen=True)
class Case:
    """One mode of one layer.

    Args:
        make: Makes the layer for edges of some graph.
        inputs: Arguments of a call; floating-point tensors of the given dtype, to be differentiated.
        reference: Restatement, called with the layer and the arguments.
        edges: Makes the small graph of the case.
        real: Whether the case runs on real graphs as well.
    """

    name: str
    library: str
    make: Callable[[Edges], nn.Module]
    inputs: Callable[[Edges, torch.dtype], Call]
    reference: Callable[..., Any]
    edges: Callable[[], Edges] = field(default=typed_edges)
    real: bool = False

    def layer(self, edges: Edges, dtype: torch.dtype) -> nn.Module:
        """The layer with every parameter random: libraries leave some at zero, at one or uninitialized."""
        layer = self.make(edges)
        generator = torch.Generator().manual_seed(7)
        for parameter in layer.parameters():
            parameter.data = (torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5).to(dtype)
        return layer


def values(*shape: int, dtype: torch.dtype, seed: int = 3) -> Tensor:
    """Normal values that require a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
