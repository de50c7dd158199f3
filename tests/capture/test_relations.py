"""Sums over several sets of edges in users' own forwards: one program over all of them, where their terms are alike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GCNConv, GraphConv, SAGEConv
from torch_geometric.utils import scatter, softmax

import dacergnn
from dacergnn.errors import DacergnnError
from tests.capture.captured import assert_same, captured

N, K, R = 14, 4, 3


class Relational(nn.Module):
    """Holds a layer for each relation."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(make() for _ in range(R))
        self.norm, self.shares = nn.LayerNorm(K), nn.Parameter(torch.rand(R))

    def each(self, x: Tensor, edges: tuple[Tensor, ...]) -> list[Tensor]:
        return [layer(x, index) for layer, index in zip(self.layers, edges, strict=True)]


def linear() -> nn.Module:
    return nn.Linear(K, K)


def sage(aggr: str = "mean") -> nn.Module:
    return SAGEConv(K, K, aggr=aggr)


class Means(Relational):
    """Adds means over each relation to rows of the nodes, as RGCN does."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        out = x
        for layer, (src, dst) in zip(self.layers, edges, strict=True):
            out = out + scatter(layer(x)[src], dst, dim=0, dim_size=x.size(0), reduce="mean")
        return out.relu()


class IndexAdds(Relational):
    """Adds messages of all relations to the same rows."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for layer, (src, dst) in zip(self.layers, edges, strict=True):
            out.index_add_(0, dst, layer(x[src]).relu())
        return out.tanh()


class Added(Relational):
    """Adds layers up, behind which a norm and a residual stand, twice."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        for _ in range(2):
            x = x + self.norm(sum(self.each(x, edges))).relu()
        return x


class Stacked(Relational):
    """Takes the mean over a stack."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        return torch.stack(self.each(x, edges)).mean(dim=0)


class Scaled(Relational):
    """Weights relations by trained shares."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        a, b, c = self.shares.softmax(0)
        first, second, third = self.each(x, edges)
        return a * first + (b * second + third * c)


class TakenOff(Relational):
    """Takes what each relation leads to off the rows of nodes."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        for part in self.each(x, edges):
            x = x - part
        return x


class Attention(Relational):
    """Attends within each relation, with vectors of its own."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        out = None
        for layer, share, (src, dst) in zip(self.layers, self.shares, edges, strict=True):
            h = layer(x)
            score = softmax(F.leaky_relu((h[src] * h[dst]).sum(1) * share), dst, num_nodes=x.size(0))
            part = torch.zeros_like(x).index_add(0, dst, score[:, None] * h[src])
            out = part if out is None else out + part
        assert out is not None
        return out


class Weighted(Relational):
    """Takes weights of edges that need gradients."""

    def forward(self, x: Tensor, weights: tuple[Tensor, ...], *edges: Tensor) -> Tensor:
        parts = [layer(x, index, w) for layer, index, w in zip(self.layers, edges, weights, strict=True)]
        return parts[0] + parts[1] + parts[2]


ALIKE: dict[str, Callable[[], nn.Module]] = {
    "means": lambda: Means(linear),
    "index_add": lambda: IndexAdds(linear),
    "two layers": lambda: Added(sage),
    "maxima": lambda: Added(lambda: sage("max")),
    "stacked": lambda: Stacked(lambda: GraphConv(K, K)),
    "scaled": lambda: Scaled(sage),
    "taken off": lambda: TakenOff(lambda: sage("max")),
    "attention": lambda: Attention(linear),
    "GATv2": lambda: Added(lambda: GATv2Conv(K, K, add_self_loops=False)),
}


class First(Relational):
    """Returns the values of one relation, too."""

    def forward(self, x: Tensor, *edges: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.each(x, edges)
        return parts[0] + parts[1] + parts[2], parts[0].relu()


class Detached(Relational):
    """Has no gradient from one relation."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        first, second, third = self.each(x, edges)
        return first + second.detach() + third


class Twice(Relational):
    """Sums along the same edges twice, and over others."""

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        return self.layers[0](x, edges[0]) + self.layers[1](x, edges[0]) + self.layers[2](x, edges[1])


def mixed() -> nn.Module:
    model = Added(sage)
    model.layers[1] = GATv2Conv(K, K, add_self_loops=False)
    return model


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a part is a result": lambda: First(sage),
    "detached": lambda: Detached(sage),
    "edges twice": lambda: Twice(sage),
    "several kinds": mixed,
    "symmetric norms": lambda: Added(lambda: GCNConv(K, K)),
}


def edges_of(nodes: int, seed: int, counts: tuple[int, ...] = (20, 31, 25)) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randint(nodes, (2, count)) for count in counts]


def pair(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = make().double()
    return model, dacergnn.optimize(model, on_unsupported="error")


def rows(nodes: int) -> Tensor:
    return torch.randn(nodes, K, dtype=torch.float64, requires_grad=True)


def text_of(fast: nn.Module) -> str:
    return "\n".join(text for graph in captured(fast) for text in graph.texts)


def compare(model: nn.Module, fast: nn.Module) -> None:
    """Compares calls on three graphs, one with a relation that is empty."""
    for nodes, counts in ((N, (20, 31, 25)), (N, (20, 31, 25)), (N + 3, (1, 30, 0))):
        assert_same(fast, model, [rows(nodes), *edges_of(nodes, nodes, counts)])


@pytest.mark.parametrize("name", ALIKE)
def test_relations_are_one_program(name: str) -> None:
    model, fast = pair(ALIKE[name])
    compare(model, fast)
    text = text_of(fast)
    programs = [line for line in text.splitlines() if " = run " in line]
    assert programs
    assert all("relations(" in line for line in programs)


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_are_those_of_the_original(name: str) -> None:
    model, fast = pair(OTHERS[name])
    compare(model, fast)
    assert "relations(" not in text_of(fast)


def test_weights_of_edges() -> None:
    model, fast = pair(lambda: Weighted(lambda: GraphConv(K, K)))
    for seed in (1, 2):
        edges = edges_of(N, seed)
        weights = tuple(torch.rand(e.size(1), dtype=torch.float64, requires_grad=True) for e in edges)
        gradients: list[Any] = []
        for call in (model, fast):
            x = torch.ones(N, K, dtype=torch.float64)
            gradients.append(torch.autograd.grad(call(x, weights, *edges).square().sum(), weights))
        torch.testing.assert_close(*gradients)
    assert "relations(" in text_of(fast)


class Columns(Relational):
    """Takes weights of edges as vectors, or as columns."""

    def forward(self, x: Tensor, weights: tuple[Tensor, ...], *edges: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for w, (src, dst) in zip(weights, edges, strict=True):
            out = out + torch.zeros_like(x).index_add(0, dst, x[src] * (w if w.dim() > 1 else w.unsqueeze(1)))
        return out


def test_vectors_and_columns_of_weights() -> None:
    model, fast = pair(lambda: Columns(linear))
    edges, x = edges_of(N, 0), rows(N)
    shapes = [(e.size(1), *([1] if place else [])) for place, e in enumerate(edges)]
    weights = tuple(torch.rand(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    found, expected = (
        torch.autograd.grad(call(x, weights, *edges).square().sum(), [x, *weights]) for call in (fast, model)
    )
    torch.testing.assert_close(found, expected)
    assert "relations(" in text_of(fast)


class Types(nn.Module):
    """Sums over relations between nodes of two types, with a result for each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleDict({name: SAGEConv((K, K), K) for name in ("aa", "ab", "ba", "bb")})

    def forward(self, x: dict[str, Tensor], edges: dict[str, Tensor]) -> dict[str, Tensor]:
        parts = {name: self.layers[name]((x[name[0]], x[name[1]]), index) for name, index in edges.items()}
        return {kind: sum(part for name, part in parts.items() if name[1] == kind) for kind in x}  # pyright: ignore[reportReturnType]


def test_what_leads_to_no_loss_has_no_gradient() -> None:
    model, fast = pair(Types)
    torch.manual_seed(0)
    sizes = {"a": N, "b": N - 4}
    edges = {
        name: torch.stack([torch.randint(sizes[name[0]], (20,)), torch.randint(sizes[name[1]], (20,))])
        for name in ("aa", "ab", "ba", "bb")
    }
    x = {kind: rows(count) for kind, count in sizes.items()}
    found: list[Any] = []
    for call in (model, fast):
        model.zero_grad()
        call(x, edges)["a"].square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*[[g for g in grads if g is not None] for grads in found])
    assert [g is None for g in found[0]] == [g is None for g in found[1]]
    assert None in found[1]
    assert text_of(fast).count("relations(") == 2


def test_gradients_of_parameters_have_memory_of_their_own() -> None:
    _, fast = pair(lambda: Added(sage))
    fast(rows(N), *edges_of(N, 0)).sum().backward()
    gradients = [p.grad for p in fast.parameters() if p.grad is not None]
    before = [g.clone() for g in gradients]
    gradients[0].mul_(0.0)
    torch.testing.assert_close(gradients[1:], before[1:])


def test_nodes_out_of_range() -> None:
    model, fast = pair(lambda: Added(sage))
    edges = edges_of(N, 0)
    assert_same(fast, model, [rows(N), *edges])
    edges[1][1, 3] = N
    with pytest.raises(DacergnnError, match=rf"{N}"):
        fast(rows(N), *edges)


def test_copies_and_later_options() -> None:
    model, fast = pair(lambda: Added(sage))
    assert_same(fast, model, [rows(N), *edges_of(N, 0)])
    other = copy.deepcopy(fast)
    with torch.no_grad():
        model.norm.weight.mul_(2.0)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    assert_same(fast, model, [rows(N), *edges_of(N, 1)])
    for layer in model.layers:  # pyright: ignore[reportGeneralTypeIssues]
        layer.lin_l.weight.requires_grad_(False)
    args = [rows(N), *edges_of(N, 2)]
    torch.testing.assert_close(fast(*args), model(*args))
    assert not torch.equal(other(*args), fast(*args))
