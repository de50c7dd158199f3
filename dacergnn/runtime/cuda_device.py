"""Gives CUDA programs the current stream of torch, memory of its allocator, and properties of devices."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dacergnn.config import OLDEST_ARCHITECTURE
from dacergnn.errors import DeviceError, UnsupportedMachineError
from dacergnn.native import nvcc

_HAS_PRECISION = hasattr(torch.backends.cuda.matmul, "fp32_precision")


@contextmanager
def current_stream(device: torch.device) -> Generator[torch.cuda.Stream]:
    """Makes ``device`` the current one, and yields torch's current stream there."""
    with torch.cuda.device(device):
        yield torch.cuda.current_stream(device)


def random_state(device: torch.device) -> list[Tensor]:
    """Returns the state of torch's random numbers on the CPU, and on a device unless its work is being recorded."""
    states = [torch.get_rng_state()]
    if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
        states.append(torch.cuda.get_rng_state(device))
    return states


def set_random_state(device: torch.device, states: Sequence[Tensor]) -> None:
    """Restores the states that `random_state` returned."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)


def finish(device: torch.device) -> None:
    """Waits until the work on the current stream is done."""
    torch.cuda.current_stream(device).synchronize()


@cache
def multiprocessors(device: torch.device) -> int:
    """Returns the number of multiprocessors of a device."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def architectures(chosen: tuple[int, ...] | None) -> tuple[int, ...]:
    """Returns the compute capabilities to build for: the ``chosen`` ones, else those of the devices here.

    A device that is newer than nvcc gets code for the newest architecture that nvcc knows, and compiles it itself.

    Raises:
        UnsupportedMachineError: None is chosen, and there is no device that runs kernels.
    """
    if chosen is not None:
        return chosen
    _check_torch()
    capabilities = {capability(torch.device("cuda", i)) for i in range(torch.cuda.device_count())}
    if not capabilities:
        raise UnsupportedMachineError(
            "This machine has no CUDA device to build for; name some in Config(cuda_arch=(80, 90))."
        )
    if max(capabilities) < OLDEST_ARCHITECTURE:
        newest = f"The CUDA devices of this machine have compute capability {max(capabilities) / 10} at most"
        raise UnsupportedMachineError(
            f"{newest}, but kernels need {OLDEST_ARCHITECTURE / 10}; move model and graph with .to('cpu')."
        )
    _check_driver()
    return tuple(sorted({nvcc.supported(a) for a in capabilities if a >= OLDEST_ARCHITECTURE}))


@cache
def capability(device: torch.device) -> int:
    """Returns the compute capability of a device, without the dot."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def check_built_for(device: torch.device, built: tuple[int, ...]) -> None:
    """Raises DeviceError unless a program built for some architectures runs on a device.

    Code for an architecture also runs on later ones of the same major version; code for the last one on all later ones.
    """
    _check_torch()
    own = capability(device)
    if own < OLDEST_ARCHITECTURE:
        needed = f"but kernels need {OLDEST_ARCHITECTURE / 10}; move model and graph with .to('cpu')"
        raise UnsupportedMachineError(f"{device} has compute capability {own / 10}, {needed}.")
    _check_driver()
    if not any(a <= own and (a // 10 == own // 10 or a == max(built)) for a in built):
        named = tuple(sorted({*built, own}))
        raise DeviceError(
            f"{device} has compute capability {own / 10}, but the program was built for {_listed(built)} only; "
            f"name it in Config(cuda_arch={named})."
        )


def _check_torch() -> None:
    """Raises UnsupportedMachineError if torch's devices of type "cuda" are not NVIDIA's."""
    hip: str | None = getattr(torch.version, "hip", None)
    if hip is not None:
        raise UnsupportedMachineError(
            f"This torch is built for ROCm {hip}: its devices of type 'cuda' are AMD's, but kernels are for NVIDIA's "
            "and for processors; move model and graph with .to('cpu')."
        )


def _check_driver() -> None:
    """Raises UnsupportedMachineError if the driver, which is new enough for torch, is too old for what nvcc builds.

    Programs contain the CUDA runtime of nvcc's release, and drivers run all releases up to their own major version.
    """
    driver = driver_release()
    if driver is None:
        return
    path, release = nvcc.compiler()
    if driver[0] < int(release.partition(".")[0]):
        raise UnsupportedMachineError(
            f"The driver of this machine runs CUDA {driver[0]}.{driver[1]} (torch is built for {torch.version.cuda}), "
            f"but {path} is of CUDA {release}, whose programs need a newer driver; update the driver, or set CUDA_HOME "
            f"or NVCC to a toolkit of CUDA {driver[0]}."
        )


def driver_release() -> tuple[int, int] | None:
    """Returns the newest release of CUDA that the driver runs; None if torch cannot tell."""
    ask: Callable[[], int] | None = getattr(torch._C, "_cuda_getDriverVersion", None)  # pyright: ignore[reportPrivateUsage]
    version = 0 if ask is None else ask()
    return (version // 1000, version % 1000 // 10) if version > 0 else None


def _listed(architectures: tuple[int, ...]) -> str:
    return ", ".join(str(a / 10) for a in architectures)


def allows_tf32() -> bool:
    """Tells whether torch currently lets float32 products on CUDA devices round their factors to TF32."""
    matmul: Any = torch.backends.cuda.matmul
    # After the newer setting of torch has been used, reading the older one raises an error.
    return matmul.fp32_precision == "tf32" if _HAS_PRECISION else matmul.allow_tf32


class DeviceMemory:
    """Provides each `Lease` with memory of torch's allocator, which orders reuse by the streams."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def take(self, size: int) -> Tensor:
        """Returns a buffer of ``size`` bytes with any content."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def give(self, buffer: Tensor) -> None:
        """Does nothing: the allocator takes a buffer back when the last reference is gone."""
