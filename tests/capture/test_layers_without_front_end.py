"""Layers without a front end: captured, compiled, and equal to what they are without it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import GraphError, UnsupportedCallError
from dacergnn.modules import CompiledLayer
from dacergnn.modules.capture.captured_forward import CapturedForward
from tests.modules.layers import assert_close, pyg

N, E, K, M, D = 17, 60, 6, 8, 3
F64 = torch.float64
Case = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(sum(shape)))


def edges() -> Tensor:
    return torch.randint(0, N, (2, E), generator=torch.Generator().manual_seed(2))


def weights() -> Tensor:
    return draw(E).abs()


def mlp(*channels: int) -> nn.Module:
    return nn.Sequential(nn.Linear(channels[0], channels[1]), nn.ReLU(), nn.Linear(channels[1], channels[-1]))


def captured(layer: nn.Module, **options: Any) -> CompiledLayer:
    found = dacergnn.optimize(layer, **options)
    assert isinstance(found.runner, CapturedForward)
    return found


def same(inputs: Tensor) -> Tensor:
    return inputs


def own(layer: Any) -> Any:
    """A layer that has a front end, but a method of its own as well, so that it is traced."""
    layer.update = same
    return layer


def own_message(kind: Any) -> Any:
    """A class that says anew what a layer of PyG does, which thus is not known to compute the same."""

    class Own(kind):
        def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
            return super().message(x_i, x_j)

    return Own


CASES: dict[str, Case] = {
    "GCNConv": lambda: (own(pyg().GCNConv(K, M)), (draw(N, K), edges(), weights())),
    "SAGEConv": lambda: (own(pyg().SAGEConv(K, M, normalize=True)), (draw(N, K), edges())),
    "GraphConv of the other direction": lambda: (
        pyg().GraphConv(K, M, flow="target_to_source"), (draw(N, K), edges(), weights())
    ),
    "bipartite GraphConv": lambda: (
        pyg().GraphConv((K, D), M, aggr="max"), ((draw(N, K), draw(N + 4, D)), edges(), weights(), (N, N + 4))
    ),
    "SuperGATConv": lambda: (pyg().SuperGATConv(K, 4, heads=2).eval(), (draw(N, K), edges())),
    "TransformerConv": lambda: (
        pyg().TransformerConv(K, 4, heads=2, beta=True, edge_dim=D), (draw(N, K), edges(), draw(E, D))
    ),
    "GINEConv": lambda: (
        pyg().GINEConv(mlp(K, M, M), train_eps=True, edge_dim=D), (draw(N, K), edges(), draw(E, D))
    ),
    "EdgeConv": lambda: (own_message(pyg().EdgeConv)(mlp(2 * K, M, M)), (draw(N, K), edges())),
    "CGConv": lambda: (pyg().CGConv(K, D, batch_norm=True), (draw(N, K), edges(), draw(E, D))),
    "NNConv": lambda: (pyg().NNConv(K, 4, nn.Linear(D, K * 4)), (draw(N, K), edges(), draw(E, D))),
    "APPNP": lambda: (pyg().APPNP(2, 0.1), (draw(N, K), edges())),
    "ResGatedGraphConv": lambda: (pyg().ResGatedGraphConv(K, M), (draw(N, K), edges())),
    "ARMAConv": lambda: (pyg().ARMAConv(K, M, num_stacks=3, num_layers=2), (draw(N, K), edges())),
    "FiLMConv": lambda: (
        pyg().FiLMConv(K, M, num_relations=2), (draw(N, K), edges(), torch.arange(E).remainder(2))
    ),
}  # fmt: skip


def outcome(layer: nn.Module, args: Any) -> list[Tensor]:
    """The output, and gradients by x and all parameters."""
    first, *others = args
    x, rest = (first[0], first[1:]) if isinstance(first, tuple) else (first, None)
    x = x.clone().requires_grad_()
    out = layer(x if rest is None else (x, *rest), *others)
    total = (out * torch.arange(1.0, 1.0 + out.numel(), dtype=F64).cos().view(out.shape)).sum()
    return [out, *torch.autograd.grad(total, [x, *layer.parameters()])]


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str) -> None:
    torch.manual_seed(3)
    layer, args = CASES[name]()
    layer = layer.double()
    optimized = captured(copy.deepcopy(layer))
    assert_close(outcome(optimized, args), outcome(layer, args), 1e-8)
    assert optimized.refusal is None
    assert_close(outcome(optimized, args), outcome(layer, args), 1e-8)
    encoded = optimized.graphs.encoded
    assert encoded > 0
    assert_close(outcome(optimized, args), outcome(layer, args), 1e-8)
    assert optimized.graphs.encoded == encoded
    assert str(dacergnn.explain(optimized)).startswith(f"(model): {type(layer).__name__} compiled for ")


def attention_layer() -> Any:
    library = pyg()
    from torch_geometric.utils import scatter, softmax

    class Attention(library.MessagePassing):
        """What a user writes: a helper method, a softmax over neighbours, an aggregation of her own."""

        def __init__(self) -> None:
            super().__init__(aggr=None, node_dim=0)
            self.lin = nn.Linear(K, 2 * 4)
            self.score = nn.Parameter(torch.randn(1, 2, 4))
            self.calls = 0

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.calls += 1
            h = self.lin(x).view(-1, 2, 4)
            return F.elu(self.propagate(edge_index, h=h, size=(x.size(0), x.size(0)))) + h.flatten(1)

        def logits(self, a: Tensor, b: Tensor) -> Tensor:
            return F.leaky_relu((torch.tanh(a - b) * self.score).sum(dim=-1), 0.1)

        def message(self, h_i: Tensor, h_j: Tensor, index: Tensor, size_i: int) -> Tensor:
            alpha = softmax(self.logits(h_i, h_j), index, num_nodes=size_i)
            return h_j * alpha[..., None]

        def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
            return scatter(inputs, index, self.node_dim, dim_size, reduce="sum")

        def update(self, inputs: Tensor) -> Tensor:
            return inputs.view(-1, 8)

    torch.manual_seed(4)
    return Attention().double()


def test_a_layer_of_ones_own() -> None:
    layer = attention_layer()
    optimized = captured(layer)
    args = (draw(N, K), edges())
    assert_close(outcome(optimized, args), outcome(layer, args), 1e-8)
    assert layer.calls == 2
    assert optimized.refusal is None
    assert optimized.original is layer


def test_state_that_a_call_sets_is_kept() -> None:
    args = (draw(N, K), edges())
    layer = own(pyg().GCNConv(K, M, cached=True)).double()
    optimized = captured(layer)
    expected = optimized(*args)
    cached, norm = layer._cached_edge_index
    assert type(cached) is type(norm) is Tensor
    assert_close(optimized(*args), expected, 1e-12)
    assert optimized.graphs.encoded == 1


@pytest.mark.parametrize(
    "make", [lambda: pyg().TransformerConv(K, 4, heads=2, dropout=0.5), lambda: pyg().APPNP(2, 0.1, 0.5)]
)
def test_dropout_in_training(make: Callable[[], nn.Module]) -> None:
    layer = make().double()
    optimized = captured(layer)
    args = (draw(N, K), edges())
    results: list[list[Tensor]] = []
    for module in (optimized, layer):
        torch.manual_seed(5)
        results.append(outcome(module, args))
    assert_close(*results, 1e-8)
    assert optimized.refusal is None


def test_modules_on_nodes_run_in_torch() -> None:
    inner = nn.Sequential(nn.Linear(K, M), nn.BatchNorm1d(M), nn.ReLU(), nn.Dropout(0.3), nn.Linear(M, M))
    layer = own(pyg().GINConv(inner)).double()
    other = copy.deepcopy(layer)
    args, results = (draw(N, K), edges()), []
    for module in (captured(layer), other):
        torch.manual_seed(6)
        results.append(outcome(module, args))
    assert_close(*results, 1e-8)
    assert_close(list(layer.buffers()), list(other.buffers()), 1e-10)


@pytest.mark.parametrize("then", ["GraphNorm", "InstanceNorm", "global_mean_pool", "global_max_pool"])
def test_rows_of_several_graphs_are_normalized_and_pooled_in_torch(then: str) -> None:
    library, batch = pyg(), torch.arange(N) // 6

    class Batched(library.MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")
            self.lin = nn.Linear(K, M)
            self.norm = getattr(library, then)(M) if then.endswith("Norm") else None

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.propagate(edge_index, x=self.lin(x))
            h = h + getattr(library, then)(h, batch)[batch] if self.norm is None else self.norm(h, batch)
            return self.propagate(edge_index, x=h)

        def message(self, x_j: Tensor) -> Tensor:
            return x_j.tanh()

    layer = Batched().double()
    optimized = captured(copy.deepcopy(layer), on_unsupported="error")
    for _ in range(2):
        assert_close(outcome(optimized, (draw(N, K), edges())), outcome(layer, (draw(N, K), edges())), 1e-8)


def sorted_layer() -> Any:
    class Sorted(pyg().MessagePassing):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(K)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=F.dropout(self.norm(x), 0.5, self.training))

        def message(self, x_j: Tensor) -> Tensor:
            return torch.sort(x_j, dim=1).values

    return Sorted().double()


SORT = (
    r"^Sorted runs uncompiled: torch\.sort of a value per edge has no form in a program "
    r"\(test_layers_without_front_end\.py, line \d+, in message\)\.$"
)


def test_what_has_no_form_runs_the_original_as_if_nothing_had_been_tried() -> None:
    layer = sorted_layer()
    other, args = copy.deepcopy(layer), (draw(N, K), edges())
    optimized = captured(layer)
    torch.manual_seed(7)
    with pytest.warns(UserWarning, match=SORT) as caught:
        found = optimized(*args)
    assert caught[0].filename == __file__
    torch.manual_seed(7)
    assert_close(found, other(*args), 0)
    assert_close(list(layer.buffers()), list(other.buffers()), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimized(*args)  # the warning came once
    assert str(dacergnn.explain(optimized)).startswith("(model): Sorted runs as it is\n  torch.sort of")


def test_a_batch_without_graphs() -> None:
    layer = own(pyg().SAGEConv(K, M)).double()
    optimized = captured(layer)
    for count in (0, 2, 0):
        args = (draw(1, count, N, K), edges())
        assert_close(optimized(*args), layer(*args), 1e-10)


def test_calls_that_run_the_original() -> None:
    layer = own(pyg().SAGEConv(K, M)).bfloat16()
    args = (draw(N, K).bfloat16(), edges())
    optimized = captured(layer, config=dacergnn.Config(implementation="pure"))
    with pytest.warns(UserWarning, match="runs uncompiled"):
        found = optimized(*args)
    assert_close(found, layer(*args), 0)
    assert optimized.refusal == (
        "a tensor of torch.bfloat16 on cpu; compiled layers take torch.float32 or torch.float64 there; convert it with "
        ".float()."
    )


def test_errors_of_a_call_are_those_of_the_layer() -> None:
    layer = own(pyg().SAGEConv(K, M)).double()
    with pytest.raises(RuntimeError) as expected:
        layer(draw(N, K + 1), edges())
    with pytest.raises(RuntimeError) as found:
        captured(layer)(draw(N, K + 1), edges())
    assert str(found.value) == str(expected.value)


def test_edges_out_of_range() -> None:
    index = edges()
    index[0, 3] = N
    with pytest.raises(GraphError, match=rf"edge_index\[0\].*{N}"):
        captured(own(pyg().SAGEConv(K, M)).double())(draw(N, K), index)


def test_a_failing_original_raises_its_own_error() -> None:
    class Broken(pyg().MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.propagate(edge_index, x=x)
            raise KeyError("x")

        def message(self, x_j: Tensor) -> Tensor:
            return torch.sort(x_j, dim=1).values

    with pytest.raises(KeyError, match="x"):
        captured(Broken())(draw(N, K), edges())


def test_on_unsupported_decides_about_calls() -> None:
    x, edge_index = draw(N, K), edges()
    strict = dacergnn.optimize(sorted_layer(), on_unsupported="error")
    for layer in (strict, copy.deepcopy(strict)):
        with pytest.raises(UnsupportedCallError, match=r"^Sorted cannot be compiled: torch\.sort of a value per edge"):
            layer(x, edge_index)
    layer = sorted_layer().eval()
    silent = dacergnn.optimize(layer, on_unsupported="ignore")
    assert_close(silent(x, edge_index), layer(x, edge_index), 0)
    assert "runs as it is" in str(dacergnn.explain(silent))
