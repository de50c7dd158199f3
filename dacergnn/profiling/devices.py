"""Lists what devices have: by name from their makers' data sheets, and the device at hand as measured."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dacergnn.config import Rates
from dacergnn.errors import DacergnnError
from dacergnn.runtime.cuda_device import capability

PRECISIONS = ("float32", "tf32", "bfloat16")
LATENCY = 600e-9
"""Seconds from the request of a row to its arrival in a busy device: an assumption, since no data sheet has it."""


@dataclass(frozen=True)
class Multiprocessor:
    """Holds what a multiprocessor has room for: warps, blocks, and bytes of shared memory."""

    warps: int
    blocks: int
    shared: int


MULTIPROCESSORS = {
    80: Multiprocessor(64, 32, 164 * 1024),
    86: Multiprocessor(48, 16, 100 * 1024),
    87: Multiprocessor(48, 16, 164 * 1024),
    89: Multiprocessor(48, 24, 100 * 1024),
    90: Multiprocessor(64, 32, 228 * 1024),
    100: Multiprocessor(64, 32, 228 * 1024),
    103: Multiprocessor(64, 32, 228 * 1024),
    110: Multiprocessor(48, 24, 228 * 1024),
    120: Multiprocessor(48, 24, 100 * 1024),
}
"""Limits by compute capability, as the CUDA programming guide lists them; later ones count as the last before them."""


@dataclass(frozen=True)
class Device:
    """Describes a device for forecasts: its compute capability, its multiprocessors, and its rates."""

    name: str
    architecture: int
    multiprocessors: int
    rates: Rates
    latency: float = LATENCY

    @property
    def multiprocessor(self) -> Multiprocessor:
        """Returns what each multiprocessor has room for."""
        listed = [a for a in MULTIPROCESSORS if a <= self.architecture]
        return MULTIPROCESSORS[max(listed, default=min(MULTIPROCESSORS))]


@dataclass(frozen=True)
class DataSheet:
    """Holds what a data sheet says: bytes in a second, and FLOPs in a second of dense products by precision."""

    architecture: int
    multiprocessors: int
    bandwidth: float
    float32: float
    tf32: float
    bfloat16: float


# From NVIDIA's data sheets: H100 SXM, A100 SXM with 80 GB, H200 SXM, L4; and from its white paper on the Ada
# architecture: GeForce RTX 4090, with sums in float32. Figures with sparsity are halved.
DATA_SHEETS = {
    "h100": DataSheet(90, 132, 3.35e12, 67e12, 494e12, 989e12),
    "a100": DataSheet(80, 108, 2.039e12, 19.5e12, 156e12, 312e12),
    "rtx4090": DataSheet(89, 128, 1.008e12, 82.6e12, 82.6e12, 165.2e12),
    "l4": DataSheet(89, 58, 0.3e12, 30.3e12, 60e12, 121e12),
    "h200": DataSheet(90, 132, 4.8e12, 67e12, 494e12, 989e12),
}


def named(name: str, precision: str = "float32") -> Device:
    """Returns a device by its name, with the rate of products in a precision; rows are gathered at the bandwidth.

    Raises:
        DacergnnError: There is no data sheet of this name, or it has no such precision.
    """
    if name not in DATA_SHEETS:
        raise DacergnnError(f"gpu: there is no {name!r} among the known devices; name one of {', '.join(DATA_SHEETS)}.")
    if precision not in PRECISIONS:
        raise DacergnnError(f"precision: {precision!r} is not one of {', '.join(PRECISIONS)}.")
    sheet = DATA_SHEETS[name]
    flops: float = getattr(sheet, precision)
    rates = Rates(flops, sheet.bandwidth, sheet.bandwidth, sheet.bandwidth / 32)  # devices read 32 bytes at least
    return Device(name, sheet.architecture, sheet.multiprocessors, rates)


def first_of(architecture: int) -> str:
    """Returns the name of the first device of a compute capability, such as 90.

    Raises:
        DacergnnError: No known device has it.
    """
    for name, sheet in DATA_SHEETS.items():
        if sheet.architecture == architecture:
            return name
    listed = ", ".join(map(str, sorted({sheet.architecture for sheet in DATA_SHEETS.values()})))
    raise DacergnnError(
        f"arch: no known device has compute capability {architecture}, only {listed}; name a device with --gpu, and "
        "it is taken with code for that."
    )


def at_hand(device: torch.device, rates: Rates) -> Device | None:
    """Returns a CUDA device of this machine, with the rates that were measured on it; None for the processor."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return Device(properties.name, capability(device), properties.multi_processor_count, rates)
