"""Launches the kernels of a loaded CUDA program on torch's current stream, with memory of torch's allocator only.

A call waits for nothing and reads nothing from the device, so CUDA graphs can capture it.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import DeviceError
from dacergnn.graph import HeteroGraph
from dacergnn.runtime import cuda_graph
from dacergnn.runtime.cuda_device import (
    DeviceMemory,
    allows_tf32,
    check_built_for,
    current_stream,
    finish,
    multiprocessors,
)
from dacergnn.runtime.executable import Executable, Prepared
from dacergnn.runtime.pool import Lease
from dacergnn.runtime.stacks import Stacks

_ALIGNMENT = 16
"""Bytes that a kernel reads at once."""


class CUDAExecutable(Executable):
    """Runs the compiled form of one SDFG whose operators are expanded for CUDA."""

    _device = "cuda"
    overwrites = False  # a CUDA graph runs the recorded calls again
    takes_parts = False
    _tail = 3  # stream, scratch memory, number of multiprocessors

    def _source(self) -> str:
        self._tf32 = self._takes_tf32()
        return self.lowered.source(tf32=self._tf32)

    def _load(self, library: ctypes.CDLL) -> None:
        self._functions = {self._tf32: self._entry(library, ctypes.c_char_p)}

    def _takes_tf32(self) -> bool:
        return self.lowered.has_tf32 and allows_tf32()

    def _current(self) -> Callable[..., Any]:
        """Returns the function of the build for torch's setting of TF32; builds a second one if the setting changes."""
        tf32 = self._takes_tf32()
        function = self._functions.get(tf32)
        if function is None:
            if cuda_graph.capturing():
                state = "allows" if tf32 else "does not allow"
                raise DeviceError(
                    f"{self.lowered.name} has not run since torch {state} TF32, which needs a build of its own, and a "
                    "build cannot be loaded while a CUDA graph is recorded; make the call once before."
                )
            library = self._open(self.lowered.source(tf32=tf32))
            function = self._functions[tf32] = self._entry(library, ctypes.c_char_p)
        return function

    def _prepare(self, graph: HeteroGraph, stacks: Stacks | None, giver: Executable | None, again: bool) -> Prepared:
        if cuda_graph.capturing():
            raise DeviceError(
                f"{self.lowered.name} has not run on this graph yet, which it has to before it is recorded into a CUDA "
                "graph; make the call once before, with gradients if they are recorded."
            )
        prepared = super()._prepare(graph, stacks, giver, again)
        check_built_for(graph.device, self.architectures)
        finish(graph.device)  # calls on any stream read the encodings of the graph
        return prepared

    def run(
        self,
        prepared: Prepared,
        inputs: list[Tensor],
        giver_lease: Lease | None = None,
        shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> tuple[list[Tensor], Lease | None]:
        device = prepared.inputs.device
        arguments, memory = prepared.arguments[:], DeviceMemory(device)
        with current_stream(device) as stream:
            if stream.cuda_stream not in prepared.streams:
                graph = prepared.graph()
                if graph is not None:
                    graph.record_stream(stream)
                prepared.streams.add(stream.cuda_stream)
            shapes = shapes or [shape for _, shape, _ in prepared.outputs]
            results = [torch.empty(shape, dtype=self.dtype, device=device) for shape in shapes]
            for (position, _, _), tensor in zip(prepared.outputs, results, strict=True):
                arguments[position] = tensor.data_ptr()
            lease = None
            if self._saved:
                lease = Lease(memory, prepared.saved)
                for position, offset in zip(self._saved, prepared.saved_offsets, strict=True):
                    arguments[position] = lease.buffer.data_ptr() + offset
            if giver_lease is not None:
                for position, offset in prepared.offsets_given:
                    arguments[position] = giver_lease.buffer.data_ptr() + offset
            workspace = memory.take(prepared.workspace)
            start = workspace.data_ptr()
            for position, offset in prepared.offsets:
                arguments[position] = start + offset
            inputs = [t if t.data_ptr() % _ALIGNMENT == 0 else t.clone() for t in inputs]
            inputs, _ = prepared.inputs.place(inputs, arguments)
            tail = (stream.cuda_stream, start + prepared.scratch, multiprocessors(device))
            for position, value in enumerate(tail, self.end):
                arguments[position] = value
            failure = self._launch(arguments)
        if failure is not None:
            raise DeviceError(f"{self.lowered.name} cannot run on {device}: {failure.decode()}")
        return results, lease

    def _launch(self, arguments: array[int]) -> bytes | None:
        """Launches the kernels; returns an error message, or None."""
        return self._current()(arguments.buffer_info()[0])
