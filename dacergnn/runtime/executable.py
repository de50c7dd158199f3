"""A loaded program: checks its arguments once per signature, allocates through torch, calls one C function."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import dace
import torch
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.runtime.build import build
from dacergnn.runtime.lower import Lowered, lower
from dacergnn.runtime.memory import aligned, plan_memory
from dacergnn.runtime.pool import POOL, SMALL, Lease

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
Frame = tuple["array[int]", Tensor]
"""Arguments of the C function, complete but for inputs and outputs, and the workspace that they point into."""


@dataclass(frozen=True)
class Prepared:
    """What a call on one graph needs besides its inputs; made once per graph."""

    arguments: array[int]  # of the C function, in order, complete but for inputs, outputs and buffers
    input_shapes: list[torch.Size]
    known_shapes: list[set[torch.Size]]
    output_shapes: list[tuple[int, ...]]
    saved_shapes: list[tuple[int, ...]]
    saved: int  # bytes
    saved_offsets: list[int]
    workspace: int  # bytes
    offsets: list[tuple[int, int]]  # position of an argument, offset in the workspace
    encodings: list[Tensor]  # keeps the memory behind the pointers alive
    spare: list[Frame]  # with small workspaces, that no call is using


class Executable:
    """The compiled form of one SDFG.

    Of its outputs the first ``results`` (None: all) are returned as tensors of their own, the others, saved for a
    backward, share one buffer.
    """

    def __init__(self, sdfg: dace.SDFG | Lowered, results: int | None = None) -> None:
        self.lowered = sdfg if isinstance(sdfg, Lowered) else lower(sdfg)
        self.results = len(self.lowered.outputs) if results is None else results
        self.dtype = _DTYPES[self.lowered.dtype]
        self.library = build(self.lowered.name, self.lowered.code)
        self._position = {n: i + 1 for i, n in enumerate(self.lowered.signature)}
        self._inputs = [self._position[n] for n in self.lowered.inputs]
        self._outputs = [self._position[b.name] for b in self.lowered.outputs[: self.results]]
        self._saved = [self._position[b.name] for b in self.lowered.outputs[self.results :]]
        self._function, self._handle = self._load(self.library)

    def _load(self, path: Path) -> tuple[Callable[..., None], int]:
        # RTLD_LOCAL: every library exports the same helper symbols.
        library = ctypes.CDLL(str(path))
        name, signature = self.lowered.name, self.lowered.signature
        arrays = {*self.lowered.inputs, *self.lowered.encodings}
        arrays.update(b.name for b in (*self.lowered.outputs, *self.lowered.intermediates))
        initialize = getattr(library, f"__dace_init_{name}")
        initialize.restype = ctypes.c_void_p
        initialize.argtypes = [ctypes.c_int64] * sum(n not in arrays for n in signature)
        function = getattr(library, f"call_{name}")
        function.restype = None
        function.argtypes = [ctypes.c_void_p]
        return function, initialize(*[1] * len(initialize.argtypes))

    def prepare(self, graph: HeteroGraph) -> Prepared:
        """Encodings, sizes and memory plan of ``graph`` for this program; made once, and kept with the graph."""
        found: Prepared | None = graph.derived.get(self)
        if found is None:
            found = graph.derived[self] = self._prepare(graph)
        return found

    def _prepare(self, graph: HeteroGraph) -> Prepared:
        lowered = self.lowered
        buffers = (*lowered.outputs, *lowered.intermediates)
        spaces = {space for space, _ in lowered.spaces.values()} | {b.rows for b in buffers}
        sizes = {space: graph.size(space) for space in spaces | set(lowered.signature) & set(ROW_SPACES)}
        encodings = {n: graph.encoding(n) for n in lowered.encodings}
        plan = plan_memory(lowered.intermediates, sizes, self.dtype.itemsize)
        known = {**sizes, **{n: e.data_ptr() for n, e in encodings.items()}}
        shapes = [(sizes[b.rows], *b.shape) for b in lowered.outputs]
        saved_offsets = [0]
        for shape in shapes[self.results :]:
            saved_offsets.append(saved_offsets[-1] + aligned(prod(shape) * self.dtype.itemsize))
        return Prepared(
            array("q", [self._handle, *[known.get(name, 0) for name in lowered.signature]]),
            [torch.Size((sizes[space], *shape)) for space, shape in lowered.spaces.values()],
            [set() for _ in lowered.inputs],
            shapes[: self.results],
            shapes[self.results :],
            saved_offsets.pop(),
            saved_offsets,
            plan.size,
            [(self._position[n], offset) for n, offset in plan.offsets.items()],
            list(encodings.values()),
            [],
        )

    def check(self, prepared: Prepared, inputs: Sequence[Tensor]) -> None:
        """Raise ArrayError, naming the array, unless the inputs fit the graph and the program.

        Shapes that passed once are known and pass quickly.
        """
        dtype = self.dtype
        for number, (tensor, known) in enumerate(zip(inputs, prepared.known_shapes, strict=True)):
            if tensor.shape not in known or tensor.dtype is not dtype or not tensor.is_cpu:
                self._check_one(prepared, number, tensor)
                known.add(tensor.shape)

    def _check_one(self, prepared: Prepared, number: int, tensor: Tensor) -> None:
        name, shape = self.lowered.inputs[number], prepared.input_shapes[number]
        if tensor.dtype != self.dtype:
            raise ArrayError(
                name, f"has dtype {tensor.dtype}, but the layer was compiled for {self.dtype}; use .to({self.dtype})"
            )
        if not tensor.is_cpu:
            raise ArrayError(name, f"is on {tensor.device}, but this layer runs on the CPU; move it with .cpu()")
        # Single rows and typed nodes may come without their rows as an axis.
        rows_first = self.lowered.spaces[name][0] not in ("ONE", "RNS")
        if tensor.numel() != shape.numel() or (rows_first and tensor.dim() > 0 and tensor.shape[0] != shape[0]):
            given = tuple(tensor.shape)
            raise ArrayError(name, f"has shape {given}, but the graph and the layer ask for {tuple(shape)}")

    def __call__(self, prepared: Prepared, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run on contiguous inputs, in the order of ``lowered.inputs``; returns the results."""
        return self.run(prepared, inputs)[0]

    def run(self, prepared: Prepared, inputs: Sequence[Tensor]) -> tuple[list[Tensor], Lease | None]:
        """Results, and the buffer with the saved arrays, which `saved` reads."""
        try:
            frame = prepared.spare.pop()
        except IndexError:
            frame = self.frame(prepared)
        arguments, workspace = frame
        for position, tensor in zip(self._inputs, inputs, strict=True):
            arguments[position] = tensor.data_ptr()
        results = [torch.empty(shape, dtype=self.dtype) for shape in prepared.output_shapes]
        for position, tensor in zip(self._outputs, results, strict=True):
            arguments[position] = tensor.data_ptr()
        lease = None
        if self._saved:
            lease = Lease(POOL, prepared.saved)
            start = lease.buffer.data_ptr()
            for position, offset in zip(self._saved, prepared.saved_offsets, strict=True):
                arguments[position] = start + offset
        self._function(arguments.buffer_info()[0])
        if prepared.workspace < SMALL:
            prepared.spare.append(frame)
        else:
            POOL.give(workspace)
        return results, lease

    def frame(self, prepared: Prepared) -> Frame:
        """What a call needs for itself."""
        arguments, workspace = prepared.arguments[:], POOL.take(prepared.workspace)
        start = workspace.data_ptr()
        for position, offset in prepared.offsets:
            arguments[position] = start + offset
        return arguments, workspace

    def saved(self, prepared: Prepared, lease: Lease) -> list[Tensor]:
        """The saved arrays as tensors; valid as long as the lease is held."""
        tensors: list[Tensor] = []
        for shape, offset in zip(prepared.saved_shapes, prepared.saved_offsets, strict=True):
            part = lease.buffer[offset : offset + prod(shape) * self.dtype.itemsize]
            tensors.append(part.view(self.dtype).view(shape))
        return tensors
