"""Calls exported libraries for CUDA that run in emulation."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dacergnn.deploy.library import ExportedLibrary
from tests.support.library import Library, Refused


class EmulatedModel(Library):
    """Runs an exported model; floating-point arguments and all results are copied to and from emulated memory.

    Args:
        integers_on_device: Whether integers are copied there as well.
    """

    def __init__(self, made: ExportedLibrary, *, weights: Path | None = None, integers_on_device: bool = True) -> None:
        library = ctypes.CDLL(str(made.library))
        library.dacergnn_emulation_streams_wait()
        library.dacergnn_emulation_take.restype = ctypes.c_void_p
        library.dacergnn_emulation_finish.restype = ctypes.c_char_p
        self.emulation = library
        self.integers_on_device = integers_on_device
        self._taken: list[int] = []
        super().__init__(made, weights=weights)

    def take(self, size: int) -> int:
        """Returns the address of new memory on the device, which `free` frees."""
        address: int = self.emulation.dacergnn_emulation_take(ctypes.c_uint64(size))
        self._taken.append(address)
        return address

    def free(self) -> None:
        """Frees the memory of all arguments and results so far."""
        self.finish()
        for address in self._taken:
            self.emulation.dacergnn_emulation_give(ctypes.c_void_p(address))
        self._taken.clear()

    def finish(self) -> None:
        """Waits for the device; raises Refused if a kernel has failed."""
        failure: bytes | None = self.emulation.dacergnn_emulation_finish()
        if failure is not None:
            raise Refused(0, failure.decode())

    def fail_allocation(self, number: int) -> None:
        """Lets the allocation of this number from now on find no memory; -1 for none."""
        self.emulation.dacergnn_emulation_failing_allocation(ctypes.c_int64(number))

    def _copy(self, to: int, source: int, size: int) -> None:
        self.emulation.dacergnn_emulation_copy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_uint64(size))

    def inputs(self, tensors: list[Tensor], *, offset: int = 0) -> Any:
        """Returns the arguments of a call.

        Args:
            offset: Bytes from an address that is aligned as CUDA aligns it.
        """
        made = super().inputs(tensors)
        for own, tensor in zip(made, tensors, strict=False):
            if tensor.is_floating_point() or self.integers_on_device:
                own.data = self.take(tensor.nbytes + offset) + offset
                self._copy(own.data, tensor.data_ptr(), tensor.nbytes)
        return made

    def outputs(self, capacity: int) -> tuple[Any, list[Any]]:
        made, memory = super().outputs(capacity)
        for own in made:
            own.data = self.take(capacity)
        return made, memory

    def results(self, outputs: Any) -> list[Tensor]:
        """Returns the results of a call."""
        made: list[Tensor] = []
        for own, described in zip(outputs, self.manifest["outputs"], strict=True):
            shape = list(own.sizes)[: len(described["shape"])]
            numbers = np.empty(shape, described["dtype"])
            self._copy(numbers.ctypes.data, own.data, numbers.nbytes)
            made.append(torch.from_numpy(numbers))
        return made

    def __call__(self, *tensors: Tensor, threads: int = 0, capacity: int = 1 << 16) -> list[Tensor]:
        outputs, _ = self.outputs(capacity)
        try:
            self.run(self.inputs(list(tensors)), outputs, None)
            self.finish()
            return self.results(outputs)
        finally:
            self.free()
