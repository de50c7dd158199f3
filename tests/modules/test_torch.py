"""Compiled layers among the machinery of torch: operator checks, torch.compile, autocast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import dacergnn
from dacergnn.errors import ArrayError
from dacergnn.modules import CompiledLayer
from dacergnn.modules.torch_operator import _describe, call_layer  # pyright: ignore[reportPrivateUsage]
from tests.frontends.graphs import typed_edges
from tests.modules.layers import (
    K,
    M,
    R,
    arguments,
    assert_close,
    compiled,
    features,
    gradients,
    hetero_graph,
    hgt,
    hgt_arguments,
    native,
    pyg,
    rgat,
    rgcn,
)

Make = Callable[[], nn.Module]
LAYERS = [
    pytest.param(rgcn, arguments, id="RGCNConv"),
    pytest.param(hgt, hgt_arguments, id="HGTConv"),
]
# torch's own tracing warns about parts of torch.
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def tight(model: nn.Module, backend: str = "aot_eager") -> Any:
    return torch.compile(model, fullgraph=True, backend=backend)


@pytest.mark.parametrize(("make", "args"), LAYERS)
def test_opcheck(make: Make, args: Callable[[], Any]) -> None:
    layer, inputs = compiled(make()), list[torch.Tensor]()
    x, *rest = args()
    x = {k: v.requires_grad_() for k, v in x.items()} if isinstance(x, dict) else x.requires_grad_()
    call = _describe(((x, *rest), {}), inputs)
    names = ",".join(n for n, _ in layer.named_parameters())
    wanted = [i for i, t in enumerate([*inputs, *layer.parameters()]) if t.requires_grad]
    for asked in (None, wanted):
        torch.library.opcheck(call_layer, (inputs, list(layer.parameters()), layer.number, call, names, asked))


def test_compile_native_layers_without_graph_breaks() -> None:
    layer = native("HGT")
    x, fast = features(channels=M), tight(layer)
    for graph in (hetero_graph(), hetero_graph(typed_edges(30, 9))):
        assert_close(fast(x, graph), layer(x, graph))
        assert_close(gradients(fast, (x, graph)), gradients(layer, (x, graph)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.norm = rgcn(), pyg().RGATConv(M, 4, R), nn.LayerNorm(M)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_type: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.conv1(x, edge_index, edge_type)).relu()
        return self.conv2(hidden, edge_index, edge_type).log_softmax(-1)


def test_compile_a_model_with_inductor() -> None:
    model, args = Net(), arguments()
    fast = tight(dacergnn.optimize(model), "inductor")
    with torch.no_grad():
        assert_close(fast(*args), model(*args), 1e-4)


def test_compiled_model_can_be_trained_on_ever_new_graphs() -> None:
    model = Net()
    reference = Net()
    reference.load_state_dict(model.state_dict())
    fast = tight(dacergnn.optimize(model))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, reference)]
    for count in (10, 40, 70, 70):
        args = arguments(typed_edges(count, count))
        assert_close(fast(*args), reference(*args), 1e-4)
        for net, optimizer in zip((fast, reference), optimizers, strict=True):
            optimizer.zero_grad()
            net(*args)[:, 0].mean().neg().backward()
            optimizer.step()
    for found, expected in zip(model.parameters(), reference.parameters(), strict=True):
        if expected.grad is not None:
            assert_close(found, expected, 1e-4)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.filterwarnings("ignore:.*Dynamo does not know", "ignore:The .grad attribute")
def test_torch_compile_does_not_look_into_our_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of DGL are not traced, so that layers are compiled within the first call, where nothing is built yet."""
    dgl, dglnn = pytest.importorskip("dgl"), pytest.importorskip("dgl.nn")
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXXFLAGS", "-O0")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = dglnn.GraphConv(13, 13), dglnn.GATConv(13, 3, 2)

        def forward(self, g: Any, x: torch.Tensor) -> torch.Tensor:
            return self.second(g, self.first(g, x).relu())

    graph, x = dgl.add_self_loop(dgl.rand_graph(11, 30)), torch.randn(11, 13)
    model = Model()
    fast = dacergnn.optimize(model)
    for _ in range(2):
        assert_close(torch.compile(fast, backend="eager")(graph, x), model(graph, x))
    assert any(tmp_path.iterdir())


def test_a_call_that_falls_back_is_traced_as_the_original() -> None:
    layer, args = compiled(rgat()), arguments()
    fast = tight(layer)
    out, (_, weights) = fast(*args, return_attention_weights=True)
    expected, (_, expected_weights) = layer.original(*args, return_attention_weights=True)
    assert_close([out, weights], [expected, expected_weights])
    assert_close(
        torch.autograd.grad(weights.square().sum(), layer.q),
        torch.autograd.grad(expected_weights.square().sum(), layer.q),
    )


# Autocast ---------------------------------------------------------------------------------------------------


def test_autocast_reaches_keyword_arguments() -> None:
    layer, (x, *edges) = compiled(rgat(edge_dim=3)), arguments()
    attributes = torch.randn(edges[1].numel(), 3).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x, *edges, edge_attr=attributes.float())
        assert torch.equal(found, layer(x.bfloat16(), *edges, edge_attr=attributes))
    assert_close(found.float(), layer(x, *edges, edge_attr=attributes.float()), 0.05)


def test_autocast_around_other_layers() -> None:
    model = nn.ModuleList([nn.Linear(K, K), rgcn(), nn.Linear(M, 3)])
    fast, (x, *edges) = dacergnn.optimize(model), arguments()
    assert isinstance(fast, nn.ModuleList)
    assert isinstance(fast[1], CompiledLayer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = fast[0](x)
        assert hidden.dtype is torch.bfloat16
        middle = fast[1](hidden, *edges)
        out = fast[2](middle)
    assert (middle.dtype, out.dtype) == (torch.float32, torch.bfloat16)  # as those of the original
    out.float().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


# Where torch makes no memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "args"), LAYERS)
def test_calls_whose_results_have_no_memory(make: Make, args: Callable[[], Any]) -> None:
    original, call = make(), args()
    layer = compiled(original)
    expected = layer(*call)
    for recorded in (True, False):
        mode = torch.device("meta")
        with mode, torch.set_grad_enabled(recorded), pytest.raises(ArrayError, match="the call is made where torch"):
            layer(*call)
    assert_close(layer(*call), expected)


def test_calls_in_fake_tensor_mode_run_the_original() -> None:
    layer, call = compiled(pyg().SAGEConv(K, M)), arguments()[:2]
    expected = layer(*call)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.warns(UserWarning, match="FakeTensorMode hold no numbers"):
        found = layer(*call)
    assert found.shape == expected.shape
    assert_close(layer(*call), expected)


@pytest.mark.compiled
def test_tensors_that_have_no_memory() -> None:
    layer, graph = native("RGCN"), hetero_graph()
    x = features(channels=K)
    with torch.no_grad():
        expected = layer(x, graph)
        with pytest.raises(ArrayError, match="is a FakeTensor without memory"):
            layer(FakeTensorMode().from_tensor(x), graph)
        assert_close(layer(x, graph), expected)
