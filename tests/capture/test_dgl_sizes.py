"""One capture of a forward over DGL graphs serves all graphs of its form; what depends on more is captured anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")

import dacergnn  # noqa: E402
from tests.capture.calls import recorded  # noqa: E402

__all__ = ["recorded"]
fn = dgl.function
K, M, R = 5, 4, 3
SETTLED, CALLS = 8, 16


class Layer(nn.Module):
    """Computes what a function of its own parts, a graph and features says."""

    def __init__(self, function: Callable[[Layer, Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.lin, self.both = nn.Linear(K, M), nn.Linear(2 * K, M)
        self.left, self.right, self.weight = (nn.Parameter(torch.randn(n)) for n in (M, M, R))

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            return self.function(self, g, x)


def summed(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.ndata["h"] = layer.lin(x)
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    return g.ndata["out"].relu()


def averaged(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.ndata["h"] = layer.lin(x)
    g.update_all(fn.copy_u("h", "m"), fn.mean("m", "out"))
    return g.ndata["out"]


def normed(layer: Layer, g: Any, x: Tensor) -> Tensor:
    into, out = (degrees.clamp(min=1).to(x).pow(-0.5).unsqueeze(1) for degrees in (g.in_degrees(), g.out_degrees()))
    g.ndata["h"] = layer.lin(x) * out
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    return g.ndata["out"] * into


def attending(layer: Layer, g: Any, x: Tensor) -> Tensor:
    rows = layer.lin(x)
    g.ndata.update({"rows": rows, "l": (rows * layer.left).sum(-1), "r": (rows * layer.right).sum(-1)})
    g.apply_edges(fn.u_add_v("l", "r", "e"))
    g.edata["a"] = dgl.ops.edge_softmax(g, leaky_relu(g.edata["e"], 0.2))
    g.update_all(fn.u_mul_e("rows", "a", "m"), fn.sum("m", "out"))
    return g.ndata["out"]


def user_defined(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.ndata["x"] = x

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": layer.both(torch.cat([edges.src["x"], edges.dst["x"]], dim=1)).relu()}

    g.update_all(message, lambda nodes: {"out": nodes.mailbox["m"].max(1)[0]})
    return g.ndata["out"]


def with_columns(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.ndata["h"] = x * g.ndata["f"]
    g.edata["w"] = layer.weight[g.edata["type"]]
    g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
    return g.ndata["out"][: g.num_nodes()] / g.num_edges()


def of_block(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.srcdata["h"] = layer.lin(x)
    g.update_all(fn.copy_u("h", "m"), fn.mean("m", "out"))
    return g.dstdata["out"] + layer.lin(x[: g.num_dst_nodes()])


def largest(layer: Layer, g: Any, x: Tensor) -> Tensor:
    found = dgl.ops.copy_u_max(g, layer.lin(x))
    return torch.where(found.isinf(), 0.0, found)


def by_a_question(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.ndata["h"] = layer.lin(x)
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    return g.ndata["out"] * (2.0 if g.has_edges_between(0, 1) else 3.0)


def by_indices_of_another_type(layer: Layer, g: Any, x: Tensor) -> Tensor:
    return summed(layer, g, x) * g.int().in_degrees().to(x).unsqueeze(1)


def by_ends(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.ndata["h"] = layer.lin(x)
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    return g.ndata["out"] * g.edges()[0].double().mean()


def by_a_degree(layer: Layer, g: Any, x: Tensor) -> Tensor:
    g.ndata["h"] = layer.lin(x)
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    return g.ndata["out"] * float(g.in_degrees(0))


def by_parity(layer: Layer, g: Any, x: Tensor) -> Tensor:
    return summed(layer, g, x) if g.num_edges() % 2 else averaged(layer, g, x)


def graph(number: int) -> Any:
    generator = torch.Generator().manual_seed(number)
    nodes, edges = 5 + number % 7, 11 + 3 * number % 17
    ends = torch.randint(nodes, (2, edges), generator=generator)
    g = dgl.graph((ends[0], ends[1]), num_nodes=nodes)
    g.ndata["f"] = torch.rand(nodes, 1, dtype=torch.float64, generator=generator)
    g.edata["type"] = torch.randint(R, (edges,), generator=generator)
    return g


def block(number: int) -> Any:
    sources, destinations = 12 + number % 7, 3 + number % 4
    generator = torch.Generator().manual_seed(number)
    ends = [torch.randint(n, (15 + number,), generator=generator) for n in (sources, destinations)]
    return dgl.to_block(dgl.graph((ends[0], ends[1]), num_nodes=sources), torch.arange(destinations))


def check(function: Callable[[Layer, Any, Tensor], Tensor], make: Callable[[int], Any], first: int, last: int,
          layers: tuple[Any, Layer]) -> None:  # fmt: skip
    """Results and gradients on some graphs are those of the layer as it is."""
    for number in range(first, last):
        g, generator = make(number), torch.Generator().manual_seed(number)
        x = torch.randn(g.num_src_nodes(), K, dtype=torch.float64, generator=generator)
        given = [x.clone().requires_grad_() for _ in layers]
        results = [layer(g, own) for layer, own in zip(layers, given, strict=True)]
        torch.testing.assert_close(*results)
        for result in results:
            result.square().sum().backward()
        torch.testing.assert_close(given[0].grad, given[1].grad)


def both(function: Callable[[Layer, Any, Tensor], Tensor], on_unsupported: Any = "error") -> tuple[Any, Layer]:
    torch.manual_seed(0)
    plain, other = Layer(function).double(), Layer(function).double()
    other.load_state_dict(plain.state_dict())
    return dacergnn.compile(other, on_unsupported=on_unsupported), plain


FUNCTIONS = {
    summed: graph, averaged: graph, normed: graph, attending: graph, user_defined: graph, with_columns: graph,
    of_block: block,
}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_ever_new_graphs(function: Any, recorded: list[int]) -> None:
    layers = both(function)
    check(function, FUNCTIONS[function], 0, SETTLED, layers)
    check(function, FUNCTIONS[function], SETTLED, 2 * SETTLED, layers)
    so_far = len(recorded)
    assert so_far <= 6
    check(function, FUNCTIONS[function], 2 * SETTLED, 2 * SETTLED + CALLS, layers)
    assert len(recorded) == so_far


@pytest.mark.parametrize("function", [largest, by_ends, by_a_degree, by_parity], ids=lambda f: f.__name__)
def test_what_depends_on_numbers_of_a_graph(function: Any) -> None:
    check(function, graph, 0, CALLS, both(function, "ignore"))


@pytest.mark.parametrize(
    ("function", "reason"),
    [(by_a_question, "has_edges_between of a graph cannot be captured"),
     (by_indices_of_another_type, "int of a graph cannot be captured")],
    ids=lambda f: getattr(f, "__name__", ""),
)  # fmt: skip
def test_what_cannot_be_captured_runs_with_the_graph(function: Any, reason: str) -> None:
    compiled, plain = both(function, "warn")
    with pytest.warns(UserWarning, match=reason):
        check(function, graph, 0, CALLS, (compiled, plain))


def test_several_relations(recorded: list[int]) -> None:
    def sums(layer: Layer, g: Any, x: Tensor) -> Tensor:
        g.nodes["a"].data["h"] = layer.lin(x)
        messages = {name: (fn.copy_u("h", "m"), fn.sum("m", "out")) for name in ("r", "s")}
        g.multi_update_all(messages, "sum")
        return g.nodes["b"].data["out"]

    def make(number: int) -> Any:
        generator = torch.Generator().manual_seed(number)
        nodes, others = 40 + number, 90 + number  # torch takes sizes that are equal at first for one
        ends = {
            ("a", name, "b"): tuple(torch.randint(n, (count,), generator=generator) for n in (nodes, others))
            for name, count in (("r", 150 + number), ("s", 200 + number % 7))
        }
        return dgl.heterograph(ends, num_nodes_dict={"a": nodes, "b": others})

    layers = both(sums)
    for number in range(20):
        g = make(number)
        x = torch.randn(g.num_nodes("a"), K, dtype=torch.float64)
        torch.testing.assert_close(layers[0](g, x), layers[1](g, x))
        if number == SETTLED:
            so_far = len(recorded)
    assert len(recorded) == so_far


def test_a_column_that_is_the_argument_is_another_call(recorded: list[int]) -> None:
    def twice(layer: Layer, g: Any, x: Tensor) -> Tensor:
        g.ndata["h"] = x + g.ndata["f"]
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
        return g.ndata["out"]

    compiled, plain = both(twice)
    for number in range(8):
        g = graph(number)
        x = g.ndata["f"] if number % 2 else torch.rand_like(g.ndata["f"])
        torch.testing.assert_close(compiled(g, x), plain(g, x))


def test_attributes_of_a_graph_count(recorded: list[int]) -> None:
    def scaled(layer: Layer, g: Any, x: Tensor) -> Tensor:
        g.ndata["h"] = layer.lin(x)
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
        return g.ndata["out"] * g.scale

    compiled, plain = both(scaled)
    for number in range(8):
        g = graph(3)
        g.scale = float(1 + number)
        x = torch.randn(g.num_nodes(), K, dtype=torch.float64)
        for _ in range(3):
            torch.testing.assert_close(compiled(g, x), plain(g, x))
