"""The two zeros are equal numbers and not the same: no cache takes a program with the one for that with the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config, HeteroGraph, parse
from dacergnn.library_nodes import Const
from dacergnn.program.flatten import Activation
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import Context, SelectAdjacency

dgl = pytest.importorskip("dgl")
pyg = pytest.importorskip("torch_geometric.nn")
import dgl.function as fn  # noqa: E402

ZEROS = (0.0, -0.0)
X = torch.ones(2, 3)
EDGES = torch.tensor([[0, 1], [1, 0]])
EXPECTED = [float("inf"), -float("inf")]


def graph() -> HeteroGraph:
    return HeteroGraph.from_arrays(EDGES, None, num_nodes=2)


def first(result: Any) -> float:
    return float((result[0] if isinstance(result, tuple) else result).flatten()[0])


def positive(g: Any, x: NS[3]):  # noqa: F821
    for n in g.src_nodes():
        n["a"] = n.x / 0.0
    return a  # noqa: F821


def negative(g: Any, x: NS[3]):  # noqa: F821
    for n in g.src_nodes():
        n["a"] = n.x / -0.0
    return a  # noqa: F821


def divided(g: Any, x: NS[3]):  # noqa: F821
    for n in g.src_nodes():
        n["a"] = n.x / zero  # noqa: F821
    return a  # noqa: F821


class Layer(pyg.MessagePassing):
    """Divides messages by an attribute, or by an argument of the call."""

    def __init__(self, zero: float) -> None:
        super().__init__(aggr="add")
        self.zero = zero

    def forward(self, x: Tensor, edge_index: Tensor, zero: float | None = None) -> Tensor:
        return self.propagate(edge_index, x=x, zero=self.zero if zero is None else zero)

    def message(self, x_j: Tensor, zero: float) -> Tensor:
        return x_j / zero


class Forward(nn.Module):
    """The same over a graph of DGL."""

    def __init__(self, zero: float) -> None:
        super().__init__()
        self.zero = zero

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = x / self.zero
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            return g.ndata["out"]


def test_literals() -> None:
    assert [first(dacergnn.compile(f)(graph(), X)) for f in (positive, negative)] == EXPECTED


def test_bindings() -> None:
    assert [first(dacergnn.compile(zero=zero)(divided)(graph(), X)) for zero in ZEROS] == EXPECTED


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_code(target: str) -> None:
    codes: set[str] = set()
    for zero in ("0.0", "-0.0"):
        sdfg = parse(f"def p(g, x: NS):\n    for n in g.src_nodes():\n        n['a'] = n.x / {zero}\n    return a\n")
        SelectAdjacency().run(sdfg, Context(implementation=target))
        codes.add(lower(sdfg).code)
    assert len(codes) == 2


def test_layers() -> None:
    layers = [dacergnn.optimize(Layer(zero), config=Config(), on_unsupported="error") for zero in ZEROS]
    assert [first(layer(X, EDGES)) for layer in (*layers, *layers)] == 2 * EXPECTED


def test_an_attribute_that_is_set_later() -> None:
    layer = dacergnn.optimize(Layer(0.0), on_unsupported="error")
    found: list[float] = []
    for zero in 3 * ZEROS:
        layer.zero = zero
        found.append(first(layer(X, EDGES)))
    assert found == 3 * EXPECTED


def test_an_argument() -> None:
    layer = dacergnn.optimize(Layer(1.0), on_unsupported="error")
    assert [first(layer(X, EDGES, zero)) for zero in 3 * ZEROS] == 3 * EXPECTED


def test_forwards_over_graphs() -> None:
    g = dgl.graph((EDGES[0], EDGES[1]))
    modules = [dacergnn.compile(Forward(zero), on_unsupported="error") for zero in ZEROS]
    assert [first(module(g, X)) for module in (*modules, *modules)] == 2 * EXPECTED


def test_expressions() -> None:
    assert Const(0.0) != Const(-0.0)
    assert len({Const(0.0), Const(-0.0), Const(0.0), Const(1.0), Const(float("nan")), Const(float("nan"))}) == 4


def test_activations_that_follow_layers() -> None:
    one, other = (Activation("leakyrelu", (zero,)) for zero in ZEROS)
    assert one != other
    assert one == Activation("leakyrelu", (0.0,))
