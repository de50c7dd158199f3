"""Measures the machine: copy bandwidth, bandwidth and number of gathered rows, rate of a large matrix product."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dacergnn.bench.measure import Clock, clock_of
from dacergnn.config import Rates

PRECISIONS = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
"""Ways to compute on a device, and the element type of each; TF32 rounds the factors of products."""

BEATEN = "caches beat the measured rates of memory, or kernels beat torch's"
"""Explains times below their bound."""


@contextmanager
def precision(name: str) -> Generator[None]:
    """Makes float32 products on devices round their factors to TF32 if ``name`` is "tf32", and else not to do so."""
    with warnings.catch_warnings():  # newer releases of torch warn that they have another setting for this
        warnings.simplefilter("ignore")
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.backends.cuda.matmul.allow_tf32 = before


def measure_rates(
    rows: int = 1 << 14, width: int = 64, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Rates:
    """Measures a device, or the processor on torch's current number of threads, in about a second.

    Each rate is the best of a few runs. A large copy reads and writes the streamed bytes. The gathered bytes are of
    rows that are read from a table in random order and summed. Rows are counted on a small table of single elements.
    FLOPs are those of a product of large square matrices.

    Args:
        rows: Rows of the gathered table: the cache holds a table of 4 MiB, as passes assume, but not a large one.
        width: Elements of each row.
        dtype: Element type of the tables and the matrices.
    """
    place = torch.device(device)
    large = place.type == "cuda"
    source = torch.ones((256 if large else 32) << 20, device=place)
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / _best(lambda: target.copy_(source), 5, clock_of(place))
    table = torch.ones(max(rows, 1), width, dtype=dtype, device=place)
    gathered = gather_rate(table) * width * table.itemsize
    n = 8192 if large else 2048
    return Rates(gemm_rate(n, place, dtype), copy, gathered, gather_rate(table.new_ones(1 << 14, 1)))


def gather_rate(table: Tensor) -> float:
    """Returns how many rows of a table are read in random order and summed in bags, in a second."""
    clock, large, bag = clock_of(table.device), table.is_cuda, 32
    draws = torch.Generator().manual_seed(0)
    index = torch.randint(len(table), (1 << (22 if large else 19),), generator=draws).to(table.device)
    offsets = torch.arange(0, len(index), bag, device=table.device)
    seconds = _best(lambda: functional.embedding_bag(index, table, offsets, mode="sum"), 5, clock)
    if large:  # a plain gather, though it also writes, may be closer to the device's limit than torch's sum of bags
        out = table.new_empty(len(index), table.shape[1])
        seconds = min(seconds, _best(lambda: torch.index_select(table, 0, index, out=out), 5, clock) / 2)
    return len(index) / seconds


def gemm_rate(n: int, device: torch.device, dtype: torch.dtype) -> float:
    """Returns the FLOPs in a second of a product of n by n matrices of random numbers."""
    square: Tensor = torch.randn(n, n, device=device).to(dtype)
    product = torch.empty_like(square)
    return 2 * n**3 / _best(lambda: torch.mm(square, square, out=product), 3, clock_of(device))


def _best(call: Callable[[], Any], times: int, clock: Clock) -> float:
    call()
    return min(clock.time(call) for _ in range(times))
