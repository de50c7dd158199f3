"""`optimize`, `revert` and `explain` on whole models."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import DacergnnError, UnsupportedCallError, UnsupportedLayerError
from dacergnn.modules import CompiledLayer
from tests.frontends.graphs import typed_edges
from tests.modules.layers import (
    EDGES,
    K,
    M,
    R,
    arguments,
    assert_close,
    compiled,
    gradients,
    hetero_graph,
    pyg,
    rgat,
    rgcn,
)

DECOMPOSED = "decomposed_layers=2 of RGCNConv is not supported; leave it at 1; nothing is gained from it."


class Encoder(nn.Module):
    def __init__(self, second: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.ModuleDict({"conv": rgcn(), "norm": nn.LayerNorm(M)})])
        self.back = nn.Linear(M, K)
        self.second = rgat() if second is None else second

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        for block in self.blocks:
            assert isinstance(block, nn.ModuleDict)
            x = self.back(block["norm"](block["conv"](x, edge_index, edge_type)).relu())
        return self.second(x, edge_index, edge_type)


class Model(nn.Module):
    def __init__(self, second: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = Encoder(second)
        self.head = nn.Linear(4 if second is None else M, 3)

    def forward(self, *args: Any) -> Tensor:
        return self.head(self.encoder(*args))


def replaced(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, CompiledLayer)]


def test_nested_model_gives_the_same_values_and_gradients() -> None:
    model, args = Model(), arguments()
    fast = dacergnn.optimize(model, hetero_graph())
    assert replaced(fast) == ["encoder.blocks.0.conv", "encoder.second"]
    assert replaced(model) == []
    assert isinstance(fast, Model)
    assert_close(fast(*args), model(*args))
    assert_close(gradients(fast, args), gradients(model, args))


def test_modules_without_layers_are_shared() -> None:
    model = Model()
    fast = dacergnn.optimize(model)
    assert fast.head is model.head
    assert fast.encoder is not model.encoder
    assert [id(p) for p in fast.parameters()] == [id(p) for p in model.parameters()]


def test_pyg_sequential() -> None:
    layers = [(rgcn(), "x, edge_index, edge_type -> x"), nn.ReLU(), nn.Linear(M, 2)]
    model, args = pyg().Sequential("x, edge_index, edge_type", layers), arguments()
    fast = dacergnn.optimize(model)
    assert len(replaced(fast)) == 1
    assert_close(fast(*args), model(*args))


def test_layers_that_a_module_keeps_in_a_dictionary_of_its_own_as_well() -> None:
    """As DGL's HeteroGraphConv does, which calls them from there."""
    dgl = pytest.importorskip("dgl")
    ids = [torch.arange(4), torch.tensor([0, 1, 1, 2])]
    g = dgl.heterograph({("a", "leads", "b"): tuple(ids), ("b", "back", "a"): tuple(ids[::-1])}, {"a": 4, "b": 4})
    conv = dgl.nn.GraphConv
    model = dgl.nn.HeteroGraphConv({"leads": conv(K, M), "back": conv(K, M, activation=torch.relu)})
    fast: Any = dacergnn.optimize(model)
    x = {name: torch.randn(4, K) for name in "ab"}
    for name, out in fast(g, x).items():
        assert_close(out, model(g, x)[name])
    assert all(layer.builds for layer in dacergnn.explain(fast).layers)
    assert fast.mod_dict["leads"] is fast.mods["leads"]
    assert dacergnn.revert(fast).mod_dict["leads"] is model.mod_dict["leads"]  # pyright: ignore[reportIndexIssue]


def test_a_layer_that_is_used_twice_stays_one_layer() -> None:
    layer = rgcn()
    fast = dacergnn.optimize(nn.ModuleList([layer, layer]))
    assert isinstance(fast, nn.ModuleList)
    assert fast[0] is fast[1]


def test_optimizing_again_changes_nothing() -> None:
    once = dacergnn.optimize(Model())
    twice = dacergnn.optimize(once)
    assert dict(once.named_modules())["encoder.second"] is dict(twice.named_modules())["encoder.second"]


def test_revert() -> None:
    model = Model()
    reverted = dacergnn.revert(dacergnn.optimize(model))
    assert replaced(reverted) == []
    assert reverted.encoder.second is model.encoder.second
    assert isinstance(dacergnn.revert(dacergnn.optimize(rgcn())), type(rgcn()))


def test_forward_hooks_stay() -> None:
    layer, calls = rgcn(), list[str]()
    layer.register_forward_pre_hook(lambda *_: calls.append("before"))
    layer.register_forward_hook(lambda _m, _args, out: calls.append("after") or 2 * out)
    fast = compiled(layer)
    assert_close(fast(*arguments()), layer(*arguments()))
    assert calls == ["before", "after"] * 2
    handle = fast.register_forward_hook(lambda *_: calls.append("late"))
    layer(*arguments())
    handle.remove()
    assert calls[4:] == ["before", "after", "late"]


def test_filter() -> None:
    seen: list[str] = []

    def keep(module: nn.Module, name: str) -> bool:
        seen.append(name)
        return "second" in name

    assert replaced(dacergnn.optimize(Model(), filter_fn=keep)) == ["encoder.second"]
    assert seen == ["encoder.blocks.0.conv", "encoder.second"]


def test_unsupported_layer_warns_and_stays() -> None:
    model = Model(rgcn(decomposed_layers=2))
    with pytest.warns(UserWarning, match="is left as it is") as caught:
        fast = dacergnn.optimize(model)
    assert [str(w.message) for w in caught] == [f"encoder.second is left as it is: {DECOMPOSED}"]
    assert caught[0].filename == __file__
    assert replaced(fast) == ["encoder.blocks.0.conv"]
    assert_close(fast(*arguments()), model(*arguments()))
    assert f"encoder.second: left as it is; {DECOMPOSED}" in " ".join(str(dacergnn.explain(fast)).split())
    with pytest.warns(UserWarning, match=r"^the model is left as it is: "):
        dacergnn.optimize(rgcn(decomposed_layers=2))


def test_unsupported_layer_can_be_an_error_or_passed_over() -> None:
    model = Model(rgcn(decomposed_layers=2))
    with pytest.raises(UnsupportedLayerError) as caught:
        dacergnn.optimize(model, on_unsupported="error")
    assert str(caught.value) == DECOMPOSED
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert replaced(dacergnn.optimize(model, on_unsupported="ignore")) == ["encoder.blocks.0.conv"]


def test_the_model_that_was_passed_is_not_the_optimized_one() -> None:
    for model in (Model(), rgcn()):
        fast = dacergnn.optimize(model)
        told = " ".join(str(dacergnn.explain(model)).split())
        assert told.startswith(
            "(model): left as it is; this is the model that was passed to optimize, and stays as it is"
        )
        with pytest.raises(DacergnnError, match="take the one that optimize returned"):
            dacergnn.warmup(model, *arguments())
        assert "has not been called yet" in str(dacergnn.explain(fast))


def test_sdfgs_of_a_layer_that_runs_uncompiled(tmp_path: Path) -> None:
    layer = dacergnn.optimize(pyg().RGCNConv(K, M, R, flow="target_to_source"), on_unsupported="ignore")
    layer.register_message_forward_hook(lambda *_: None)
    layer(*arguments())
    with pytest.raises(
        UnsupportedCallError, match="save_sdfg: this RGCNConv runs uncompiled: message_forward_hooks of a RGCNConv"
    ):
        layer.save_sdfg(tmp_path)


def test_explain_before_and_after_the_first_call() -> None:
    fast = dacergnn.optimize(Model(), hetero_graph())
    assert str(dacergnn.explain(fast)).splitlines() == [
        "(model): Model has not been called yet",
        "encoder.blocks.0.conv: RGCNConv has not been called yet",
        "encoder.second: RGATConv has not been called yet",
    ]
    fast(*arguments())
    report = dacergnn.explain(fast)
    rgcn_layer, rgat_layer = report.layers
    assert (rgcn_layer.name, rgcn_layer.layer) == ("encoder.blocks.0.conv", "RGCNConv")
    (build,) = (b for b in rgcn_layer.builds if b.gradients == ["W", "root", "bias"])
    fused = next(p for p in build.passes if p.name == "gemm_epilogue_fusion" and p.role == "forward")
    assert fused.fired > 0
    assert fused.saved.streamed + fused.saved.gathered > 0
    assert build.backward is not None
    # Two per product and sum: a matrix for each (source, type) pair, at least.
    pairs = torch.stack([EDGES.edge_index[0], EDGES.edge_type]).unique(dim=1).size(1)
    assert build.forward.flops >= 2 * K * M * pairs
    assert build.workspace_bytes > 0
    assert any(b.saved_bytes > 0 and b.saved for b in rgat_layer.builds)
    fewer = {p.name for b in rgat_layer.builds for p in b.passes if p.role == "forward" and p.saved.flops > 0}
    assert fewer >= {"linear_operator_reordering", "compact_materialization"}
    assert rgcn_layer.encoding_bytes["ptr_E_etype"] == 4 * (R + 1)
    text = " ".join(str(dacergnn.explain(fast, verbose=True)).split())
    for part in (
        "build for gradients of W, root, bias",
        "forward: aggregation_order fired 1x, saves",
        "MFLOP",
        "saved for the backward",
        "graph encodings",
    ):
        assert part in text


def test_explain_of_a_model_without_layers() -> None:
    message = "nothing to replace: the model holds no layer of PyG or DGL that can be compiled"
    with pytest.warns(UserWarning, match=message):
        model = dacergnn.optimize(nn.Linear(2, 2))
    assert str(dacergnn.explain(model)).startswith(message)
    for silent in ({"on_unsupported": "ignore"}, {"filter_fn": lambda *_: False}):
        dacergnn.optimize(nn.Linear(2, 2), **silent)
    dacergnn.optimize(nn.Sequential(dacergnn.compile(Forward())))


class Forward(nn.Module):
    """A forward over graphs that is compiled, so that nothing else has to be."""

    def forward(self, g: Any, x: Tensor) -> Tensor:
        return x


def test_pure_implementation_and_no_passes() -> None:
    original, args = rgcn(), arguments()
    for config in (dacergnn.Config(implementation="pure"), dacergnn.Config(passes=())):
        fast = dacergnn.optimize(original, config=config)
        assert_close(fast(*args), original(*args))
        assert_close(gradients(fast, args), gradients(original, args))


def test_graph_of_optimize_is_the_graph_of_calls() -> None:
    graph, other = hetero_graph(), hetero_graph(typed_edges(30, 9))
    layer = dacergnn.optimize(rgcn(), graph)
    assert isinstance(layer, CompiledLayer)
    with torch.no_grad():
        layer(*arguments())
        assert layer.last_call is not None
        # The call says nothing of node types, of which the graph has four.
        assert layer.last_call[1] is graph
        layer(*arguments(typed_edges(30, 8)))
        assert layer.last_call[1] is not graph
    layer = dacergnn.optimize(rgcn(), other)
    assert isinstance(layer, CompiledLayer)
    layer(*arguments())
    assert layer.last_call is not None
    assert layer.last_call[1] is not other


def test_layers_of_other_numbers_of_relations_on_one_graph() -> None:
    """Relations that have no edges count."""
    original, args = nn.ModuleList([pyg().RGCNConv(K, M, count) for count in (R, R + 2)]), arguments()
    for few, many in (original, [*original][::-1]):
        fast = dacergnn.optimize(nn.ModuleList([few, many]), on_unsupported="error")
        for layer, expected in zip(fast, (few, many), strict=True):
            assert_close(layer(*args), expected(*args))


def test_layers_in_lists_and_dictionaries_are_named() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.compiled = pyg().GCNConv(4, 4), [dacergnn.optimize(pyg().GCNConv(4, 4))]
            self.all = [self.first, pyg().SAGEConv(4, 4), nn.Linear(4, 4)]
            self.by_name = {"own": nn.Sequential(pyg().GATConv(4, 4))}

    with pytest.warns(UserWarning, match="left as it is: torch registers no modules") as caught:
        dacergnn.optimize(nn.Sequential(Model()))
    texts = [str(w.message).partition(": torch registers no modules of a ") for w in caught]
    assert [(what, remedy) for what, _, remedy in texts] == [
        ("0.all holds a SAGEConv that is left as it is", "list; use torch.nn.ModuleList."),
        ("0.by_name holds a Sequential that is left as it is", "dict; use torch.nn.ModuleDict."),
    ]
    dacergnn.optimize(nn.Sequential(Model()), on_unsupported="ignore")
