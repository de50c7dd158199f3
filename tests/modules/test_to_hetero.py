"""Models that PyG's `to_hetero` makes: one program for the copies of a layer into each type."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.capture.captured import captured
from tests.modules.hetero_layers import MIXED, K, Key, M, edge_index_dict, x_dict
from tests.modules.layers import assert_close, pyg

KEYS = [*MIXED, ("b", "r5", "c")]
METADATA = (["a", "b", "c"], KEYS)
EDGES = edge_index_dict(KEYS)


class Model(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList([first, second])
        self.lin = nn.Linear(K, M)
        self.weighted = isinstance(second, pyg().GraphConv)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.convs[0](x, edge_index).relu()
        weights = (edge_weight,) if self.weighted else ()
        return torch.add(self.convs[1](h, edge_index, *weights), self.lin(x))


def transformed(model: nn.Module, aggr: str) -> nn.Module:
    hetero = pyg().to_hetero(model, METADATA, aggr).double()
    for seed, parameter in enumerate(hetero.parameters()):
        generator = torch.Generator().manual_seed(seed)
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64, generator=generator) * 0.5
    return hetero


def compiled_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, CompiledLayer)]


def outcome(model: nn.Module, weights: dict[Key, Tensor] | None = None) -> list[Tensor]:
    """Results, and gradients by features and parameters."""
    x = {name: value.requires_grad_() for name, value in x_dict().items()}
    results = list(model(x, EDGES, weights).values())
    total = torch.stack([(r * torch.arange(1.0, 1 + r.numel()).cos().view(r.shape)).sum() for r in results]).sum()
    return [*results, *torch.autograd.grad(total, [*x.values(), *model.parameters()])]


@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_outputs_gradients_and_names(aggr: str) -> None:
    model = transformed(Model(pyg().SAGEConv((K, K), M), pyg().GraphConv((M, M), M)), aggr)
    optimized = dacergnn.optimize(model, on_unsupported="error")
    assert len(compiled_names(optimized)) == 2 * len(KEYS)
    assert list(optimized.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(optimized.parameters(), model.parameters(), strict=True))
    weights = {key: torch.rand(index.size(1), dtype=torch.float64) for key, index in EDGES.items()}
    for given in (None, weights):
        assert_close(outcome(optimized, given), outcome(model, given), 1e-9)
    texts = "\n".join(text for graph in captured(optimized) for text in graph.texts)
    assert "relations(" in texts


@pytest.mark.parametrize(("name", "options"), [
    ("GATConv", {"add_self_loops": False}),
    ("GATv2Conv", {"add_self_loops": False, "residual": True}),
    ("TransformerConv", {}),
])  # fmt: skip
def test_copies_and_originals(name: str, options: dict[str, bool]) -> None:
    attends = getattr(pyg(), name)((K, K), 4, heads=2, **options)
    model = transformed(Model(attends, pyg().SAGEConv((M, M), M)), "sum")
    optimized = dacergnn.optimize(model, on_unsupported="error")
    expected = outcome(model)
    others = [copy.deepcopy(optimized), dacergnn.revert(optimized)]
    assert [len(compiled_names(other)) for other in others] == [2 * len(KEYS), 0]
    for other in others:
        assert_close(outcome(other), expected, 1e-9)
    assert len(model.get_submodule("convs.0")) == len(KEYS)  # pyright: ignore[reportArgumentType]


def test_dropout() -> None:
    model = transformed(
        Model(pyg().SAGEConv((K, K), M), pyg().GATConv((M, M), M, add_self_loops=False, dropout=0.5)), "mean"
    )
    optimized = dacergnn.optimize(model, on_unsupported="error")
    torch.manual_seed(1)
    found = outcome(optimized)
    torch.manual_seed(1)
    assert_close(found, outcome(model), 1e-9)


class Shared(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(self.conv(x, edge_index).relu(), edge_index)


class Between(Shared):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index.flip(0))


@pytest.mark.parametrize(
    ("make", "aggr"),
    [
        (lambda: Shared(pyg().SAGEConv((K, K), K)), "sum"),
        (lambda: Shared(pyg().ResGatedGraphConv((K, K), K)), "sum"),
        (lambda: Between(pyg().SAGEConv((K, K), K)), "sum"),
        (lambda: Model(pyg().SAGEConv((K, K), M), pyg().GraphConv((M, M), M)), "max"),
    ],
)
def test_other_calls(make: Callable[[], nn.Module], aggr: str) -> None:
    model = transformed(make(), aggr)
    optimized = dacergnn.optimize(model, on_unsupported="error")
    assert type(optimized).__name__ == type(model).__name__
    assert len(compiled_names(optimized)) == sum(hasattr(m, "propagate") for m in model.modules())
