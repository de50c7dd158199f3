"""The mode and the hooks of an original are those of its compiled layer."""

from __future__ import annotations

from torch import nn

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.modules.layers import (
    arguments,
    assert_close,
    compiled,
    rgat,
    rgcn,
)


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
