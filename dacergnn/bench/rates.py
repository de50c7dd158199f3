"""What this machine can do: copy bandwidth, bandwidth of gathered rows, rate of a large matrix product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dacergnn.bench.measure import time_call
from dacergnn.config import Rates


def measure_rates(rows: int = 1 << 18, width: int = 64) -> Rates:
    """Measure on torch's current number of threads, in about a second, the best of a few times.

    Streamed are the bytes that a large copy reads and writes; gathered are those of rows read from a table in random
    order and summed at once; FLOPs are those of a float32 product of large square matrices.

    Args:
        rows: Of the gathered float32 table: a small one comes from the caches.
        width: Of its rows.
    """
    source = torch.ones(32 << 20)
    target = torch.empty_like(source)
    copied = 2 * source.nbytes
    copy = copied / _best(lambda: target.copy_(source), 5)

    bag = 32
    table = torch.ones(max(rows, 1), width)
    index = torch.randint(max(rows, 1), (1 << 19,), generator=torch.Generator().manual_seed(0))
    offsets = torch.arange(0, len(index), bag)
    gathered = len(index) * width * 4
    gather = gathered / _best(lambda: functional.embedding_bag(index, table, offsets, mode="sum"), 5)

    n = 2048
    square = torch.ones(n, n)
    product = torch.empty_like(square)
    gemm = 2 * n**3 / _best(lambda: torch.mm(square, square, out=product), 3)
    return Rates(gemm, copy, gather)


def _best(call: Callable[[], Any], times: int) -> float:
    call()
    return min(time_call(call) for _ in range(times))
