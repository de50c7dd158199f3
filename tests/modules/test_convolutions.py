"""GCN, GraphSAGE and GIN of both libraries as modules: repeated calls, edges in every form, errors, and torch."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import dacergnn
from dacergnn.errors import GraphError, UnsupportedCallError
from dacergnn.modules import CompiledLayer
from dacergnn.modules.capture.captured_layer import CapturedLayer
from tests.capture.test_layers_without_front_end import draw, edges, outcome, weights
from tests.frontends.convolution_cases import network
from tests.modules.layers import assert_close, compiled, pyg

N, K, M = 17, 6, 8
F64 = torch.float64
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "GCNConv": lambda: pyg().GCNConv(K, M),
    "SAGEConv": lambda: pyg().SAGEConv(K, M),
    "GINConv": lambda: pyg().GINConv(network()),
}


class _Sizes(TorchDispatchMode):
    """Notes the most elements that a torch function makes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and "view" not in str(func) and "detach" not in str(func):
            self.largest = max(self.largest, found.numel())
        return found


@contextmanager
def unexamined(layer: CompiledLayer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls must not ask the front end which graph they are about."""

    def examine(*_: Any, **__: Any) -> None:
        raise AssertionError("examined")

    with monkeypatch.context() as patched:
        patched.setattr(layer.frontend, "edges", examine)
        yield


@pytest.mark.parametrize("name", LAYERS)
def test_repeated_calls_are_not_examined_and_touch_no_edges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LAYERS[name]().double()
    index = torch.cat([edges()] * 100, dim=1)
    layer, args = compiled(original), (draw(N, K), index)
    with torch.no_grad():
        for _ in range(3):
            layer(*args)
    other = draw(N, K).sin()
    with unexamined(layer, monkeypatch), _Sizes() as sizes, torch.no_grad():
        found = layer(other, index)
    assert sizes.largest < index.size(1)
    assert_close(found, original(other, index), 1e-8)
    assert_close(outcome(layer, (other, index)), outcome(original, (other, index)), 1e-8)


@pytest.mark.parametrize("options", [{}, {"normalize": False}, {"add_self_loops": False}])
def test_edge_weights_of_the_moment(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    original = pyg().GCNConv(K, M, **options).double()
    layer, x, index = compiled(original), draw(N, K), edges()
    weight = weights()
    for _ in range(2):
        layer(x, index, edge_weight=weight)
    with unexamined(layer, monkeypatch):
        assert_close(layer(x, index, edge_weight=weight), original(x, index, weight), 1e-8)
        other = weights() * 2
        assert_close(layer(x, index, edge_weight=other), original(x, index, other), 1e-8)
        other.add_(1)
        assert_close(layer(x, index, edge_weight=other), original(x, index, other), 1e-8)
    found, expected = (
        torch.autograd.grad(module(x, index, edge_weight=w).sin().sum(), w)
        for module, w in ((m, other.clone().requires_grad_()) for m in (layer, original))
    )
    assert_close(found, expected, 1e-8)


@pytest.mark.parametrize("option", ["root_weight", "project"])
def test_options_that_ask_for_a_part_that_the_layer_lacks(option: str) -> None:
    """Such a layer still runs calls that do not need the part, as the original does, and fails where that fails."""
    original = pyg().SAGEConv((K, K), M, root_weight=False).double()
    layer = dacergnn.optimize(original, on_unsupported="ignore")
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    setattr(layer, option, True)
    setattr(original, option, True)
    for x in ((draw(3, K), None), (draw(3, K), draw(3, K))):
        try:
            expected = original(x, index)
        except AttributeError:
            with pytest.raises(AttributeError):
                layer(x, index)
        else:
            assert_close(layer(x, index), expected, 1e-8)


@pytest.mark.usefixtures("fresh_dynamo")
def test_networks_that_torch_compile_cannot_take_with_the_layer() -> None:
    original = pyg().GINConv(nn.Sequential(nn.Linear(K, M), nn.BatchNorm1d(M), nn.ReLU()))
    x, index = draw(N, K).float(), edges()
    expected = copy.deepcopy(original)
    model = torch.compile(dacergnn.optimize(original), backend="aot_eager")
    assert_close(model(x, index), expected(x, index))
    assert_close(list(original.buffers()), list(expected.buffers()))


def test_modules_of_a_network_are_those_of_the_moment() -> None:
    shared = nn.Tanh()
    inner = nn.Sequential(nn.Linear(K, M), shared, nn.Dropout(0.4), nn.Linear(M, M), shared)
    original = pyg().GINConv(inner, train_eps=True).double()
    layer, args = compiled(original), (draw(N, K), edges())
    for change in (
        lambda: None,
        layer.eval,
        lambda: inner.__setitem__(1, nn.ReLU()),
        lambda: inner[0].reset_parameters(),
    ):
        change()
        torch.manual_seed(1)
        expected = original(*args)
        torch.manual_seed(1)
        assert_close(layer(*args), expected, 1e-8)


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "flow": lambda: pyg().GCNConv(K, M, flow="target_to_source"),
    "aggr": lambda: pyg().SAGEConv(K, M, aggr="std"),
    "message": lambda: pyg().GraphConv(K, M),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_front_end_is_captured(name: str) -> None:
    original, args = OTHERS[name]().double(), (draw(N, K), edges())
    layer = dacergnn.optimize(original)
    assert type(layer.runner) is CapturedLayer
    assert_close(outcome(layer, args), outcome(original, args), 1e-7)
    assert layer.refusal is None


def test_hooks_within_a_layer_are_run() -> None:
    original = pyg().GCNConv(K, M).double()
    seen: list[nn.Module] = []
    original.lin.register_forward_hook(lambda module, *_: seen.append(module))
    layer = dacergnn.optimize(original, on_unsupported="ignore")
    assert_close(layer(draw(N, K), edges()), original(draw(N, K), edges()), 1e-8)
    assert seen == [original.lin] * 2


UNCOVERED: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "GCNConv runs uncompiled: edge_weight must be a tensor [60] of torch.float64.": (
        "GCNConv", lambda: (draw(N, K), edges(), weights().float())
    ),
    "SAGEConv runs uncompiled: x has shape [2, 0, 17, 6]; pass features of one graph at least.": (
        "SAGEConv", lambda: (draw(2, 0, N, K), edges())
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", UNCOVERED)
def test_calls_that_run_the_original(message: str) -> None:
    name, make = UNCOVERED[message]
    original, args = LAYERS[name]().double(), make()
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        found = dacergnn.optimize(original)(*args)
    assert_close(found, original(*args), 0)


def test_errors_of_calls() -> None:
    index = edges()
    index[0, 3] = N
    for name, make in LAYERS.items():
        layer = dacergnn.optimize(make().double())
        with pytest.raises(GraphError, match=rf"^edge_index\[0\] holds {N} at position 3, but there are {N} source"):
            layer(draw(N, K), index)
        with pytest.raises(UnsupportedCallError, match=rf"^{name} cannot run this call, compiled or not: "):
            layer(draw(N, K + 1), edges())
        with pytest.raises(TypeError):
            layer(draw(N, K), edges(), None, None)
    with pytest.raises(UnsupportedCallError, match=r"^SAGEConv cannot run .* size=\(5, 17\) differs from \(17, 17\)"):
        dacergnn.optimize(LAYERS["SAGEConv"]().double())((draw(N, K), draw(N, K)), edges(), size=(5, N))


def test_errors_of_dgl_are_raised_as_they_are() -> None:
    dgl = pytest.importorskip("dgl")
    layers = pytest.importorskip("dgl.nn.pytorch")
    g, x = dgl.graph(tuple(edges()), num_nodes=N + 1), torch.ones(N + 1, K)
    looped = dgl.add_self_loop(g)
    for args in ((g, x), (looped, x, torch.ones(K, M))):
        original = layers.GraphConv(K, M)
        found: list[str] = []
        for layer in (original, compiled(original)):
            with pytest.raises(dgl.DGLError) as caught:
                layer(*args)
            found.append(str(caught.value))
        assert found[0] == found[1]
    assert_close(compiled(layers.GraphConv(K, M, allow_zero_in_degree=True))(g, x)[N], torch.zeros(M))


def test_refused_aggregators_of_dgl_stay() -> None:
    pytest.importorskip("dgl")
    layers = pytest.importorskip("dgl.nn.pytorch")
    original = layers.SAGEConv(K, M, "lstm")
    with pytest.warns(UserWarning, match="^the model is left as it is: aggregator_type='lstm' of SAGEConv is not"):
        found = dacergnn.optimize(original)
    assert type(found) is type(original)


def test_a_relation_of_a_heterograph_of_dgl_is_encoded_once() -> None:
    dgl = pytest.importorskip("dgl")
    layers = pytest.importorskip("dgl.nn.pytorch")
    index = edges()
    g = dgl.heterograph({("a", "r", "b"): tuple(index), ("a", "s", "a"): tuple(index[:, :20])}, {"a": N, "b": N})
    feat = draw(N, K), draw(N, K).sin()
    original = layers.SAGEConv(K, M, "mean").double()
    layer = compiled(original)
    for name in ("r", "s"):
        graphs: list[object] = []
        for _ in range(3):
            assert_close(layer(g[name], feat), original(g[name], feat), 1e-8)
            assert layer.last_call is not None
            graphs.append(layer.last_call[1])
        assert graphs[0] is graphs[1] is graphs[2]
    g.add_edges([0], [1], etype="r")
    assert_close(layer(g["r"], feat), original(g["r"], feat), 1e-8)
