"""Sets what is measured on a CUDA device, and with which limits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dacergnn.bench.rates import PRECISIONS
from dacergnn.config import Rates


@dataclass(frozen=True)
class DeviceSettings:
    """Describes how the candidates of a case are chosen and timed."""

    levels: tuple[str, ...] = ("O2", "hector")
    against: tuple[str, ...] = ("pyg", "dgl", "torch", "grouped")
    """Peers: the layers of "pyg" and "dgl", plain "torch", "grouped" for plain torch whose typed products are those of
    torch._grouped_mm, and "compiled" for the layers of PyG through torch.compile."""
    precision: str = "float32"
    """One of `PRECISIONS`."""
    device: str = "cuda"
    architectures: tuple[int, ...] | None = None
    """Compute capabilities to build for; None for that of the device."""
    rates: Rates | None = None
    """Rates of the device that our layers are compiled by; None for typical ones."""
    repeat: int = 20
    """Rounds of the interleaved measurement."""
    budget_s: float = 2.0
    """Time for the interleaved measurement of one case."""
    replay_below_ms: float = 2.0
    """Steps that take less are also captured in a CUDA graph and replayed."""
    finalists: int = 2
    """Number of layers of each kind of peers that are interleaved with ours; others are timed by themselves."""
    seed: int = 0

    @property
    def dtype(self) -> torch.dtype:
        return PRECISIONS[self.precision]

    @property
    def tolerance(self) -> float:
        """Returns the largest deviation from the reference that is not wrong, relative to a tensor's largest value."""
        return {"float64": 1e-9, "float32": 1e-3, "tf32": 2e-2}.get(self.precision, 0.1)
