"""Computes the roofline bound of a layer: the work of the best known plan over the rates measured on this machine.

d is the feature size, r = 4 d the bytes of a float32 row, W = 4 R d^2 those of the weights; N, E, U, V, R are sizes:
time >= max(FLOP / GEMM rate, streamed bytes / copy bandwidth, gathered bytes / gather bandwidth).
The bound is the least over three plans: vanilla (one row per edge), compact (one row per (source, type) pair) and
aggregate-first (one row per (destination, type) pair).

The GEMM rate is measured on a large product of torch, so a kernel that beats torch's library can be below the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dacergnn.config import Rates
from dacergnn.errors import DacergnnError


@dataclass(frozen=True)
class ForwardWork:
    """Holds the FLOP and the bytes of one forward pass."""

    name: str
    flop: float
    streamed: float
    gathered: float


@dataclass(frozen=True)
class Bound:
    """Holds the least time that a plan can take, and the rate that limits it."""

    ms: float
    plan: str
    limit: str


# Forward and backward over forward alone, as lower bounds:
# - FLOP: each product Y = X W becomes dX = dY W^T and dW = X^T dY, each as large. Each sum over edges becomes
#   a sum of gradients and (for attention) one product per edge. Backward is twice the forward, so 3 in all.
# - Streamed bytes: forward reads x and writes out (2 rows). Backward reads x and the gradient, and writes
#   the gradient of x (3 rows). Rows of U or V do likewise: 2.5 in all.
# - Gathered bytes: one pass over the edges by source keeps the source's row in registers, and reads each edge's
#   gradient row once. It computes the gradients of both attention and x: 2 in all.
_TRAINING = {"flop": 3.0, "streamed": 2.5, "gathered": 2.0}


def plans(model: str, sizes: Mapping[str, int], d: int, itemsize: int = 4) -> list[ForwardWork]:
    """Returns the forward plans of "rgcn", "rgat" or "hgt", with `itemsize` bytes per element of rows and weights.

    HGT includes its output projection.
    """
    n, e, u, v = (float(sizes[name]) for name in "NEUV")
    r, w = float(itemsize * d), float(itemsize * sizes["R"] * d * d)
    node = 2 * n * d * d
    if model == "rgcn":
        return [
            ForwardWork("vanilla", 2 * e * d * d + 2 * e * d + node, 2 * e * r + 2 * n * r + 12 * e + w, e * r),
            ForwardWork("compact", 2 * u * d * d + 2 * e * d + node,
                 2 * n * r + 2 * u * r + 4 * u + 8 * e + w, u * r + e * r),
            ForwardWork("aggregate-first", 2 * v * d * d + 2 * e * d + node,
                 2 * n * r + 4 * e + 8 * v + w, e * r + 2 * v * r),
        ]  # fmt: skip
    if model == "rgat":
        return [
            ForwardWork("vanilla", 4 * e * d * d + 6 * e * d, 5 * e * r + n * r + 24 * e + w, 2 * e * r),
            ForwardWork("compact", 2 * u * d * d + 2 * (u + v) * d + 2 * e * d,
                 2 * n * r + 2 * u * r + 8 * (u + v) + 20 * e + w, u * r + e * r),
            ForwardWork("aggregate-first", 2 * v * d * d + 4 * e * d,
                 2 * n * r + 4 * e + 8 * v + w, e * r + 2 * v * r),
        ]  # fmt: skip
    if model == "hgt":
        return [
            ForwardWork("vanilla", 4 * node + 4 * e * d * d + 4 * e * d,
                 6 * n * r + 4 * e * r + 24 * e + 2 * w, 3 * e * r),
            ForwardWork("compact", 4 * node + 4 * u * d * d + 4 * e * d,
                 8 * n * r + 4 * u * r + 20 * e + 2 * w, 2 * u * r + 2 * e * r),
            ForwardWork("folded, aggregate-first", node + 4 * v * d * d + 4 * e * d,
                 2 * n * r + 4 * e + 8 * v + 2 * w, e * r + 2 * v * r),
        ]  # fmt: skip
    raise DacergnnError(f"model '{model}' is unknown; choose from rgcn, rgat, hgt")


def bounds(
    model: str, mode: str, sizes: Mapping[str, int], d: int, rates: Rates, itemsize: int = 4
) -> dict[str, Bound]:
    """Returns every plan's bound by its name, for mode "infer" or "train" (with the backward, without the loss)."""
    return {plan.name: _plan_bound(plan, mode == "train", rates) for plan in plans(model, sizes, d, itemsize)}


def bound(model: str, mode: str, sizes: Mapping[str, int], d: int, rates: Rates, itemsize: int = 4) -> Bound:
    """Returns the least of `bounds`."""
    return min(bounds(model, mode, sizes, d, rates, itemsize).values(), key=lambda b: b.ms)


def _plan_bound(plan: ForwardWork, train: bool, rates: Rates) -> Bound:
    factor = _TRAINING if train else dict.fromkeys(_TRAINING, 1.0)
    seconds = {
        "FLOP": plan.flop * factor["flop"] / rates.flops,
        "copy bandwidth": plan.streamed * factor["streamed"] / rates.streamed,
        "gather bandwidth": plan.gathered * factor["gathered"] / rates.gathered,
    }
    limit = max(seconds, key=lambda name: seconds[name])
    return Bound(1e3 * seconds[limit], plan.name, limit)
