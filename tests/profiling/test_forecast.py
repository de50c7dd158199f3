"""Forecasts: times from occupancy and modelled work, computed by hand; devices; the table; JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from dacergnn import Rates
from dacergnn.cost import Cost
from dacergnn.errors import DacergnnError
from dacergnn.native.ptxas import KernelUsage
from dacergnn.profiling import OperatorProfile, OperatorTime
from dacergnn.profiling.devices import Device, at_hand, first_of, named
from dacergnn.profiling.forecast import Forecast
from dacergnn.profiling.operator_forecast import START, Kernel, OperatorForecast, kernel_of, seconds_of
from dacergnn.runtime.launches import Launch

DEVICE = Device("some GPU", 90, 100, Rates(1e13, 1e12, 2e12, 1e11))
USAGE = KernelUsage("Row<float>", "sm_90", 64, 0, 0, 512, "row")
KERNEL = Kernel("Row", 1000, 256, 64, 8, 1536, 0.5, "registers", 4_096_000, 0.5, 1.0)
ROW = OperatorForecast(
    "rgat", "forward", "traversal", ("att", "out"), 1, (KERNEL, replace(KERNEL, name="Hub", limit="grid")),
    Cost(flops=4 * 10**9, streamed=10**9, gathered=10**9), 3.0, 1.0,
)  # fmt: skip


def test_a_kernel_fills_a_part_of_the_device() -> None:
    # 64 * 32 registers of a warp: 32 warps, 4 blocks of 256 threads, each of which requests 16 bytes.
    kernel = kernel_of(Launch(USAGE, 100_000, 256, 1024), DEVICE)
    assert (kernel.shared, kernel.occupancy, kernel.limit) == (1536, 0.5, "registers")
    assert kernel.requested == 1.0  # of 600 kB that the bandwidth needs, 100 * 4 * 256 * 16 bytes are in flight
    few = kernel_of(Launch(USAGE, 100, 64, 1024), DEVICE)
    assert few.requested == pytest.approx(100 * 64 * 16 / 600e3)
    assert (few.busy, few.limit) == (2 / 8, "grid")


def test_time_of_bytes_and_of_flops() -> None:
    full = replace(KERNEL, requested=1.0)
    moved = 1e9 / 1e12 + 1e9 / 2e12
    assert seconds_of([full], ROW.cost, DEVICE) == pytest.approx(START + moved)
    assert seconds_of([KERNEL], ROW.cost, DEVICE) == pytest.approx(START + moved / 0.5)
    slow = replace(full, busy=0.125)
    assert seconds_of([slow], ROW.cost, DEVICE) == pytest.approx(START + 4e9 / 1e13 / 0.125)
    assert seconds_of([full, KERNEL], ROW.cost, DEVICE) == pytest.approx(2 * START + 1.5 * moved)
    assert seconds_of([], ROW.cost, DEVICE) == 0.0


def test_devices() -> None:
    h100 = named("h100")
    assert (h100.architecture, h100.multiprocessors, h100.multiprocessor.warps) == (90, 132, 64)
    assert named("h100", "tf32").rates.flops > 5 * h100.rates.flops
    assert first_of(80) == "a100"
    assert replace(h100, architecture=88).multiprocessor == replace(h100, architecture=87).multiprocessor
    assert at_hand(torch.device("cpu"), DEVICE.rates) is None
    with pytest.raises(DacergnnError, match=r"gpu: there is no 'v100' among .*; name one of h100, a100"):
        named("v100")
    with pytest.raises(DacergnnError, match="precision: 'int8' is not one of float32, tf32"):
        named("h100", "int8")
    with pytest.raises(DacergnnError, match="arch: no known device has compute capability 75, only 80"):
        first_of(75)


def test_table() -> None:
    lines = str(Forecast(DEVICE, (ROW, replace(ROW, role="backward", ms=1.5)))).splitlines()
    assert max(map(len, lines)) <= 120
    words = [line.split() for line in lines]
    assert ["att", "Row", "64+8B", "1536", "50%", "2000.0", "4000.0", "3.000", "33%", "67%", "13%"] in words
    assert ["out", "Hub", "64+8B", "1536", "50%"] in words
    assert ["all", "4.500", "44%"] in words
    longer = str(Forecast(DEVICE, (replace(ROW, results=("att", "out", "sum")), replace(ROW, results=("a",)))))
    assert ["sum"] in [line.split() for line in longer.splitlines()]
    assert ["Hub", "64+8B", "1536", "50%"] in [line.split() for line in longer.splitlines()]
    assert ["1.", "forward", "of", "rgat", "att,", "out", "Row,", "Hub", "registers,", "grid",
            "2.000", "3.000", "1.000"] in words  # fmt: skip
    assert "measured less bound" not in str(lines)


def test_measured_times_stand_beside_the_forecast() -> None:
    one = replace(ROW, measured_ms=4.0)
    forecast = Forecast(DEVICE, (one,))
    text = str(forecast)
    assert "The operators that lose the most time, measured less bound:" in text
    assert ["1.", "forward", "of", "rgat", "att,", "out", "Row,", "Hub", "registers,", "grid",
            "3.000", "3.000", "4.000", "1.000"] in [line.split() for line in text.splitlines()]  # fmt: skip
    assert forecast.shares(one) == pytest.approx((0.5, 0.1))
    time = OperatorTime("rgat", (), "forward", "traversal", ("att",), ('e["att"] = e["a"]',), 1, 4.0, ROW.cost, 1.0)
    profile = OperatorProfile((time,), 5.0, DEVICE.rates, forecast)
    assert str(profile).endswith(text)
    assert json.loads(profile.to_json())["forecast"]["operators"][0]["measured_ms"] == 4.0


def test_the_worst_ten() -> None:
    rows = [replace(ROW, ms=1.0 + k) for k in range(12)]
    assert [one.ms for one in Forecast(DEVICE, tuple(rows)).worst] == [float(ms) for ms in range(12, 2, -1)]


def test_json() -> None:
    found = json.loads(Forecast(DEVICE, (ROW,)).to_json())
    assert (found["ms"], found["bound_ms"], found["device"]["name"]) == (3.0, 1.0, "some GPU")
    (one,) = found["operators"]
    assert (one["lost_ms"], one["roofline"]) == (2.0, pytest.approx(1 / 3))
    assert one["kernels"][0]["registers"] == 64
    assert (one["cost"]["flops"], one["measured_ms"]) == (4 * 10**9, None)
