"""One capture serves graphs of all sizes; a layer whose Python depends on sizes is captured for each kind of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from tests.capture.calls import K, captured, compiled

pytest.importorskip("torch_geometric")
import torch_geometric.nn as pyg
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import add_self_loops, remove_self_loops

__all__ = ["captured"]
SIZES = ((9, 30), (13, 41), (5, 77), (30, 30), (8, 1), (21, 60), (4, 0), (16, 25))
WARNED = "ignore:.*runs uncompiled:UserWarning"


def graph(nodes: int, edges: int, loops: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * nodes + edges)
    x = torch.randn(nodes, K, generator=generator, dtype=torch.float64)
    index = torch.randint(nodes, (2, edges), generator=generator)
    index[1, :loops] = index[0, :loops]
    return x, index


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "TransformerConv": lambda: pyg.TransformerConv(K, 4, heads=2),
    "GraphConv": lambda: pyg.GraphConv(K, 4, aggr="max"),
    "FiLMConv": lambda: pyg.FiLMConv(K, 4),
    "FeaStConv": lambda: pyg.FeaStConv(K, 4, heads=2),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(K, 4),
    "TAGConv": lambda: pyg.TAGConv(K, 4),
}


def check(found: Any, layer: nn.Module, *args: Tensor) -> None:
    """Results and gradients are those of the original."""
    both = [[t.clone().requires_grad_(t.is_floating_point()) for t in args] for _ in range(2)]
    results = [f(*own) for f, own in zip((found, layer), both, strict=True)]
    torch.testing.assert_close(*results)
    leaves = [[own[0], *layer.parameters()] for own in both]
    torch.testing.assert_close(
        *[torch.autograd.grad(r.square().sum(), own, allow_unused=True) for r, own in zip(results, leaves, strict=True)]
    )


@pytest.mark.parametrize("name", LAYERS)
def test_ever_new_graphs(name: str, captured: list[int]) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    found = compiled(layer)
    for nodes, edges in SIZES:
        check(found, layer, *graph(nodes, edges))
    so_far = len(captured)
    for nodes, edges in ((40, 100), (41, 90), (12, 33), (77, 200)):
        check(found, layer, *graph(nodes, edges))
    assert len(captured) == so_far


class Plain(MessagePassing):
    """Depends on sizes as a part says."""

    part: Any = None

    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(K)) for _ in range(100)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return type(self).part(self, self.propagate(edge_index, x=x), x, edge_index)


def threshold(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out * 2.0 if x.size(0) > 12 else out


def edges_over_nodes(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out * 2.0 if edge_index.size(1) > 3 * x.shape[0] else out


def even(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out if x.size(0) % 2 else -out


def divided(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out / edge_index.size(1) if edge_index.size(1) else out


def counted(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out * float(len(x)) + edge_index.numel()


def repeated(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    for _ in range(x.size(0)):
        out = out + x
    return out


def chosen(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out * self.weights[x.size(0)]


def named(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out * {"9": 2.0, "13": 3.0}.get(f"{x.size(0)}", 1.0) * {41: 5.0}.get(edge_index.size(1), 1.0)


def largest(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out * max(x.size(0), 10)


def squeezed(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    return out + x[edge_index[0]].squeeze().sum()


def edges_made(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    edge_index, _ = remove_self_loops(edge_index)
    edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
    return out + self.propagate(edge_index, x=x)


def kept_edges(self: Any, out: Tensor, x: Tensor, edge_index: Tensor) -> Tensor:
    kept, _ = remove_self_loops(edge_index)
    return out * 2.0 if kept.size(1) == edge_index.size(1) else self.propagate(kept, x=x)


PARTS = (threshold, edges_over_nodes, even, divided, counted, repeated, chosen, named, largest, squeezed, edges_made,
         kept_edges)  # fmt: skip


@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.__name__)
@pytest.mark.filterwarnings(WARNED)
def test_python_that_depends_on_sizes(part: Any) -> None:
    torch.manual_seed(0)
    layer = type("Plain", (Plain,), {"part": staticmethod(part), "__module__": __name__})().double()
    found = dacergnn.optimize(layer)
    for nodes, edges in (*SIZES, (13, 40), (12, 40), (12, 41), (13, 41), (9, 30), (9, 31), (1, 3), (2, 3), *SIZES):
        for loops in (0, min(edges, 2)):
            x, index = graph(nodes, edges, loops)
            torch.testing.assert_close(found(x, index), layer(x, index))


def test_edges_made_of_others_need_one_capture(captured: list[int]) -> None:
    layer = type("Plain", (Plain,), {"part": staticmethod(edges_made), "__module__": __name__})().double()
    found = compiled(layer)
    for nodes, edges in ((9, 30), (13, 41), (20, 55), (31, 60), (22, 80)):
        torch.testing.assert_close(found(*graph(nodes, edges)), layer(*graph(nodes, edges)))
    assert len(captured) == 1


def test_a_size_that_stayed_the_same_is_noticed(captured: list[int]) -> None:
    """Two calls that agree in a size tell nothing about others."""
    torch.manual_seed(0)
    layer = type("Plain", (Plain,), {"part": staticmethod(repeated), "__module__": __name__})().double()
    found = dacergnn.optimize(layer)
    for nodes, edges in ((9, 30), (9, 41), (9, 20), (9, 50), (10, 50), (11, 50)):
        torch.testing.assert_close(found(*graph(nodes, edges)), layer(*graph(nodes, edges)))


def test_sizes_that_are_returned_are_numbers(captured: list[int]) -> None:
    class Sized(Plain):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.propagate(edge_index, x=x), (x.size(0), x.shape, edge_index.size(1))

    layer = Sized().double()
    found = compiled(layer)
    for nodes, edges in ((9, 30), (13, 41), (20, 55), (31, 60)):
        _, (rows, shape, count) = found(*graph(nodes, edges))
        assert (rows, tuple(shape), count) == (nodes, (nodes, K), edges)
        assert {type(rows), type(shape[0]), type(count)} == {int}


def test_sizes_that_are_kept_are_numbers() -> None:
    class Keeps(Plain):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            self.kept = (x.size(0), [edge_index.size(1)])
            return self.propagate(edge_index, x=x)

    layer = Keeps().double()
    found = compiled(layer)
    for nodes, edges in ((9, 30), (13, 41), (20, 55), (31, 60)):
        found(*graph(nodes, edges))
        assert found.kept == (nodes, [edges])
        assert {type(found.kept[0]), type(found.kept[1][0])} == {int}
