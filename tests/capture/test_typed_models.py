"""Models of layers with typed edges, and of norms that torch computes: programs hold what lies between."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch_geometric.nn import HeteroConv, RGATConv, RGCNConv, SAGEConv, to_hetero

import dacergnn
from dacergnn.frontends.symbolic.row_sets import MANY_ROWS
from dacergnn.frontends.symbolic.steps import ProgramRun
from dacergnn.modules.capture.captured_forward import BETWEEN, CapturedForward
from dacergnn.modules.graph_forward import compiled_forwards

K, N = 8, MANY_ROWS + 40
KINDS = ["a", "b"]
RELATIONS = [("a", "to", "b"), ("b", "to", "a"), ("a", "near", "a")]
assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


class Typed(nn.Module):
    """Has norms, dropout and residuals between layers that take the types of edges."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.convs: Any = nn.ModuleList([layer() for _ in range(2)])
        self.norms: Any = nn.ModuleList([nn.LayerNorm(K) for _ in range(2)])
        self.head = nn.Linear(K, 3)

    def forward(self, x: Tensor, edges: Tensor, types: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.dropout(norm(conv(x, edges, types)).relu(), 0.25, self.training)
        return self.head(x)


class Hetero(nn.Module):
    """Does so for two types of nodes; nothing reads the last results of one of them."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.convs: Any = nn.ModuleList([layer() for _ in range(2)])
        self.norms: Any = nn.ModuleDict({kind: nn.LayerNorm(K) for kind in KINDS})
        self.head = nn.Linear(K, 3)

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> Tensor:
        for conv in self.convs:
            h = conv(x, edges)
            x = {k: x[k] + F.dropout(self.norms[k](h[k]).relu(), 0.25, self.training) for k in x}
        return self.head(x["a"])


class Plain(nn.Module):
    """Has nothing but an activation between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = RGCNConv(K, K, 3), RGCNConv(K, 3, 3)

    def forward(self, x: Tensor, edges: Tensor, types: Tensor) -> Tensor:
        return self.second(self.first(x, edges, types).relu(), edges, types)


class Normed(nn.Module):
    """Has batch norms, which torch computes in training, between layers of edges of one type."""

    def __init__(self) -> None:
        super().__init__()
        self.convs: Any = nn.ModuleList([SAGEConv(K, K) for _ in range(2)])
        self.norms: Any = nn.ModuleList([nn.BatchNorm1d(K) for _ in range(2)])

    def forward(self, x: Tensor, edges: Tensor, types: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.dropout(norm(conv(x, edges)).relu(), 0.25, self.training)
        return x


class Untyped(nn.Module):
    """Takes nodes and edges of one type, from which `to_hetero` makes a model of two."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((K, K), K), SAGEConv((K, K), K)
        self.norm, self.dropout = nn.LayerNorm(K), nn.Dropout(0.25)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x + self.dropout(self.norm(self.first(x, edge_index)).relu())
        return self.second(x, edge_index)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "RGCN": lambda: Typed(lambda: RGCNConv(K, K, 3, num_bases=2)),
    "RGAT": lambda: Typed(lambda: RGATConv(K, K // 2, 3, heads=2, dropout=0.5)),
    "HeteroConv": lambda: Hetero(lambda: HeteroConv({r: SAGEConv(K, K) for r in RELATIONS})),
    "to_hetero": lambda: to_hetero(Untyped(), (KINDS, RELATIONS)),
    "BatchNorm": Normed,
}


def given(model: nn.Module, nodes: int = N, edges: int = 2000, fewer: int = 30) -> tuple[Any, ...]:
    draws = torch.Generator().manual_seed(nodes)

    def rows(count: int) -> Tensor:
        return torch.randn(count, K, generator=draws, dtype=torch.float64, requires_grad=True)

    if not isinstance(model, Hetero | fx.GraphModule):
        ends = torch.randint(nodes, (2, edges), generator=draws)
        return rows(nodes), ends, torch.randint(3, (edges,), generator=draws)
    counts = {"a": nodes, "b": nodes - fewer}
    pairs = {(s, n, d): (counts[s], counts[d]) for s, n, d in RELATIONS}
    ends_of = {r: torch.stack([torch.randint(c, (edges,), generator=draws) for c in pair]) for r, pair in pairs.items()}
    return {kind: rows(count) for kind, count in counts.items()}, ends_of


def optimized(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    return model, dacergnn.optimize(copy.deepcopy(model))


def runner(fast: nn.Module) -> CapturedForward:
    (forward,) = compiled_forwards(fast)
    assert isinstance(forward, CapturedForward)
    return forward


def assert_same_step(fast: Any, model: Any, args: tuple[Any, ...]) -> None:
    """Compares results, which gradients exist, their numbers, buffers and random numbers after a step."""
    found: list[list[Tensor | None]] = []
    first = args[0]
    rows = [*first.values()] if isinstance(first, dict) else [first]
    for module in (fast, model):
        torch.manual_seed(1)
        module.zero_grad()
        for x in rows:
            x.grad = None
        out = module(*args)
        out = torch.cat([*out.values()]) if isinstance(out, dict) else out
        if out.requires_grad:
            out.square().sum().backward()
        found.append([out, *[p.grad for p in (*rows, *module.parameters())], *module.buffers(), torch.rand(1)])
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert_close(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_programs_hold_what_lies_between_layers(name: str) -> None:
    """For graphs of all sizes, in training, in evaluation and without gradients; few rows run as they are."""
    model, fast = optimized(name)
    for sizes in ((40, 90), (N, 2000), (N, 2000), (N + 7, 900), (40, 90)):
        assert_same_step(fast, model, given(model, *sizes))
    steps = runner(fast).steps
    assert any(isinstance(step, ProgramRun) for step in steps)
    functions = {step.function.__name__ for step in steps if not isinstance(step, ProgramRun)}
    assert functions.isdisjoint(("dropout", "relu", "layer_norm", "linear"))
    assert runner(fast).runs_whole
    for module in (model, fast):
        module.eval()
    with torch.no_grad():
        assert_same_step(fast, model, given(model))


def test_types_of_equal_and_of_different_sizes() -> None:
    """torch may describe equal sizes by one symbol, and captures a call with different ones anew."""
    model, fast = optimized("HeteroConv")
    for fewer in (0, 0, 30, 0):
        assert_same_step(fast, model, given(model, N, 900, fewer))
    assert runner(fast).runs_whole


def test_what_is_changed_counts() -> None:
    model, fast = optimized("HeteroConv")
    args = given(model)
    assert_same_step(fast, model, args)
    seen: list[int] = []
    for module in (fast, model):
        conv = module.convs[0].convs[RELATIONS[0]]
        conv.lin_l.weight = nn.Parameter(torch.ones(K, K, dtype=torch.float64))
        module.convs[1].register_forward_hook(lambda *_: seen.append(1))
        module.convs[1].aggr = "mean"
    for _ in range(2):
        assert_same_step(fast, model, args)
    assert seen == [1] * 4


class Embedded(Typed):
    """Has embeddings of its nodes in place of features."""

    def __init__(self) -> None:
        super().__init__(lambda: RGCNConv(K, K, 3))
        self.rows = nn.Embedding(N, K)

    def forward(self, edges: Tensor, types: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(self.rows.weight, edges, types)


def test_embeddings_are_features() -> None:
    torch.manual_seed(0)
    model: Any = Embedded().double().eval()
    fast: Any = dacergnn.optimize(copy.deepcopy(model))
    _, *args = given(Typed(nn.Identity))
    for _ in range(2):
        assert_close(fast(*args), model(*args))
    assert runner(fast).runs_whole


def test_layers_without_much_between_them_run_by_themselves() -> None:
    torch.manual_seed(0)
    model: Any = Plain().double()
    fast = dacergnn.optimize(copy.deepcopy(model))
    for _ in range(3):
        assert_same_step(fast, model, given(model))
    assert runner(fast).reason == BETWEEN
    assert BETWEEN in str(dacergnn.explain(fast, verbose=True))


class Kept(nn.Module):
    """Goes on with as many rows as have a positive score, and drops some of their values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = SAGEConv(K, K), nn.LayerNorm(K)

    def forward(self, x: Tensor, edges: Tensor, types: Tensor) -> Tensor:
        h = self.conv(x, edges)
        kept = h[(h[:, 0] > 0).nonzero().view(-1)]
        return F.dropout(F.gelu(self.norm(kept)), 0.25, self.training) + 1


class Gated(nn.Module):
    """Scales columns by a row that torch computes of all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = SAGEConv(K, K), nn.BatchNorm1d(K)

    def forward(self, x: Tensor, edges: Tensor, types: Tensor) -> Tensor:
        h = self.norm(self.conv(x, edges))
        gate = h.sum(0, keepdim=True).softmax(-1)
        return F.dropout(self.conv(h * gate + x * gate.t().sum(), edges), 0.25, self.training)


@pytest.mark.parametrize("kind", [Kept, Gated])
def test_sizes_that_are_known_late(kind: Callable[[], nn.Module]) -> None:
    """No network is chosen by them, since dropout may have drawn by then."""
    torch.manual_seed(0)
    model: Any = kind().double()
    fast = dacergnn.optimize(copy.deepcopy(model))
    for more in range(9):
        assert_same_step(fast, model, given(model, 2 * N + 10 * more, 900))
    assert runner(fast).runs_whole


class Late(nn.Module):
    """Writes to a view of what a batch norm returns, which is not captured."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = SAGEConv(K, K), nn.BatchNorm1d(K)

    def forward(self, x: Tensor, edges: Tensor, types: Tensor) -> Tensor:
        h = self.norm(self.conv(x, edges))
        h.view(-1, 2, K // 2).mul_(3.0)
        return self.conv(h, edges)


def test_a_call_that_gives_way_updates_norms_once() -> None:
    torch.manual_seed(0)
    model: Any = Late().double()
    fast = dacergnn.optimize(copy.deepcopy(model))
    for _ in range(2):
        assert_same_step(fast, model, given(model, 40, 90))
    assert not runner(fast).runs_whole
