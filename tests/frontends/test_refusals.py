"""What front ends match, what they refuse when made, and which calls they hand back to the original layer."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn

from dacergnn import optimize
from dacergnn.errors import GraphError, UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends import Frontend, ProgramSource, find_frontend, handled_classes, programs
from tests.frontends.graphs import Edges, dgl_graph, edge_dict, type_name, typed_edges

pyg = pytest.importorskip("torch_geometric.nn")
EDGES = typed_edges()
X = torch.randn(EDGES.num_src, 6)


def frontend(layer: nn.Module) -> Frontend:
    found = find_frontend(layer)
    assert found is not None
    return found(layer)


def rgcn(**options: Any) -> nn.Module:
    return pyg.RGCNConv(options.pop("channels", 6), 8, EDGES.num_relations, **options)


def rgat(**options: Any) -> nn.Module:
    return pyg.RGATConv(6, 4, EDGES.num_relations, **options)


def hgt(channels: Any = 6) -> nn.Module:
    names = [type_name(i) for i in range(len(EDGES.type_sizes))]
    return pyg.HGTConv(channels, 8, (names, list(edge_dict(EDGES))))


def x_dict() -> dict[str, torch.Tensor]:
    return {type_name(i): torch.randn(size, 6) for i, size in enumerate(EDGES.type_sizes)}


def test_programs_have_at_most_51_lines() -> None:
    tree = ast.parse(inspect.getsource(programs))
    bodies = [ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(bodies) == 4
    assert sum(len(body.splitlines()) for body in bodies) <= 51


def test_every_handled_class_has_its_frontend() -> None:
    from dacergnn.frontends import _FRONTENDS  # pyright: ignore[reportPrivateUsage]

    for name in handled_classes():
        module, cls = _FRONTENDS[name]
        assert name in getattr(import_module(f"dacergnn.frontends.{module}"), cls).handles


def test_only_subclasses_with_the_same_computation_match() -> None:
    class Renamed(pyg.RGCNConv):
        pass

    class Scaled(pyg.RGCNConv):
        def message(self, x_j: Any, edge_type_ptr: Any) -> Any:
            return 2 * x_j

    class Wrapped(pyg.RGCNConv):
        def forward(self, *args: Any) -> Any:
            return super().forward(*args)

    assert find_frontend(Renamed(6, 8, 3)) is find_frontend(pyg.RGCNConv(6, 8, 3))
    assert find_frontend(pyg.FastRGCNConv(6, 8, 3)) is not find_frontend(pyg.RGCNConv(6, 8, 3))
    wrapped, patched = pyg.RGCNConv(6, 8, 3), pyg.RGCNConv(6, 8, 3)
    wrapped.forward = lambda *_: None  # runs around the compiled one
    assert find_frontend(wrapped) is find_frontend(pyg.RGCNConv(6, 8, 3))
    patched.message = lambda **_: None
    for layer in (Scaled(6, 8, 3), Wrapped(6, 8, 3), patched, pyg.GraphConv(6, 8), nn.Linear(2, 2)):
        assert find_frontend(layer) is None


def test_equal_programs_are_equal_keys() -> None:
    def source(g: Any, x: Any, bias: Any) -> None: ...

    one, other = ProgramSource.of(source, x="NS[4]", slope=0.2), ProgramSource.of(source, slope=0.2, x="NS[4]")
    assert one == other
    assert hash(one) == hash(other)
    assert ("bias", None) in one.bindings
    assert one != ProgramSource.of(source, x="NS[8]", slope=0.2)


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: rgcn(aggr="median"), "aggr"),
        (lambda: rgcn(aggr=["mean", "max"]), "aggr"),
        (lambda: rgcn(aggr=pyg.aggr.MeanAggregation()), "aggr"),
        (lambda: pyg.FastRGCNConv(6, 8, 5, aggr="max"), "aggr"),
        (lambda: rgcn(flow="target_to_source"), "flow"),
        (lambda: rgcn(decomposed_layers=2), "decomposed_layers"),
        (lambda: rgat(aggr="mean"), "aggr"),
        (lambda: hgt(-1), "in_channels"),
    ],
)
def test_options_refused_by_name(make: Any, option: str) -> None:
    layer = make()
    with pytest.raises(UnsupportedLayerError, match=f"^{option}=.* of {type(layer).__name__} is not"):
        frontend(layer)


def test_message_hooks_are_refused() -> None:
    layer = rgcn()
    layer.register_message_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedLayerError, match="hooks='message_forward_hooks'"):
        frontend(layer)


def test_scores_of_dgl_with_another_activation() -> None:
    layer = pytest.importorskip("dgl").nn.GATConv(6, 4, 2)
    layer.leaky_relu = nn.ELU()
    with pytest.raises(UnsupportedLayerError, match=r"^leaky_relu='ELU' of GATConv is not"):
        frontend(layer)


E, T = EDGES.edge_index, EDGES.edge_type


@pytest.mark.parametrize(
    ("make", "args", "kwargs", "reason"),
    [
        (rgcn, (X, E.to_sparse(), T), {}, "edge_index is a Tensor"),
        (rgcn, (X, [1, 2], T), {}, "edge_index is a list"),
        (rgcn, (X, E[0], T), {}, "edge_index has shape"),
        (rgcn, (X, E), {}, "edge_type is missing"),
        (rgcn, (X[:, :5], E, T), {}, "x is \\[15, 5\\]; it must be a tensor of shape \\[N, 6\\]"),
        (rgcn, ((X, X[:, :5]), E, T), {}, "x\\[1\\] is"),
        (rgcn, ((X, torch.arange(15)), E, T), {}, "x\\[1\\] is"),
        (rgcn, ((torch.arange(15), X), E, T), {}, "x mixes features and node ids"),
        (lambda: rgcn(num_blocks=2), (None, E, T), {}, "num_blocks needs features"),
        (lambda: pyg.FastRGCNConv(6, 8, 5), (torch.arange(15), E, T), {}, "15 ids, but there are 6"),
        (rgat, (X, E, T), {"edge_attr": torch.randn(50, 3)}, "without edge_dim"),
        (lambda: rgat(edge_dim=3), (X, E, T), {"edge_attr": torch.randn(50, 2)}, "edge_attr is \\[50, 2\\]"),
        (rgat, (X, E, T), {"size": (15, 9)}, "size=\\(15, 9\\) differs"),
        (rgat, (X.long(), E, T), {}, "x has dtype torch.int64"),
        (hgt, ({}, {}), {}, "x_dict or edge_index_dict is empty"),
        (hgt, ({**x_dict(), "t": X}, edge_dict(EDGES)), {}, "node type 't'"),
        (hgt, (x_dict(), {("t9", "other", "t8"): E}), {}, "edge type \\('t9', 'other', 't8'\\)"),
        (hgt, ({"t9": X}, edge_dict(EDGES)), {}, "x_dict lacks a node type"),
    ],
)  # fmt: skip
def test_calls_handed_back(make: Any, args: Any, kwargs: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedCallError, match=reason):
        frontend(make()).edges(*args, **kwargs)


@pytest.mark.parametrize(
    ("make", "args", "position"),
    [
        (rgcn, (X, E + 20, T), "edge_index\\[0\\] holds"),
        (rgcn, (X, E, T + 5), "edge_type holds"),
        (lambda: rgcn(channels=20), (torch.arange(10), E, T), "edge_index\\[0\\] holds"),
        (lambda: rgcn(channels=9), (torch.arange(15), E, T), "source nodes"),
        (hgt, (x_dict(), {("t9", "r2", "t9"): torch.tensor([[0], [9]])}), "\\]\\[1\\] holds 9"),
    ],
)  # fmt: skip
def test_wrong_indices_are_named(make: Any, args: Any, position: str) -> None:
    with pytest.raises(GraphError, match=position):
        frontend(make()).graph(*args)


def test_edge_index_of_pyg_is_an_edge_index() -> None:
    from torch_geometric import EdgeIndex

    wrapped = EdgeIndex(E, sparse_size=(EDGES.num_src, EDGES.num_src))
    layer = rgcn()
    assert frontend(layer).graph(X, wrapped, T).size("E") == frontend(layer).graph(X, E, T).size("E")


def test_calls_on_the_same_tensors_name_the_same_graph() -> None:
    layer = frontend(rgcn())
    one, other = layer.edges(X, E, T), layer.edges(X + 1, E, T)
    assert all(a is b for a, b in zip(one[0], other[0], strict=True))
    assert one[1] == other[1]
    assert layer.edges((X, X), E, T)[1] != one[1]


def test_dgl_calls_handed_back() -> None:
    dgl = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
    layer = frontend(dgl.nn.RelGraphConv(6, 8, 5))
    g = dgl_graph(EDGES)
    typed = dgl.heterograph({("a", "r", "b"): ([0], [0]), ("b", "s", "a"): ([0], [0])})
    more = dgl_graph(Edges(E.flip(0), T, EDGES.num_src, EDGES.num_src + 1, 5))
    calls: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((typed, X, T), {}, "several edge types"),
        ((g, X[1:], T), {}, "feat is torch.float32 \\[14, 6\\]"),
        ((g, X.long(), T), {}, "feat is torch.int64"),
        ((g, X, list(T)), {}, "etypes must be a tensor"),
        ((g, X, T, torch.ones(50)), {}, "norm must be a tensor \\[50, 1\\]"),
        ((more, X, T), {}, "16 destinations but 15 sources"),
    ]
    for args, kwargs, reason in calls:
        with pytest.raises(UnsupportedCallError, match=reason):
            layer.edges(*args, **kwargs)


def gat(**options: Any) -> nn.Module:
    return pyg.GATConv(options.pop("channels", 6), 4, **options)


def test_options_of_attention_layers_that_are_refused() -> None:
    with pytest.raises(UnsupportedLayerError, match="flow"):
        frontend(gat(flow="target_to_source"))
    with pytest.raises(UnsupportedLayerError, match="aggr"):
        frontend(pyg.GATv2Conv(6, 4, aggr="max"))


@pytest.mark.parametrize(
    ("layer", "args", "message"),
    [
        (pyg.GATv2Conv((6, 5), 4), ((X, None), EDGES.edge_index), r"x\[1\] is None"),
        (gat(), (X[:, :5], EDGES.edge_index), r"x is \[15, 5\]; it must be a tensor of shape \[N, 6\]"),
        (gat(), (X, EDGES.edge_index, None, (15, 14)), r"size=\(15, 14\) differs from \(15, 15\)"),
        (gat(edge_dim=3), (X, EDGES.edge_index, X[:2]), r"edge_attr is \[2, 6\]"),
        (pyg.GATv2Conv(6, 4), (X, EDGES.edge_index, X), "without edge_dim"),
        (gat(), (X, EDGES.edge_index.to_sparse()), r"size=\(50, 2\) differs from \(15, 15\), the rows of x"),
    ],
)
def test_calls_of_attention_layers_that_are_handed_back(layer: nn.Module, args: Any, message: str) -> None:
    with pytest.raises(UnsupportedCallError, match=message):
        frontend(layer).edges(*args)


class ManyAxes(pyg.MessagePassing):
    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: torch.Tensor) -> torch.Tensor:
        return (x_j.view(-1, 2, 2, 2, 2) * 2).flatten(1)


def test_rows_of_more_axes_than_programs_have() -> None:
    layer, x = ManyAxes(), torch.randn(EDGES.num_src, 16)
    edge_index = EDGES.edge_index
    made = optimize(layer)(x, edge_index)
    torch.testing.assert_close(made, layer(x, edge_index))
