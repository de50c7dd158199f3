"""Calls about tensors on a device: all that they make is made there, and nothing is read from it."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.ends import ends_of
from dacergnn.frontends.symbolic import Trace
from dacergnn.modules import CompiledLayer
from dacergnn.modules.capture.captured_layer import CapturedLayer
from dacergnn.modules.graph_forward import compiled_forwards
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.layer import compile_layer
from dacergnn.modules.layer_core import LayerCore
from dacergnn.runtime.edge_changes import Seen
from tests.capture import test_layers_without_front_end as traced
from tests.frontends.cases import CASES, Case
from tests.frontends.check import tensors
from tests.modules import hetero_layers as hetero
from tests.modules.layers import native, pyg, rgcn
from tests.support.meta_device import FixedGraph, StubProgram, meta_device, moved, on_meta

__all__ = ["meta_device"]
CONFIG = Config(implementation="cuda", cuda_arch=(80,))
pytestmark = pytest.mark.usefixtures("meta_device")
ALIKE = (
    *("fast", "-block", "multiplicative", "across", "min", "bare", "no_", "presorted"),
    *("gcn-weights", "fixed", "cached", "sparse", "function"),  # what is read when edges are first met
)
SELECTED = [case for case in CASES if not any(word in case.name for word in ALIKE)]
TRACED = ("SAGEConv", "GraphConv of the other direction", "bipartite GraphConv", "TransformerConv", "GINEConv",
          "EdgeConv", "CGConv", "NNConv", "ResGatedGraphConv")  # fmt: skip


def on_device(layer: nn.Module, args: Any, kwargs: Any = None) -> tuple[CompiledLayer, Any, Any]:
    """A compiled layer and its arguments on the stand-in for a device, where the graph of the call is encoded."""
    on_cpu = dacergnn.optimize(copy.deepcopy(layer), config=CONFIG, on_unsupported="error")
    assert isinstance(on_cpu, CompiledLayer)
    on_cpu(*args, **(kwargs or {}))
    assert on_cpu.last_call is not None
    original = copy.deepcopy(layer).to("meta")
    graphs = FixedGraph(on_meta(on_cpu.last_call[1]))
    found = compile_layer(LayerCore(original, CONFIG, cast(GraphCache, graphs), "error"))
    return found, moved(args), moved(kwargs or {})


def run(layer: nn.Module, args: Any, kwargs: Any) -> None:
    """Forward and backward."""
    before = StubProgram.calls
    outputs = [*tensors(layer(*args, **kwargs))]
    assert all(o.is_meta for o in outputs)
    leaves: list[Tensor] = [*_leaves((args, kwargs)), *layer.parameters()]
    found = torch.autograd.grad([o.sum() for o in outputs], leaves, allow_unused=True)
    assert any(g is not None for g in found)
    assert StubProgram.calls > before


def _leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree] if tree.requires_grad else []
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple | list) else []
    return [leaf for value in values for leaf in _leaves(value)]


@pytest.mark.parametrize("case", SELECTED, ids=lambda case: case.name)
def test_layers_of_libraries(case: Case) -> None:
    pytest.importorskip("torch_geometric" if case.library == "pyg" else "dgl")
    edges = case.edges()
    args, kwargs = case.inputs(edges, torch.float32)
    layer, args, kwargs = on_device(case.layer(edges, torch.float32), args, kwargs)
    if getattr(layer.original, "add_self_loops", False):
        keep_loops(layer, "one type", edges.edge_index, args[1])
    for _ in range(3):
        run(layer, args, kwargs)


@pytest.mark.parametrize("name", ["RGCN", "RGAT", "HGT"])
def test_own_layers(name: str) -> None:
    from tests.modules.layers import hetero_graph

    layer, graph = native(name), hetero_graph()
    x = torch.randn(graph.size("NS"), 8 if name == "HGT" else 6, device="meta", requires_grad=True)
    layer.config = CONFIG
    for _ in range(2):
        run(layer.to("meta"), (x, on_meta(graph)), {})


@pytest.mark.parametrize("kind", ["GraphConv", "GCNConv", "SAGEConv", "GATConv"])
@pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
def test_layers_of_several_relations(kind: str) -> None:
    keys = hetero.WITHIN if kind == "GCNConv" else hetero.MIXED
    width: Any = hetero.K if kind == "GCNConv" else (hetero.K, hetero.K)
    options = {"GATConv": {"add_self_loops": False}}.get(kind, {})
    layer = hetero.hetero(lambda library, _: getattr(library, kind)(width, hetero.M, **options), keys, "mean")
    edges = hetero.edge_index_dict(keys)
    weights = hetero.edge_weights(layer, edges)
    kwargs = {"edge_weight_dict": weights} if weights else {}
    found, args, kwargs = on_device(layer, (hetero.x_dict(), edges), kwargs)
    for key, index in args[1].items():
        keep_loops(found, key, edges[key], index)
    for _ in range(2):
        run(found, args, kwargs)


def keep_loops(layer: CompiledLayer, key: object, edges: Tensor, moved_edges: Tensor) -> None:
    """Keep what is found out of self loops when a graph is first met, by the name of its edges."""
    loop = edges[0] == edges[1]
    found = (~loop).nonzero().view(-1), loop.nonzero().view(-1), edges[0][loop]
    graphs: Any = layer.graphs
    graphs.find(None, None, layer).derived["loops", key] = [(Seen([moved_edges]), moved(found))]


@pytest.mark.parametrize("name", TRACED)
def test_traced_layers(name: str) -> None:
    layer, args = traced.CASES[name]()
    found, args, kwargs = on_device(layer.double(), args)
    assert isinstance(found.runner, CapturedLayer)
    for _ in range(5):  # each is recorded, since tensors without memory cannot be compared
        run(found, args, kwargs)


def test_recorded_values_are_where_the_tensors_are() -> None:
    trace = Trace(SimpleNamespace(tape=None))  # pyright: ignore[reportArgumentType]
    trace.place(torch.device("cuda", 1))
    value: Any = trace.record(
        trace.leaf(torch.ones(3, 2), "row", torch.Size((3, 2))), torch.Size((3, 2)), torch.float32
    )
    assert (value.device, value.is_cuda, value.is_cpu) == (torch.device("cuda", 1), True, False)
    with pytest.raises(UnsupportedCallError, match="there are tensors on cuda:1 and on cpu; move them"):
        trace.value(torch.ones(3, 2))


def test_dropout_and_conversions_stay_there() -> None:
    library = pyg()

    class Layer(library.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = torch.dropout(x.to(x.device), 0.5, self.training) + torch.zeros(1, device=x.device)
            return self.propagate(edge_index, x=h.to(x.device).contiguous()) * torch.tensor(2.0)

    found, args, _ = on_device(Layer().eval(), (traced.draw(17, 6), traced.edges()))
    found.train()
    run(found, args, {})


def test_forwards_over_graphs_of_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    dgl = pytest.importorskip("dgl")
    fn = pytest.importorskip("dgl.function")

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 4, dtype=torch.float64)

        def forward(self, g: Any, x: Tensor) -> Tensor:
            with g.local_scope():
                g.ndata["h"] = self.linear(x)
                g.apply_edges(fn.u_dot_v("h", "h", "score"))
                g.edata["a"] = dgl.ops.edge_softmax(g, g.edata["score"])
                g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "out"))
                return g.ndata["out"]

    g = dgl.graph(tuple(traced.edges()), num_nodes=traced.N)
    x = traced.draw(traced.N, 6)
    on_cpu = dacergnn.compile(Layer(), config=CONFIG, on_unsupported="error")
    on_cpu(g, x)
    graph = on_meta(compiled_forwards(on_cpu)[0].core.last_call[1])  # pyright: ignore[reportOptionalSubscript]
    monkeypatch.setattr(GraphCache, "find", lambda *_: graph)
    (ends,) = ends_of(g).values()
    ends.src, ends.dst = ends.src.to("meta"), ends.dst.to("meta")
    monkeypatch.setattr(dgl.DGLGraph, "device", property(lambda self: torch.device("meta")))
    found = dacergnn.compile(Layer().to("meta"), config=CONFIG, on_unsupported="error")
    run(found, (g, moved(x)), {})


def test_graphs_are_taken_to_the_device_of_the_model() -> None:
    graph = dacergnn.HeteroGraph.from_arrays(torch.tensor([[0, 1], [1, 0]]), None, num_nodes=2)
    compiled = dacergnn.optimize(rgcn().to("meta"), graph)
    assert isinstance(compiled, CompiledLayer)
    assert compiled.graphs.like(graph).device.type == "meta"
