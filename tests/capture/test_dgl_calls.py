"""Forwards over DGL graphs, and the examples in both styles: known calls run what was captured."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
pytest.importorskip("torch_geometric")

import dacergnn  # noqa: E402
from examples.dgl_style import typed_graph  # noqa: E402
from examples.front_ends import CHANNELS, MODELS, ways  # noqa: E402
from tests.capture.calls import recorded  # noqa: E402

__all__ = ["recorded"]
fn = dgl.function
N, E, K, R = 12, 40, 5, 3


@pytest.mark.parametrize("model", MODELS)
def test_examples_are_repeated(model: str, recorded: list[int]) -> None:
    torch.manual_seed(3)
    x = torch.randn(30, CHANNELS, requires_grad=True)
    found, parameters = ways(model, typed_graph(30, 120, 2, 3), x)
    weights = torch.randn(30, CHANNELS)
    expected = found["built in"].call()
    gradients = torch.autograd.grad(expected, [x, *parameters], weights)
    for form in ("DGL", "PyG"):
        recorded.clear()
        for _ in range(4):
            out = found[form].call()
            torch.testing.assert_close(out, expected)
            torch.testing.assert_close(torch.autograd.grad(out, [x, *parameters], weights), gradients)
        assert len(recorded) == 1, form
        with torch.no_grad():
            for _ in range(4):
                torch.testing.assert_close(found[form].call(), expected)
        assert len(recorded) == 2, form


class Weighed(nn.Module):
    """Features times those that the graph has, summed, with weights by type of edge."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, R + 1).double())

    @dacergnn.compile(on_unsupported="error")
    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = x * g.ndata["f"]
            g.edata["w"] = self.weight[g.edata["type"]]
            g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
            return g.ndata["out"]


def graph(seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(N, (2, E), generator=generator)
    g = dgl.graph((ends[0], ends[1]), num_nodes=N)
    g.ndata["f"] = torch.rand(N, dtype=torch.float64, generator=generator)
    g.edata["type"] = torch.randint(R, (E,), generator=generator)
    return g


def check(layer: Weighed, g: Any, x: Tensor) -> None:
    """Compare with the formula, for what the graph holds now."""
    src, dst = g.edges()
    w = layer.weight[g.edata["type"]]
    expected = torch.zeros_like(x).index_add(0, dst, (x * g.ndata["f"])[src] * w)
    torch.testing.assert_close(layer(g, x), expected)


def repeated() -> tuple[Weighed, Any, Tensor]:
    layer, g, x = Weighed(), graph(), torch.randn(N, dtype=torch.float64)
    for _ in range(4):
        check(layer, g, x)
    return layer, g, x


def test_features_in_the_graph(recorded: list[int]) -> None:
    layer, g, x = repeated()
    assert len(recorded) == 1
    g.ndata["f"].mul_(2.0)
    check(layer, g, x)
    assert len(recorded) == 1, "their numbers are those of the moment"
    g.ndata["f"] = torch.rand(N, dtype=torch.float64)
    check(layer, g, x)
    assert len(recorded) == 1, "another tensor that looks the same"
    g.ndata["other"] = torch.rand(N)
    check(layer, g, x)
    assert len(recorded) == 2
    g.ndata["f"] = torch.rand(N, 1, dtype=torch.float64).squeeze(1).requires_grad_()
    check(layer, g, x)
    assert len(recorded) == 3


def test_types_in_the_graph(recorded: list[int]) -> None:
    layer, g, x = repeated()
    g.edata["type"][0] = (g.edata["type"][0] + 1) % R
    check(layer, g, x)
    g.edata["type"] = g.edata["type"].flip(0)
    check(layer, g, x)
    assert len(recorded) == 1


def test_other_graphs_and_edges(recorded: list[int]) -> None:
    layer, g, x = repeated()
    check(layer, graph(1), x)
    for _ in range(3):
        g.add_edges(0, 1, {"type": torch.tensor([2])})
        check(layer, g, x)
        check(layer, g, x)
    assert len(recorded) == 2, "any number of edges"


def test_edges_that_others_write_to() -> None:
    layer, g, x = repeated()
    g.edges()[1][:5] = 3  # DGL hands out its own memory
    check(layer, g, x)


def test_features_of_the_graph_as_arguments(recorded: list[int]) -> None:
    layer, g, x = repeated()
    for _ in range(3):
        check(layer, g, g.ndata["f"])
    check(layer, g, x)
    assert len(recorded) == 2


def test_graphs_are_not_kept() -> None:
    layer, g, x = repeated()
    kept, feature = weakref.ref(g), weakref.ref(g.ndata["f"])
    layer(graph(1), x)
    del g
    gc.collect()
    assert (kept(), feature()) == (None, None)


class Left(nn.Module):
    """Leaves its result in the graph."""

    @dacergnn.compile(on_unsupported="error")
    def forward(self, g: Any, x: Tensor) -> Tensor:
        g.ndata["h"] = x
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
        return g.ndata["out"]


def test_what_is_left_in_the_graph_is_that_of_the_call(recorded: list[int]) -> None:
    layer, g, x = Left(), graph(), torch.randn(N, dtype=torch.float64)
    for factor in range(1, 6):
        found = layer(g, x * factor)
        torch.testing.assert_close(g.ndata.pop("out"), found)
        torch.testing.assert_close(g.ndata.pop("h"), x * factor)
    assert len(recorded) == 1


def test_graphs_that_a_module_holds(recorded: list[int]) -> None:
    class Holder(Weighed):
        def __init__(self) -> None:
            super().__init__()
            self.g = graph()

        @dacergnn.compile(on_unsupported="error")
        def forward(self, x: Tensor) -> Tensor:
            g = self.g
            with g.local_scope():
                g.ndata["h"] = x * g.ndata["f"]
                g.edata["w"] = self.weight[g.edata["type"]]
                g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
                return g.ndata["out"]

    layer, plain, x = Holder(), Weighed(), torch.randn(N, dtype=torch.float64)
    for _ in range(4):
        torch.testing.assert_close(layer(x), plain(layer.g, x))
    count = len(recorded)
    layer.g.ndata["f"] = layer.g.ndata["f"] + 1
    torch.testing.assert_close(layer(x), plain(layer.g, x))
    layer.g = graph(1)
    torch.testing.assert_close(layer(x), plain(layer.g, x))
    assert (count, len(recorded)) == (2, 2)
