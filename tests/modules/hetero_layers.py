"""`HeteroConv` over a few relations, its arguments, and its results with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.modules.layers import pyg

K, M = 6, 8
F64 = torch.float64
NODES = {"a": 7, "b": 5, "c": 4}
Key = tuple[str, str, str]
# c is no destination; two relations between a and b, one without edges, one within a type.
MIXED: list[Key] = [("a", "r0", "b"), ("c", "r1", "b"), ("b", "r2", "a"), ("a", "r3", "a"), ("a", "r4", "b")]
WITHIN: list[Key] = [("a", "r3", "a"), ("b", "r5", "b"), ("a", "r6", "a")]
Make = Callable[[Any, Key], nn.Module]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(sum(shape)))


def edge_index_dict(keys: list[Key]) -> dict[Key, Tensor]:
    """The last node of each type is isolated, three edges of each relation stand twice, there are self loops."""
    found: dict[Key, Tensor] = {}
    for seed, key in enumerate(keys):
        generator = torch.Generator().manual_seed(seed)
        count = 0 if key[1] == "r1" else 14
        ends = [torch.randint(0, NODES[key[i]] - 1, (count,), generator=generator) for i in (0, 2)]
        found[key] = torch.stack(ends)[:, [*range(count), *range(min(count, 3))]]
    return found


def x_dict(width: int | dict[str, int] = K) -> dict[str, Tensor]:
    return {name: draw(n, width if isinstance(width, int) else width[name]) for name, n in NODES.items()}


def edge_weights(layer: Any, edges: dict[Key, Tensor]) -> dict[Key, Tensor]:
    """For the relations whose layers take them, but for the last; negative ones of r2."""
    weights = {key: draw(index.size(1)).abs() + 0.1 for key, index in list(edges.items())[:-1]}
    taken = {key for key, conv in layer.convs.items() if type(conv).__name__ in ("GraphConv", "GCNConv")}
    return {key: -weight if key[1] == "r2" else weight for key, weight in weights.items() if key in taken}


def hetero(make: Make, keys: list[Key], aggr: str | None = "sum") -> Any:
    library = pyg()
    layer = library.HeteroConv({key: make(library, key) for key in keys}, aggr=aggr).double()
    for parameter in layer.parameters():
        parameter.data = draw(*parameter.shape) * 0.5
    return layer


def outcome(layer: nn.Module, x: dict[str, Tensor], edges: dict[Key, Tensor], weights: dict[Key, Tensor]) -> Any:
    """Names of the results; results and gradients by features, weights of edges and parameters."""
    x, weights = ({k: v.clone().requires_grad_() for k, v in values.items()} for values in (x, weights))
    result = layer(x, edges, **({"edge_weight_dict": weights} if weights else {}))
    total = torch.stack([(v * torch.arange(1.0, 1 + v.numel()).cos().view(v.shape)).sum() for v in result.values()])
    leaves = [*x.values(), *weights.values(), *layer.parameters()]
    found = torch.autograd.grad(total.sum(), leaves, allow_unused=True)
    gradients = [torch.zeros_like(v) if g is None else g for v, g in zip(leaves, found, strict=True)]
    return list(result), [*result.values(), *gradients]
