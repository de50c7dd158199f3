"""Emulation: right kernels pass in any order of threads, and what CUDA leaves undefined is caught."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuda.samples import SEEDS, fault, library, line, numbers, pointer
from tests.support.emulated import Array, EmulationError, device


def product(value: int = 0, n: int = 37, k: int = 41, m: int = 21) -> tuple[Array, Array]:
    """With a fault or none: what the kernel gives and what NumPy gives."""
    x, w, y = numbers(n, k), numbers(k, m), device(np.full((n, m), -1, np.float32))
    library().product(pointer(x), pointer(w), pointer(y), n, k, m, value)
    return y, x.astype(np.float64) @ w


def block_sum(value: int = 0, blocks: int = 5) -> tuple[Array, Array]:
    """With a fault or none: what the kernel gives and what NumPy gives."""
    x, y = numbers(blocks, 256), device(np.full(blocks, -1, np.float32))
    library().block_sum(pointer(x), pointer(y), blocks, value)
    return y, x.sum(1, dtype=np.float64)


@pytest.mark.parametrize("seed", SEEDS)
def test_right_kernels_pass_whatever_the_order(seed: int) -> None:
    library().seed(seed)
    for n, k, m in ((37, 41, 21), (16, 16, 16), (1, 1, 1), (48, 5, 3)):
        np.testing.assert_allclose(*product(0, n, k, m), rtol=1e-5)
    np.testing.assert_allclose(*block_sum(), rtol=1e-5)


def test_launches_leave_no_stacks_behind() -> None:
    """A process may have some 65,000 mappings, and every library has an emulation of its own."""
    np.testing.assert_allclose(*block_sum(), rtol=1e-5)
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    stacks = [start for start, end in spans if int(end, 16) - int(start, 16) == 256 * 1024]
    assert len(stacks) < 64, "a block of 256 threads has as many stacks"


def test_blocks_have_no_more_shared_memory_than_the_device() -> None:
    library().limit_shared(0)
    try:
        with pytest.raises(EmulationError, match=r"A block asks for \d+ bytes of shared memory, and may have 0\."):
            product()
    finally:
        library().limit_shared(227)
    np.testing.assert_allclose(*product(), rtol=1e-5)


# What the error says of each fault; None where only the result is wrong.
BARRIER = r"waits in __syncthreads \(source:\d+\)"
RACE = r"(reads|writes) what thread \d+ of block \d+ (read|wrote) \[source:\d+\]; no barrier comes in between"
FAULTS = {
    "product": {
        "kNoBarrierAfterLoad": RACE,
        "kNoBarrierBeforeLoad": RACE,
        "kRowTooMany": "accesses memory at .*, which is not its own",
        "kTileTooLong": "just outside shared memory",
        "kExitBeforeBarrier": BARRIER + r".*, but thread \d+ has left the kernel",
    },
    "block_sum": {
        "kNoBarrier": RACE,
        "kBarrierInBranch": BARRIER + r".*, but thread \d+ " + BARRIER,
        "kMaskOfHalf": r"calls __shfl_down_sync \(source:\d+\) (with a mask|to read from lane \d+, which its mask)",
        "kMaskWithoutSelf": r"calls __shfl_down_sync .*mask (that )?does not name",
        "kLanesMissing": r"waits in __shfl_down_sync .* mask 0xffffffff .*for thread \d+, which has left the kernel",
        "kHalfTheDistance": None,
        "kTwoPlaces": r"waits in __shfl_xor_sync \(source:\d+\).*, which waits in __shfl_xor_sync \(source:\d+\)",
    },
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kernel", "name"), [(kernel, name) for kernel, names in FAULTS.items() for name in names])
def test_faults_are_caught_whatever_the_order(kernel: str, name: str, seed: int) -> None:
    library().seed(seed)
    run = {"product": product, "block_sum": block_sum}[kernel]
    message = FAULTS[kernel][name]
    if message is None:
        result, expected = run(fault(name))
        assert not np.allclose(result, expected, rtol=1e-3)
    else:
        with pytest.raises(EmulationError, match=rf"Thread \d+ of block \d+ .*{message}"):
            run(fault(name))


def test_every_seed_has_an_order_of_its_own() -> None:
    def order(seed: int, blocks: int = 9) -> Array:
        library().seed(seed)
        count, result = device(np.zeros(1, np.int32)), device(np.zeros(64 * blocks, np.int32))
        library().order(pointer(count), pointer(result), blocks)
        return result

    np.testing.assert_array_equal(order(0), np.arange(64 * 9))
    orders = [tuple(order(seed)) for seed in SEEDS]
    assert len(set(orders)) == len(SEEDS)
    assert all(sorted(o) == list(range(64 * 9)) for o in orders)
    assert tuple(order(5)) == orders[5]
    assert len({o[0] // 64 for o in orders}) > 1, "always the same block comes first"


@pytest.mark.parametrize("index", [100, 1000, -5, -2000])
def test_memory_that_is_not_its_own(index: int) -> None:
    x, y = numbers(100), device(np.zeros(3, np.float32))
    library().read_at(pointer(x), pointer(y), ctypes.c_int64(99))
    assert y[0] == x[99]
    if index == -5:  # in the page before the array: rubbish
        library().read_at(pointer(x), pointer(y), ctypes.c_int64(index))
        assert np.isnan(y[0])
        return
    with pytest.raises(EmulationError, match=rf"Thread 40 of block \d accesses memory .*\[source:{line('x[index]')}\]"):
        library().read_at(pointer(x), pointer(y), ctypes.c_int64(index))


@pytest.mark.parametrize(
    ("write", "read", "elements", "message"),
    [
        (64, 0, 64, "just outside shared memory"),
        (-1, 0, 64, "Block 0 wrote beyond its 256 bytes"),
        (5, 0, 5, "Block 0 wrote beyond its 20 bytes"),
        (0, -3000, 64, "just outside shared memory"),
        (0, 3, 64, "undefined"),
    ],
)
def test_shared_memory_has_ends(write: int, read: int, elements: int, message: str) -> None:
    y = device(np.zeros(2, np.float32))
    with pytest.raises(EmulationError, match=message):
        library().shared_at(pointer(y), write, read, elements)


def test_shared_memory_is_rubbish_at_first() -> None:
    seen: set[Any] = set()
    for seed in range(3):
        library().seed(seed)
        y = device(np.zeros(2, np.float32))
        library().shared_at(pointer(y), 0, 1, 64)
        seen.add((str(y[0]), float(y[1])))
    assert ("nan", -1.0) in seen
    assert len(seen) == 3
    assert not any(a == "0.0" or b == 0 for a, b in seen)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("threads", "synchronise", "ordered"),
    [
        (32, 0, False),
        (32, 1, True),
        (32, 2, True),
        (32, 3, False),
        (64, 1, False),
        (64, 2, True),
    ],
)
def test_threads_that_add_to_one_number(threads: int, synchronise: int, ordered: bool, seed: int) -> None:
    """Only __syncwarp (within a warp) and __syncthreads order memory; shuffles do not."""
    library().seed(seed)
    y = device(np.zeros(1, np.int32))
    if ordered:
        library().turns(pointer(y), threads, synchronise)
        assert y[0] == threads
    else:
        with pytest.raises(EmulationError, match=rf"(wrote|read) \[source:{line('*y += 1')}\]; no barrier comes"):
            library().turns(pointer(y), threads, synchronise)


def test_blocks_that_add_to_one_number() -> None:
    y = device(np.zeros(1, np.int32))
    with pytest.raises(EmulationError, match=r"Thread 0 of block \d reads what thread 0 of block \d wrote"):
        library().turns_of_blocks(pointer(y))


def test_a_stack_that_is_full() -> None:
    y = device(np.zeros(32, np.float32))
    with pytest.raises(EmulationError, match="as its stack is full"):
        library().deep(pointer(y))
