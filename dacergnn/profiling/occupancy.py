"""Computes how much of a device a launch fills: warps by registers, shared memory and blocks, and bytes in flight."""

from __future__ import annotations

from dataclasses import dataclass

from dacergnn.errors import DeviceError
from dacergnn.profiling.devices import Device
from dacergnn.runtime.launches import Launch

WARP = 32
_REGISTERS = 64 * 1024
"""Registers of a multiprocessor, of all architectures from 8.0 up."""
_REGISTER_UNIT, _WARP_UNIT = 256, 4
"""Registers are given to a warp in such pieces, and to as many warps at once."""
_SHARED_UNIT, _RESERVED = 128, 1024
"""Shared memory is given to a block in such pieces; so much of each block's is the system's own."""
_THREAD_BYTES = 16
"""Bytes that a thread has requested at a time if its plan does not say so: one load of the widest kind."""
_SHARED_PART = 3
"""Products copy the next rows while they multiply: these take about so large a part of their shared memory."""


@dataclass(frozen=True)
class Filled:
    """Describes what a launch fills of a device.

    Attributes:
        occupancy: Share of the warps that a multiprocessor has room for.
        limit: What keeps more blocks away: "registers", "shared memory", "warps", "blocks", or "grid" if there are no
            more.
        warps: Warps at work on a multiprocessor, the mean over all of them.
        requests: Bytes that all its blocks would request from memory at a time.
        in_flight: Those of them whose blocks run at once.
    """

    occupancy: float
    limit: str
    warps: float
    requests: int
    in_flight: float


def filled(launch: Launch, device: Device, requested: int = 0) -> Filled:
    """Returns what a launch fills of a device.

    Args:
        requested: Bytes that a thread of a loop over rows requests at a time.
    """
    warps = -(-launch.threads // WARP)
    most, limit = blocks_at_once(launch, device)
    blocks = min(most, launch.blocks / device.multiprocessors)
    of_thread = max(_THREAD_BYTES, requested if _loops_over_rows(launch) else 0)
    requested = max(of_thread * launch.threads, launch.dynamic // _SHARED_PART)
    return Filled(
        occupancy=blocks * warps / device.multiprocessor.warps,
        limit=limit if blocks == most else "grid",
        warps=blocks * warps,
        requests=launch.blocks * requested,
        in_flight=blocks * requested * device.multiprocessors,
    )


def blocks_at_once(launch: Launch, device: Device) -> tuple[int, str]:
    """Returns how many blocks of a kernel a multiprocessor runs at once, and what keeps more away.

    Raises:
        DeviceError: It runs none, because a block takes too much shared memory.
    """
    room = device.multiprocessor
    warps = -(-launch.threads // WARP)
    registers = _up(launch.kernel.registers * WARP, _REGISTER_UNIT)
    shared = _up(launch.shared + _RESERVED, _SHARED_UNIT)
    limits = {
        "warps": room.warps // warps,
        "registers": _REGISTERS // registers // _WARP_UNIT * _WARP_UNIT // warps,
        "shared memory": room.shared // shared,
        "blocks": room.blocks,
    }
    limit = min(limits, key=lambda name: limits[name])
    if limits[limit] == 0:
        raise DeviceError(
            f"A block of {launch.kernel.short_name} takes {shared} bytes of shared memory, more than {device.name} "
            f"has; build for its compute capability, {device.architecture}."
        )
    return limits[limit], limit


def _loops_over_rows(launch: Launch) -> bool:
    return any(kernel in launch.kernel.name for kernel in ("GroupKernel", "HubKernel", "ChunkKernel"))


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
