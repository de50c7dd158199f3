"""Finds out which kernels a CUDA program launches on a graph, and what they take of a device. No device is needed.

The program is built without the CUDA runtime: `recorded_launches.cuh` stands in for it. Its host code then computes
the launches, as it does on a device, and the names of their kernels lead to what ptxas says of these.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dacergnn.errors import BuildError
from dacergnn.native.build import build, messages
from dacergnn.native.ptxas import VERBOSE, KernelUsage, kernel_usages
from dacergnn.runtime.layout import ArgumentLayout
from dacergnn.runtime.lower import Lowered

_HEADER = '#include "include/dacergnn/cuda/recorded_launches.cuh"\n'
# A process may have loaded the CUDA runtime so that its functions go before those of other libraries.
_OPTIONS = ("-cudart", "none", "-Xlinker", "-Bsymbolic", "-Xlinker", "-zdefs", *VERBOSE)
_MOST = 1 << 12
"""Launches of a program."""
_TAIL = 3
"""Arguments after those of the program: stream, scratch memory, number of multiprocessors."""


@dataclass(frozen=True)
class Launch:
    """Describes a launch: its kernel, its blocks, the threads and the dynamic shared memory of each of them."""

    kernel: KernelUsage
    blocks: int
    threads: int
    dynamic: int

    @property
    def shared(self) -> int:
        """Returns the bytes of shared memory that a block takes."""
        return self.kernel.shared + self.dynamic


class _Recorded(ctypes.Structure):
    """Mirrors ``RecordedLaunch``."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("ticks", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("dynamic", ctypes.c_int64),
    )


class LaunchRecorder:
    """Tells the launches of a program.

    Args:
        lowered: The program with clocks, which tell its groups of operators apart.
        architecture: Compute capability to build for, such as 90.
        tf32: Whether to take the build whose products have TF32 factors.

    Raises:
        BuildError: There is no nvcc, it does not know the architecture, or its runtime has functions that the header
            does not stand in for.
    """

    def __init__(self, lowered: Lowered, architecture: int, *, tf32: bool = False) -> None:
        code = _HEADER + lowered.source(tf32=tf32 and lowered.has_tf32)
        path = build(lowered.name, code, (architecture,), options=_OPTIONS)
        self._name = lowered.name
        self._layout = ArgumentLayout(lowered, 0, 0, _TAIL)
        self._library = ctypes.CDLL(str(path))
        self._usages = {usage.symbol: usage for usage in kernel_usages(messages(path))}

    def launches(self, sizes: Mapping[str, int], multiprocessors: int) -> list[list[Launch]]:
        """Returns the launches of each group of operators, on a graph with ``sizes[space]`` rows in every row space."""
        arguments = self._layout.arguments(0, sizes, ())
        arguments[-1] = multiprocessors
        call: Any = getattr(self._library, f"call_{self._name}")
        call.argtypes, call.restype = [ctypes.c_void_p], ctypes.c_char_p
        failure: bytes | None = call(arguments.buffer_info()[0])
        if failure is not None:
            raise BuildError(f"{self._name}: its launches cannot be computed: {failure.decode()}")
        recorded, ticks = (_Recorded * _MOST)(), ctypes.c_int64()
        count = self._library.take_launches(recorded, _MOST, ctypes.byref(ticks))
        groups: list[list[Launch]] = [[] for _ in range(ticks.value - 1)]  # a tick is behind each group, one before all
        for one in recorded[:count]:
            usage = self._usages[one.kernel.decode()]
            groups[one.ticks - 1].append(Launch(usage, one.blocks, one.threads, one.dynamic))
        return groups
