"""Layers and forwards whose captures are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.modules import CompiledLayer
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.capture.captured_graph import CapturedGraph

N, E, K = 17, 60, 6


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As many items as torch has captured graphs."""
    return _counted(CapturedForward, "_keep", monkeypatch)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As many items as calls of captured graphs have been recorded."""
    return _counted(CapturedGraph, "_recorded", monkeypatch)


def _counted(kind: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    original = getattr(kind, name)

    def counted(self: Any, *args: Any) -> Any:
        found.append(1)
        return original(self, *args)

    monkeypatch.setattr(kind, name, counted)
    return found


def compiled(layer: nn.Module) -> CompiledLayer:
    found = dacergnn.optimize(layer, on_unsupported="error")
    assert isinstance(found.runner, CapturedForward)
    return found


def arguments(requires_grad: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(N, K, generator=generator, dtype=torch.float64).requires_grad_(requires_grad)
    return x, torch.randint(N, (2, E), generator=generator)


def repeated(layer: nn.Module, args: Any) -> CompiledLayer:
    """The compiled layer after calls of which the last one was not captured."""
    found = compiled(layer)
    for _ in range(3):
        found(*args)
    return found


class Counter:
    """Another number whenever it is asked for."""

    def __init__(self) -> None:
        self.calls = 0

    @property
    def value(self) -> float:
        self.calls += 1
        return float(self.calls)
