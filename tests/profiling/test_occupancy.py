"""Occupancy as computed by hand from the limits of multiprocessors, and the bytes in flight that it leaves."""

from __future__ import annotations

import pytest

from dacergnn.errors import DeviceError
from dacergnn.native.ptxas import KernelUsage
from dacergnn.profiling.devices import named
from dacergnn.profiling.occupancy import blocks_at_once, filled
from dacergnn.runtime.launches import Launch


def launch(registers: int, threads: int, dynamic: int = 0, static: int = 0, blocks: int = 1 << 20) -> Launch:
    return Launch(KernelUsage("K", "sm_90", registers, 0, 0, static, "k"), blocks, threads, dynamic)


@pytest.mark.parametrize(
    ("gpu", "one", "blocks", "limit"),
    [
        # 16 registers for each of 64 warps, 8 of which are a block.
        ("h100", launch(16, 256), 8, "warps"),
        # 46 * 32 = 1472 registers of a warp become 1536; 42 warps have room, 40 in fours, 5 blocks.
        ("h100", launch(46, 256), 5, "registers"),
        # 40 * 32 = 1280; 51 warps have room, 48 in fours, 16 blocks of 3 warps.
        ("h100", launch(40, 96), 16, "registers"),
        # 144 * 32 = 4608; 14 warps, 12 in fours, 3 blocks of 4 warps.
        ("h100", launch(144, 128, 40_000), 3, "registers"),
        # 255 * 32 = 8160 become 8192: 8 warps, which one block takes.
        ("h100", launch(255, 256), 1, "registers"),
        # 60,000 + 1024 bytes become 61,056; 228 KiB have room for 3, 100 KiB for 1, 164 KiB for 2.
        ("h100", launch(32, 128, 60_000), 3, "shared memory"),
        ("rtx4090", launch(32, 128, 60_000), 1, "shared memory"),
        ("a100", launch(32, 128, 50_000, 10_000), 2, "shared memory"),
        # 48 warps of a multiprocessor are 6 blocks of 8.
        ("l4", launch(32, 256), 6, "warps"),
        ("l4", launch(32, 32), 24, "blocks"),
        ("h200", launch(16, 33), 32, "warps"),
    ],
)
def test_blocks_of_a_multiprocessor(gpu: str, one: Launch, blocks: int, limit: str) -> None:
    assert blocks_at_once(one, named(gpu)) == (blocks, limit)


def test_what_a_large_launch_fills() -> None:
    fill = filled(launch(46, 256), named("h100"))
    assert (fill.occupancy, fill.limit, fill.warps) == (40 / 64, "registers", 40)
    assert fill.in_flight == 132 * 5 * 256 * 16


def test_rows_that_loops_load_ahead_are_in_flight() -> None:
    kernel = KernelUsage("GroupKernel<16, float>", "sm_90", 46, 0, 0, 0, "k")
    fill = filled(Launch(kernel, 1 << 20, 256, 0), named("h100"), requested=80)
    assert fill.in_flight == 132 * 5 * 256 * 80
    assert filled(launch(46, 256), named("h100"), requested=80).in_flight == 132 * 5 * 256 * 16  # of another kind


def test_a_small_launch_fills_little() -> None:
    fill = filled(launch(46, 256, blocks=66), named("h100"))
    assert (fill.occupancy, fill.limit, fill.warps) == (4 / 64, "grid", 4)
    assert fill.in_flight == fill.requests == 66 * 256 * 16


def test_copies_to_shared_memory_are_in_flight() -> None:
    fill = filled(launch(144, 128, 57_600), named("h100"))
    assert fill.in_flight == 132 * 3 * 57_600 // 3


def test_a_block_that_has_no_room() -> None:
    with pytest.raises(DeviceError, match="A block of K takes 121088 bytes of shared memory, more than l4 has; build"):
        blocks_at_once(launch(32, 128, 120_000), named("l4"))
