"""Layers whose network makes a matrix of each edge: results, gradients and memory without any of these matrices."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from tests.modules.layers import assert_close, compiled, pyg

K, M, D, H, N = 9, 5, 3, 8, 14
F64 = torch.float64
GRAPHS: dict[str, Any] = {
    "isolated nodes": lambda: torch.randint(0, N - 4, (2, 80)),
    "no edges": lambda: torch.zeros(2, 0, dtype=torch.int64),
    "one edge": lambda: torch.tensor([[3], [N - 1]]),
    "one destination": lambda: torch.stack([torch.randint(0, N, (90,)), torch.full((90,), 5)]),
    "few edges": lambda: torch.randint(0, N, (2, N // 2)),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "sum": {},
    "mean": {"aggr": "mean"},
    "max": {"aggr": "max"},
    "no root, no bias": {"root_weight": False, "bias": False},
}


def layer(*, last_bias: bool = True, sizes: tuple[int, int, int, int] = (K, M, D, H), **options: Any) -> nn.Module:
    torch.manual_seed(4)
    k, m, d, h = sizes
    network = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, k * m, bias=last_bias))
    return pyg().NNConv(k, m, network, **options)


def arguments(
    edge_index: Tensor, sizes: tuple[int, int, int, int] = (K, M, D, H), nodes: int = N
) -> tuple[Tensor, ...]:
    torch.manual_seed(5)
    return torch.randn(nodes, sizes[0]), edge_index, torch.randn(edge_index.size(1), sizes[2])


def outcome(model: nn.Module, args: tuple[Tensor, ...], dtype: torch.dtype = F64) -> list[Tensor]:
    """The output, and gradients by x, the features of edges and all parameters."""
    x, edge_index, edge_attr = args
    x, edge_attr = (value.to(dtype).requires_grad_() for value in (x, edge_attr))
    out = model(x, edge_index, edge_attr)
    total = (out * torch.linspace(-1, 1, out.numel(), dtype=dtype).view(out.shape)).sum()
    inputs = [x, edge_attr, *model.parameters()]
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [out, *(torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True))]


def orders(model: Any) -> list[str]:
    """The orders of sums and products that the layer's builds have taken."""
    (report,) = dacergnn.explain(model).layers
    asked = [q for b in report.builds for name, q in b.questions.items() if "aggregation_order" in name]
    return [q.answer for q in asked if "sum_outer_products" in q.options]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_results_and_gradients(graph: str, options: str) -> None:
    torch.manual_seed(6)
    original, args = layer(**OPTIONS[options]).double(), arguments(GRAPHS[graph]())
    assert_close(outcome(compiled(copy.deepcopy(original)), args), outcome(original, args), 1e-11)


@pytest.mark.compiled
@pytest.mark.parametrize("options", [{}, {"aggr": "mean", "last_bias": False}], ids=["sum", "mean, no bias"])
def test_kernels(options: dict[str, Any]) -> None:
    """On many edges, with kernels in place of NumPy, which never see a matrix of an edge."""
    original, args = layer(**options).double(), arguments(torch.randint(0, 60, (2, 900)), nodes=60)
    found = compiled(copy.deepcopy(original))
    assert_close(outcome(found, args), outcome(original, args), 1e-11)
    assert orders(found) == ["sum_outer_products"]


@pytest.mark.compiled
@pytest.mark.parametrize("options", [{"tune": "model"}, {"caching": "recompute_all"}], ids=["tuned", "recompute all"])
def test_choices_around_the_order(options: dict[str, Any]) -> None:
    original, args = layer().double(), arguments(torch.randint(0, 60, (2, 900)), nodes=60)
    found = dacergnn.optimize(copy.deepcopy(original), config=Config(**options), on_unsupported="error")
    assert_close(outcome(found, args), outcome(original, args), 1e-11)
    assert orders(found) == ["sum_outer_products"]


@pytest.mark.parametrize(
    ("nodes", "edges", "expected"), [(60, 900, "sum_outer_products"), (900, 60, "keep")], ids=["many edges", "few"]
)
def test_order_by_cost(nodes: int, edges: int, expected: str) -> None:
    sizes = (16, 16, D, 16)
    model = compiled(layer(sizes=sizes))
    outcome(model, arguments(torch.randint(0, nodes, (2, edges)), sizes, nodes), torch.float32)
    assert orders(model) == [expected]


@pytest.mark.compiled
def test_memory() -> None:
    """The original keeps the matrices of all edges, and the backward their gradients: ours takes less than a tenth."""
    sizes, nodes, edges = (32, 32, 16, 32), 6_000, 60_000
    model = compiled(layer(sizes=sizes))
    outcome(model, arguments(torch.randint(0, nodes, (2, edges)), sizes, nodes), torch.float32)
    (report,) = dacergnn.explain(model).layers
    (build,) = report.builds
    assert build.saved_bytes + build.workspace_bytes < 2 * edges * 32 * 32 * 4 / 10


class Model(nn.Module):
    """A layer among functions of torch, which is captured as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = layer(), layer(sizes=(M, M, D, H), aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index, edge_attr).tanh(), edge_index, edge_attr) + 1.0


def test_captured_models() -> None:
    torch.manual_seed(6)
    model, args = Model().double(), arguments(torch.randint(0, N, (2, 90)))
    expected = outcome(model, args)
    assert_close(outcome(torch.compile(copy.deepcopy(model), backend="dacergnn"), args), expected, 1e-11)
    x, edge_index, edge_attr = args
    with torch.no_grad():
        found = dacergnn.inference(model.eval(), edge_index, x.double(), batch=5, edge_attr=edge_attr.double())
    assert_close([found], expected[:1], 1e-11)
