"""Parameters that a layer has under two names: their gradient is the sum over both, however the layer is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.modules import RGAT

pyg: Any = pytest.importorskip("torch_geometric.nn")
EDGES = torch.tensor([[0, 1, 2, 3, 1, 4], [1, 2, 3, 0, 3, 2]])
TYPES = torch.tensor([0, 1, 0, 1, 1, 0])
Calls = tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor]]


def front_end() -> Calls:
    layer = pyg.SAGEConv(8, 8)
    layer.lin_r.weight = layer.lin_l.weight
    return dacergnn.optimize(layer, on_unsupported="error"), lambda f, x: f(x, EDGES)


def traced() -> Calls:
    layer = pyg.GraphConv(8, 8)
    layer.lin_root.weight = layer.lin_rel.weight
    return dacergnn.optimize(layer, on_unsupported="error"), lambda f, x: f(x, EDGES)


def native() -> Calls:
    layer = RGAT(8, 8, 2)
    layer.k = layer.q
    graph = HeteroGraph.from_arrays(EDGES, TYPES, num_nodes=5, num_edge_types=2)
    return layer, lambda f, x: f(x, graph)


WAYS: dict[str, Callable[[nn.Module], Any]] = {
    "called": lambda layer: layer,
    "torch.compile": lambda layer: torch.compile(layer, backend="aot_eager"),
    "autocast": lambda layer: torch.autocast("cpu", torch.bfloat16)(layer.__call__),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [front_end, traced, native])
def test_gradients_add_up(make: Callable[[], Calls], way: str) -> None:
    """The parameter's gradient tells how the loss changes with it."""
    torch.manual_seed(0)
    layer, call = make()
    names = dict(layer.named_parameters(remove_duplicate=False))
    (tied,) = {p for p in names.values() if sum(p is q for q in names.values()) == 2}
    run, x = WAYS[way](layer), torch.randn(5, 8)
    direction, step = torch.randn_like(tied), 1e-2

    def loss() -> Tensor:
        return call(layer, x).square().sum()

    with torch.no_grad():
        tied.add_(direction, alpha=step)
        above = loss()
        tied.add_(direction, alpha=-2 * step)
        below = loss()
        tied.add_(direction, alpha=step)
    for _ in range(3):
        layer.zero_grad()
        call(run, x).float().square().sum().backward()
        assert tied.grad is not None
        slope = (above - below) / (2 * step)
        torch.testing.assert_close((tied.grad * direction).sum(), slope, rtol=5e-2, atol=5e-2 * float(slope.abs()))
