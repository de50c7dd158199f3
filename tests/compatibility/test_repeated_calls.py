"""Calls like one before: for every kind of layer, they are not examined, and end as the first one does."""

from __future__ import annotations

import copy
import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dacergnn.modules import CompiledLayer
from dacergnn.modules.capture.captured_forward import CapturedForward
from tests.compatibility.comparing import assert_same, every_kind, outcome
from tests.compatibility.kinds import KINDS, Kind, named, outputs

ALWAYS_EXAMINED = {
    "pyg.FastRGCNConv": "weights are made of bases at every call",
    "dgl.RelGraphConv": "weights are made of bases at every call",
    "pyg.RGATConv-modes": "scales are made of parameters at every call",
    "dgl.HGTConv": "weights are put together at every call",
}
NOTHING_TO_EXAMINE = {"own.RGCN", "own.RGAT", "own.HGT", "compile-program"}
"""Kinds whose calls take a HeteroGraph, so that nobody has to find out which graph they are about."""
WITHOUT_NAMES = {k.name for k in KINDS if k.name.startswith("pyg.HeteroConv")} | {"compile-program"}
"""Kinds whose forward takes any arguments."""
EXAMINED = [k for k in KINDS if k.name not in NOTHING_TO_EXAMINE]
UNDER_AUTOCAST = [k for k in EXAMINED if not k.name.startswith(("pyg.traced", "dgl.traced", "compile-DGL-forward"))]
"""Kinds to which autocast makes a difference: recorded layers compute in the type of their parameters."""
REPEATED = [k for k in EXAMINED if k.name not in ALWAYS_EXAMINED]


def examinations(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As many items as calls have asked a front end which graph they are about, or have been recorded."""
    found: list[int] = []

    def counted(examine: Callable[..., Any]) -> Callable[..., Any]:
        def examined(*args: Any, **kwargs: Any) -> Any:
            found.append(1)
            return examine(*args, **kwargs)

        return examined

    for part in module.modules():
        if isinstance(part, CompiledLayer) and part.frontend is not None:
            monkeypatch.setattr(part.frontend, "edges", counted(part.frontend.edges))
    monkeypatch.setattr(CapturedForward, "_keep", counted(CapturedForward._keep))  # pyright: ignore[reportPrivateUsage]
    return found


def in_training_and_evaluation(kind: Kind, module: nn.Module, features: list[Tensor]) -> list[Tensor]:
    """The results of two calls with gradients, and of two without."""
    found: list[Tensor] = []
    for training in (True, True, False, False):
        with torch.set_grad_enabled(training):
            found += [part.detach() for part in outputs(module.train(training)(*kind.call(*features)))]
    return found


@pytest.mark.parametrize("kind", REPEATED, ids=named)
def test_calls_like_one_before_are_not_examined(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    original, fast = kind.pair()
    calls = [[x * factor for x in kind.features()] for factor in (1, 2, -3)]
    expected = [in_training_and_evaluation(kind, original, features) for features in calls]
    examined = examinations(fast, monkeypatch)
    for _ in range(4):
        in_training_and_evaluation(kind, fast, calls[0])
    before = len(examined)
    found = [in_training_and_evaluation(kind, fast, features) for features in calls]
    assert before == len(examined) > 0
    for result, wanted in zip(found, expected, strict=True):
        assert_same(result, wanted)


@pytest.mark.parametrize("kind", UNDER_AUTOCAST, ids=named)
def test_calls_unlike_those_before_are_examined(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls under autocast, of features in another order in memory, and where all calls are examined."""
    with torch.set_grad_enabled(UNDER_AUTOCAST.index(kind) % 2 == 0):  # in training and evaluation in turns
        check_calls_unlike_those_before(kind, kind.compiled(torch.float32), monkeypatch)


def check_calls_unlike_those_before(kind: Kind, module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    examined = examinations(module, monkeypatch)
    expected = outputs(module(*kind.arguments(torch.float32)))
    for _ in range(3):
        module(*kind.arguments(torch.float32))
    before = len(examined)
    with torch.autocast("cpu"):
        module(*kind.arguments(torch.float32))
    assert len(examined) > before
    before = len(examined)
    found = module(*kind.call(*[x.float().t().contiguous().t() for x in kind.features()]))
    assert len(examined) > before
    assert_same(outputs(found), expected, 1e-5)
    before = len(examined)
    for _ in range(4):
        assert_same(outputs(module(*kind.arguments(torch.float32))), expected, 1e-5)
    assert (len(examined) - before > 2) == (kind.name in ALWAYS_EXAMINED)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name not in WITHOUT_NAMES], ids=named)
def test_arguments_by_name(kind: Kind) -> None:
    original, fast = kind.pair()
    names = [*inspect.signature(original.forward).parameters]
    for factor in (1, 2, 3, 4):
        arguments = kind.call(*[x * factor for x in kind.features()])
        assert_same(outputs(fast(**dict(zip(names, arguments, strict=False)))), outputs(original(*arguments)))


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name.startswith("pyg")], ids=named)
def test_arguments_are_not_kept(kind: Kind) -> None:
    module, arguments = kind.compiled(), copy.deepcopy(kind.arguments())
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            for _ in range(4):
                module(*arguments)
    references = [weakref.ref(value) for value in tree_leaves(arguments)]
    del arguments
    gc.collect()
    assert not any(reference() is not None for reference in references)


@every_kind
def test_calls_without_gradients(kind: Kind) -> None:
    module = kind.compiled()
    expected = outputs(module(*kind.arguments()))
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            for _ in range(3):
                found = outputs(module(*kind.arguments()))
                rounds = "GINConv" in kind.name or "to_hetero" in kind.name  # torch runs networks, and captures models
                assert_same(found, expected, 1e-14 if rounds else 0)
                assert {part.requires_grad for part in found} == {False}
                assert {part.is_inference() for part in found} == {torch.is_inference_mode_enabled()}
    assert_same(outcome(kind, module), outcome(kind, kind.compiled()))
