"""`profile` shows beside times what kernels take and how fast they should be: in emulation, for a device made up."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
import torch

import dacergnn
from dacergnn import Config, Rates
from dacergnn.errors import BuildError
from dacergnn.modules import RGAT
from dacergnn.native import nvcc
from dacergnn.profiling import measure
from dacergnn.profiling.devices import Device
from tests.support.emulated_device import emulated_device
from tests.support.nvcc import needs_nvcc
from tests.support.random_graphs import joined_graph

__all__ = ["emulated_device"]

RATES = Rates(1e11, 1e10, 1e10, 1e9)
DEVICE = Device("some GPU", 90, 4, RATES)
COMPILER, COMMAND = nvcc.compiler, nvcc.command


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch, emulated_device: Config) -> Any:
    """Returns a function that profiles a layer whose kernels are emulated, as if they ran on `DEVICE`."""
    monkeypatch.setattr(measure, "LEAST_CALLS", 1)
    monkeypatch.setattr(measure, "MOST_CALLS", 1)
    monkeypatch.setattr(measure, "_rates", lambda *_: RATES)
    monkeypatch.setattr(measure, "at_hand", lambda *_: DEVICE)
    emulation = nvcc.command

    def command(architectures: tuple[int, ...]) -> list[str]:
        return COMMAND(architectures) if architectures == (90,) else emulation(architectures)

    def profile() -> dacergnn.profiling.OperatorProfile:
        monkeypatch.setattr(nvcc, "command", command)
        raw = joined_graph(random.Random(3), 60, 300, 4, 3)
        layer = RGAT(16, 16, raw.num_edge_types, config=emulated_device)
        return dacergnn.profile(layer, torch.randn(60, 16, requires_grad=True), raw.hetero())

    return profile


@pytest.mark.check
def test_forecasts_stand_beside_times(profiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_nvcc()
    monkeypatch.setattr(nvcc, "compiler", COMPILER)
    profile = profiled()
    forecast = profile.forecast
    assert forecast.device == DEVICE
    assert [(o.role, o.results, o.kind, o.cost) for o in forecast.operators] == [
        (o.role, o.results, o.kind, o.cost) for o in profile.operators
    ]
    assert [o.measured_ms for o in forecast.operators] == [o.ms for o in profile.operators]
    assert [o.bound_ms for o in forecast.operators] == [o.bound_ms for o in profile.operators]
    assert all(kernel.registers > 0 for o in forecast.operators for kernel in o.kernels)
    assert "Forecast for some GPU: 4 multiprocessors" in str(profile)


def test_times_are_kept_where_there_is_no_forecast(
    profiled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise BuildError("nvcc rejected generated code")

    monkeypatch.setattr(measure, "forecast", refuse)
    with caplog.at_level(logging.WARNING, "dacergnn.build"):
        profile = profiled()
    assert profile.forecast is None
    assert profile.operators
    assert "there is no forecast of kernels: nvcc rejected generated code" in caplog.text
