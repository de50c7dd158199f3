"""Copies of a layer, what is stored of it, and who holds its parameters: for every kind of layer."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.compatibility.comparing import assert_same, every_kind, every_original, losses, outcome
from tests.compatibility.kinds import KINDS, Kind

NOT_PICKLED = ("pyg.to_hetero-SAGEConv",)
"""Kinds whose original cannot be pickled either: PyG makes a class for the model."""


def through_file(value: Any, *, weights_only: bool = False) -> Any:
    """Returns what `torch.load` gives of what `torch.save` has written."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "save": through_file,
}


def runners(module: nn.Module) -> list[type]:
    """Tells how the compiled layers of a module run."""
    return [type(part.runner) for part in module.modules() if isinstance(part, CompiledLayer)]


@every_original
def test_instances_and_attributes(kind: Kind) -> None:
    original = kind.original()
    fast = dacergnn.optimize(original)
    assert isinstance(fast, type(original)) or kind.name.startswith("pyg.to_hetero")
    assert "compiled" in repr(fast)
    assert [name for name, _ in fast.named_parameters()] == [name for name, _ in original.named_parameters()]
    assert all(a is b for a, b in zip(fast.parameters(), original.parameters(), strict=True))
    with pytest.raises(AttributeError, match="nothing"):
        _ = fast.nothing
    if isinstance(fast, CompiledLayer):
        attributes = [name for name in vars(original) if not name.startswith("_")]
        assert all(getattr(fast, name) is getattr(original, name) for name in attributes)
    expected = outcome(kind, original)
    reverted = dacergnn.revert(fast)
    assert runners(reverted) == []
    assert reverted is original or not isinstance(fast, CompiledLayer)
    for same in (fast, reverted, dacergnn.optimize(fast)):
        assert_same(outcome(kind, same), expected)


COPIED = [(k, way) for k in KINDS for way in COPIES if way in ("copy", "deepcopy") or k.name not in NOT_PICKLED]


@pytest.mark.parametrize(("kind", "way"), COPIED, ids=[f"{k.name}-{way}" for k, way in COPIED])
def test_copies(kind: Kind, way: str) -> None:
    """They are compiled, and all but those of `copy.copy` have parameters of their own."""
    module = kind.compiled()
    expected = outcome(kind, module)
    other = COPIES[way](module)
    assert type(other).__name__ == type(module).__name__
    assert runners(other) == runners(module)
    assert_same(outcome(kind, other), expected)
    if way == "copy":
        assert all(a is b for a, b in zip(other.parameters(), module.parameters(), strict=True))
        return
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert_same(outcome(kind, module), expected)
    other.load_state_dict(module.state_dict())
    assert_same(outcome(kind, other), expected)


@every_kind
def test_state_dicts_go_both_ways(kind: Kind) -> None:
    original, fast = kind.pair()
    assert [*fast.state_dict()] == [*original.state_dict()]
    for source, target in ((original, fast), (fast, original)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.mul_(1.5)
        target.load_state_dict(through_file(source.state_dict(), weights_only=True), strict=True)
        assert_same(outcome(kind, target), outcome(kind, source))
    with pytest.raises(RuntimeError, match="Missing key"):
        fast.load_state_dict({}, strict=True)


@every_original
def test_conversions_are_those_of_both(kind: Kind) -> None:
    original = kind.original(torch.float32)
    fast = dacergnn.optimize(original, on_unsupported="error")
    for _ in range(3):
        fast(*kind.arguments(torch.float32))
    fast.double()
    assert {parameter.dtype for parameter in original.parameters()} == {torch.float64}
    assert_same(outcome(kind, fast), outcome(kind, original))


@every_original
def test_an_optimizer_made_before_goes_on(kind: Kind) -> None:
    """After three steps of the compiled layer, three of the original: same parameters, same moments."""
    layer, twin = kind.original(), kind.original()
    optimizers = [torch.optim.Adam(module.parameters(), lr=0.1) for module in (layer, twin)]
    fast = dacergnn.optimize(layer, on_unsupported="error")
    for step in range(6):
        for module, optimizer in zip((fast if step < 3 else layer, twin), optimizers, strict=True):
            optimizer.zero_grad()
            torch.stack(losses(kind, module)).sum().backward()
            optimizer.step()
    assert_same([*layer.parameters()], [*twin.parameters()], 1e-6)
    assert all(a is b for a, b in zip(fast.parameters(), layer.parameters(), strict=True))
