"""Parameters, state dictionaries and copies: a compiled layer is the original in all that is stored."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.frontends.graphs import dgl_graph
from tests.modules.layers import (
    EDGES,
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
    rgat,
    rgcn,
    weighted,
)

LAYERS = [(rgcn, arguments), (rgat, arguments), (hgt, hgt_arguments)]
Make = Callable[[], nn.Module]


@pytest.mark.parametrize(("make", "args"), LAYERS)
def test_state_dict_goes_both_ways(make: Make, args: Callable[[], Any]) -> None:
    one, other = make(), make()
    for parameter in other.parameters():
        parameter.data.mul_(1.5)
    fast = compiled(one)
    assert list(fast.state_dict()) == list(one.state_dict())
    fast.load_state_dict(other.state_dict(), strict=True)
    assert_close(fast(*args()), other(*args()))
    assert_close(one(*args()), other(*args()))
    third = make()
    third.load_state_dict(fast.state_dict(), strict=True)
    assert_close(third(*args()), other(*args()))
    with pytest.raises(RuntimeError, match="Missing key"):
        fast.load_state_dict({}, strict=True)


def test_state_dict_of_a_model_with_a_prefix() -> None:
    model = nn.ModuleDict({"a": rgcn(), "b": nn.Linear(2, 2)})
    fast = dacergnn.optimize(model)
    assert list(fast.state_dict()) == list(model.state_dict()) == ["a.weight", "a.root", "a.bias", "b.weight", "b.bias"]
    model.load_state_dict(fast.state_dict(), strict=True)


def test_dgl_layer() -> None:
    conv = pytest.importorskip("dgl.nn.pytorch", reason="dgl 1.1.3 needs Python 3.11").RelGraphConv
    layer = conv(K, M, R, "basis", 2)
    fast, args = compiled(layer), (dgl_graph(EDGES), features(), EDGES.edge_type)
    assert list(fast.state_dict()) == list(layer.state_dict())
    other = conv(K, M, R, "basis", 2)
    other.load_state_dict(fast.state_dict(), strict=True)
    assert_close(fast(*args), other(*args))


@pytest.mark.parametrize(("make", "args"), LAYERS)
def test_an_optimizer_made_before_goes_on(make: Make, args: Callable[[], Any]) -> None:
    layer = make()
    twin = copy.deepcopy(layer)
    optimizer, twin_optimizer = (torch.optim.Adam(m.parameters(), lr=0.1) for m in (layer, twin))
    fast = compiled(layer)
    for step in range(6):
        # After three steps of the compiled layer, three of the original: same parameters, same moments.
        weighted((fast if step < 3 else layer)(*args())).backward()
        weighted(twin(*args())).backward()
        for one in (optimizer, twin_optimizer):
            one.step()
            one.zero_grad()
    # Rounding of gradients near zero moves Adam's steps, of which six were made.
    assert_close(list(layer.parameters()), list(twin.parameters()), 1e-3)
    assert all(a is b for a, b in zip(fast.parameters(), layer.parameters(), strict=True))


def test_double_moves_both() -> None:
    layer = rgcn()
    fast = compiled(layer)
    fast.double()
    assert layer.weight.dtype is torch.float64
    args = arguments(dtype=torch.float64)
    assert_close(fast(*args), layer(*args), 1e-10)
    fast.weight = nn.Parameter(torch.zeros_like(layer.weight))
    assert_close(fast(*args), layer(*args), 1e-10)


def test_attributes_and_text_are_those_of_the_original() -> None:
    layer = rgat(heads=2)
    fast = compiled(layer)
    assert (fast.heads, fast.in_channels, fast.num_relations) == (2, K, R)
    assert "compiled RGATConv" in repr(fast)
    with pytest.raises(AttributeError, match="nothing"):
        _ = fast.nothing


def test_train_and_eval() -> None:
    model = nn.ModuleList([rgat(dropout=0.5)])
    fast = dacergnn.optimize(model)
    assert isinstance(fast, nn.ModuleList)
    layer = fast[0]
    assert isinstance(layer, CompiledLayer)
    fast.eval()
    assert not layer.training
    assert not layer.original.training
    fast.train()
    assert layer.training
    assert layer.original.training
    assert not compiled(rgcn().eval()).training


@pytest.mark.parametrize(("make", "args"), LAYERS)
def test_deepcopy_is_independent(make: Make, args: Callable[[], Any]) -> None:
    fast = compiled(make())
    before = fast(*args())
    other = copy.deepcopy(fast)
    assert_close(gradients(other, args()), gradients(fast, args()))
    for parameter in other.parameters():
        parameter.data.zero_()
    assert_close(fast(*args()), before)
    assert not any(weighted(p).item() for p in other.parameters())


@pytest.mark.parametrize(("make", "args"), LAYERS)
def test_pickle_and_save(make: Make, args: Callable[[], Any], tmp_path: Path) -> None:
    model = nn.Sequential(make())
    fast = dacergnn.optimize(model)[0]  # type: ignore[index]
    assert isinstance(fast, CompiledLayer)
    expected = fast(*args())
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    buffer.seek(0)
    for copied in (pickle.loads(pickle.dumps(fast)), torch.load(buffer, weights_only=False)):
        assert isinstance(copied, CompiledLayer)
        assert_close(copied(*args()), expected)
        assert_close(gradients(copied, args()), gradients(fast, args()))
    torch.save(fast.state_dict(), tmp_path / "state.pt")
    fresh = make()
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), strict=True)
    assert_close(fresh(*args()), expected)


@pytest.mark.parametrize("name", ["RGCN", "RGAT", "HGT"])
def test_native_layers_are_copied_and_saved(name: str) -> None:
    layer, graph = native(name), hetero_graph()
    x = features(channels=M if name == "HGT" else K)
    expected = layer(x, graph)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert_close(copied(x, graph), expected)
    other = native(name)
    for parameter in other.parameters():
        parameter.data.zero_()
    other.load_state_dict(layer.state_dict(), strict=True)
    assert_close(other(x, graph), expected)


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
