"""What the platform of kernels offers, in emulation: functions over a warp, copies, launches."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.cuda.samples import SEEDS, library, numbers, pointer
from tests.support.emulated import EmulationError, device


@pytest.mark.parametrize("seed", SEEDS)
def test_functions_over_a_warp(seed: int) -> None:
    library().seed(seed)
    x = device(np.random.default_rng(0).integers(-99, 99, 32).astype(np.int32))
    y = device(np.zeros((15, 32), np.int32))
    library().collectives(pointer(x), pointer(y))
    lane = np.arange(32)
    sources = [
        (lane * 7 + 3) % 32,
        lane // 8 * 8 + 5,
        np.where(lane >= 3, lane - 3, lane),
        np.where(lane % 16 >= 3, lane - 3, lane),
        np.where(lane < 29, lane + 3, lane),
        np.where(lane % 16 < 13, lane + 3, lane),
        lane ^ 6,
    ]
    ballot = int(((x > 0).astype(np.uint64) << lane.astype(np.uint64)).sum()) - (1 << 32 if x[31] > 0 else 0)
    alike = [ballot, 0, 1, x.sum(), x.max(), x.min(), x.sum()]
    expected = [*(x[s] for s in sources), *(np.full(32, a, np.int32) for a in alike)]
    np.testing.assert_array_equal(y[:14], expected)
    np.testing.assert_array_equal(y[14], np.where(lane < 8, x[lane ^ 1], 0))


def test_lanes_that_a_block_does_not_have() -> None:
    x, y = device(np.zeros(32, np.int32)), device(np.zeros((15, 32), np.int32))
    with pytest.raises(EmulationError, match="for thread 16, which does not exist"):
        library().partial_warp(pointer(x), pointer(y))


@pytest.mark.parametrize(
    ("name", "n"), [("float", 1), ("float", 2), ("float", 3), ("float", 8), ("double", 2), ("int16", 8)]
)
def test_wide_copies(name: str, n: int) -> None:
    dtype = {"float": np.float32, "double": np.float64, "int16": np.int16}[name]
    x, y = device(np.arange(32 * n).astype(dtype)), device(np.zeros(32 * n, dtype))
    getattr(library(), f"copies_{name}_{n}")(pointer(x), pointer(y))
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("seed", SEEDS)
def test_asynchronous_copies_arrive_when_waited_for(seed: int) -> None:
    library().seed(seed)
    x, y = numbers(64, 4), device(np.zeros((64, 4), np.float32))
    library().asynchronous(pointer(x[:50]), pointer(y), 50, True)
    np.testing.assert_array_equal(y[::-1], np.where(np.arange(64)[:, None] < 50, x, 0))
    library().asynchronous(pointer(x), pointer(y), 64, False)
    assert not np.array_equal(y[::-1], x)
    with pytest.raises(EmulationError, match="no multiple of 16"):
        library().asynchronous(ctypes.c_void_p(x.ctypes.data + 4), pointer(y), 60, True)


def test_limits_of_a_launch() -> None:
    y = device(np.zeros(1, np.float32))

    def launch(blocks: int, shared_bytes: int = 0) -> float:
        library().set(pointer(y), ctypes.c_int64(blocks), ctypes.c_int64(shared_bytes))
        return y[0]

    assert launch(0) == 0
    with pytest.raises(EmulationError, match="more than 2\\^31 - 1 blocks"):
        launch(2**31)
    with pytest.raises(EmulationError, match="more than 163 KiB"):
        launch(1, 163 * 1024 + 1)
    assert y[0] == 0
    assert launch(1, 163 * 1024) == 96


def test_nothing_is_launched_after_a_failure() -> None:
    x, y = numbers(4), device(np.zeros(1, np.float32))
    with pytest.raises(EmulationError):
        library().read_then_set(pointer(x), pointer(y), ctypes.c_int64(4))
    assert y[0] == 0
    library().read_then_set(pointer(x), pointer(y), ctypes.c_int64(3))
    assert y[0] == 96


def test_the_workspace_is_the_callers() -> None:
    workspace = device(np.zeros(4, np.float32))
    library().set_call(workspace)
    library().set_workspace()
    assert workspace[0] == 96
    library().set_call()
    with pytest.raises(EmulationError, match=r"not its own|undefined"):
        library().set_workspace()
