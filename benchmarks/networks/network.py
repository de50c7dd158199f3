"""Makes the networks that are trained, in the ways that are compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.networks.layers import SIZE, Graph, Kind, Peer, as_original, types_of
from benchmarks.relational.problem import Problem
from dacergnn.api import optimize

LAYERS = 3
ORIGINAL, OURS, COMPILED = "PyG", "ours", "compiled"
"""Names of the candidates that each network has; peers have the names of their library, and a number."""
Made = tuple[Any, Callable[[Graph], tuple[Any, ...]]]
"""A module, and what returns its arguments for a graph."""


class Body(nn.Module):
    """Runs layers, each with a norm, ReLU, dropout and a residual.

    Args:
        bare: Whether only ReLU follows a layer.
    """

    def __init__(self, convs: Sequence[nn.Module], *, bare: bool = False) -> None:
        super().__init__()
        self.convs, self.bare = nn.ModuleList(convs), bare
        self.norms = nn.ModuleList(nn.Identity() if bare else nn.LayerNorm(SIZE) for _ in convs)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = self.block(norm, x, conv(x, edge_index))
        return x

    def block(self, norm: nn.Module, x: Tensor, out: Tensor | None) -> Tensor:
        """Returns what follows a layer; types that it returns no rows for keep theirs."""
        if out is None:
            return x
        return out.relu() if self.bare else x + self.dropout(norm(out).relu())


class Network(Body):
    """Represents a network of layers that take rows of all nodes or a dictionary by type, with a linear head."""

    def __init__(self, convs: Sequence[nn.Module], target: str, *, bare: bool = False) -> None:
        super().__init__(convs, bare=bare)
        self.head, self.target = nn.Linear(SIZE, SIZE), target

    def forward(self, x: Any, *graph: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            out = conv(x, *graph)
            if isinstance(x, Mapping):
                x = {name: self.block(norm, rows, out.get(name)) for name, rows in x.items()}
            else:
                x = self.block(norm, x, out)
        return self.head(x[self.target] if isinstance(x, Mapping) else x)


class Divided(nn.Module):
    """Represents a network for one type that `to_hetero` has divided by types, with a linear head."""

    def __init__(self, body: nn.Module, target: str) -> None:
        super().__init__()
        self.body, self.head, self.target = body, nn.Linear(SIZE, SIZE), target

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> Tensor:
        return self.head(self.body(x, edges)[self.target])


def make_network(
    kind: Kind, problem: Problem, target: str, layers: int = LAYERS, *, bare: bool = False
) -> nn.Module:  # fmt: skip
    """Returns a network whose parameters are the same at each call.

    Args:
        target: The node type whose nodes have labels.
        bare: Whether only ReLU follows a layer.
    """
    torch.manual_seed(0)
    convs = [kind.make(problem) for _ in range(layers)]
    if not kind.to_hetero:
        return Network(convs, target, bare=bare)
    from torch_geometric.nn import to_hetero

    return Divided(to_hetero(Body(convs, bare=bare), types_of(problem)), target)


def candidates(kind: Kind, module: nn.Module) -> dict[str, Callable[[], Made]]:
    """Returns what makes each candidate from a layer, or from a network of such layers."""

    def of_peer(peer: Peer) -> nn.Module:
        made = copy.deepcopy(module)
        if not isinstance(made, Network):
            return peer.make(made)
        made.convs = nn.ModuleList(map(peer.make, made.convs))
        return made

    def through_compiler() -> Any:
        return torch.compile(copy.deepcopy(module), dynamic=True)

    return {
        ORIGINAL: lambda: (copy.deepcopy(module), as_original),
        OURS: lambda: (optimize(copy.deepcopy(module)), as_original),
        **{f"{peer.name} {n}": lambda peer=peer: (of_peer(peer), peer.form) for n, peer in enumerate(kind.peers)},
        COMPILED: lambda: (through_compiler(), as_original),
    }
