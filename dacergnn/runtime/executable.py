"""Calls loaded programs: checks arguments once per signature, allocates through torch, calls one C function."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import dace
import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from dacergnn.errors import ArrayError, DacergnnError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.encodings import Encodings
from dacergnn.native.build import build, build_all
from dacergnn.native.calls import ProgramCalls
from dacergnn.native.exchange import DESCRIBE
from dacergnn.runtime.forked import use_one_thread_in_children
from dacergnn.runtime.inputs import InputForms, Inputs
from dacergnn.runtime.layout import ArgumentLayout
from dacergnn.runtime.lower import Lowered, argument, lower
from dacergnn.runtime.memory import aligned
from dacergnn.runtime.needs import Places, arrange, places_of
from dacergnn.runtime.pool import LARGE, POOL, Lease, has_memory, leased
from dacergnn.runtime.stacks import Stacks

_is_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
Frame = tuple["array[int]", int, Tensor]
"""Arguments of the C function without inputs and outputs; their address; the workspace that they point into."""


@dataclass(slots=True)
class Prepared:
    """Holds what a call on one graph needs besides its inputs; made once per graph."""

    arguments: array[int]  # of the C function, in order, without inputs, outputs and buffers
    inputs: Inputs
    outputs: list[tuple[int, tuple[int, ...], bool]]  # position of an argument, shape, whether from the pool
    saved: int  # bytes
    saved_offsets: list[int]
    workspace: int  # bytes
    scratch: int  # offset of the kernels' own memory in the workspace
    offsets: list[tuple[int, int]]  # position of an argument, offset in the workspace
    hosted: list[tuple[int, int]]  # positions of an argument, and of the result whose memory it uses
    offsets_given: list[tuple[int, int]]  # position of an argument, offset in the giver's buffer
    encodings: Encodings  # keeps the memory behind the pointers alive
    spare: list[array[int]]  # arguments that no call uses now
    graph: Callable[[], HeteroGraph | None]  # weak: the graph holds this
    streams: set[int]  # handles of the streams on which it has run


class Executable:
    """Runs the compiled form of one SDFG.

    The first ``results`` outputs (None: all) are returned as tensors of their own. The others are saved for a backward,
    and share one buffer. ``architectures`` are those of the devices to build for, none for the CPU.
    """

    _device = "cpu"
    overwrites = True
    takes_parts = True
    """Tells whether calls take inputs in parts (`Stacks`)."""
    _tail = 2
    """Number of arguments of the C function after those of the program."""

    def __init__(
        self, sdfg: dace.SDFG | Lowered, results: int | None = None, architectures: tuple[int, ...] = ()
    ) -> None:
        self.lowered = sdfg if isinstance(sdfg, Lowered) else lower(sdfg)
        self.results = len(self.lowered.outputs) if results is None else results
        self.architectures = architectures
        self.dtype = _DTYPES[self.lowered.dtype]
        self._layout = ArgumentLayout(self.lowered, self.results, self.dtype.itemsize, self._tail)
        self._saved, self.end = self._layout.saved_positions, self._layout.end
        self.saved = [b.name for b in self.lowered.outputs[self.results :]]
        """Names of the arrays that are saved."""
        self.encodings: Sequence[str] = self.lowered.encodings
        """Encodings that are built of a graph for the first call; those that this program takes come first."""
        self._known_forms: dict[tuple[Stacks | None, Executable | None], InputForms] = {}
        use_one_thread_in_children()
        self.library = self._open(self._source())
        self._handle = self._initialize(self.library)
        self._load(self.library)

    @staticmethod
    def build(programs: Sequence[tuple[str, str]], architectures: tuple[int, ...]) -> None:
        """Builds programs, given by names and code, at the same time; those that are loaded next are then there."""
        build_all(programs, architectures)

    def _source(self) -> str:
        """Returns the code to build."""
        return self.lowered.code

    def _open(self, code: str) -> ctypes.CDLL:
        path = build(self.lowered.name, code, self.architectures)
        return ctypes.CDLL(str(path))  # RTLD_LOCAL: every library exports the same helper symbols

    def _load(self, library: ctypes.CDLL) -> None:
        """Looks up the functions that calls need."""
        calls = self._calls = ProgramCalls(self._entry(library, None), self.end)
        self._function, self._read_and_call = calls.call, calls.read_and_call

    def _entry(self, library: ctypes.CDLL, result: type | None) -> Callable[..., Any]:
        """Returns the C function of a build."""
        function = getattr(library, f"call_{self.lowered.name}")
        function.argtypes, function.restype = [ctypes.c_void_p], result
        return function

    def _initialize(self, library: ctypes.CDLL) -> int:
        name, signature = self.lowered.name, self.lowered.signature
        arrays = {*self.lowered.inputs, *self.lowered.encodings}
        arrays.update(b.name for b in (*self.lowered.outputs, *self.lowered.intermediates))
        initialize = getattr(library, f"__dace_init_{name}")
        initialize.restype = ctypes.c_void_p
        initialize.argtypes = [ctypes.c_int64] * sum(n not in arrays for n in signature)
        return initialize(*[1] * len(initialize.argtypes))

    def prepare(
        self,
        graph: HeteroGraph,
        stacks: Stacks | None = None,
        giver: Executable | None = None,
        schedule: Mapping[str, int] | None = None,
        *,
        again: bool = False,
    ) -> Prepared:
        """Returns encodings, sizes and memory plan of ``graph`` for this program; made once, and kept with the graph.

        Args:
            giver: The program whose saved arrays calls read; unless ``again``, they may overwrite them after that.
            schedule: Values in place of those of ``lowered.schedule``, by the same names. The result for them shares
                everything else, and is not kept.

        Raises:
            ArrayError: The graph is on another device.
            DacergnnError: The build has no such choice, or the value is no integer of 64 bits.
        """
        again = again or not self.overwrites
        key = self if stacks is None and giver is None else (self, stacks, giver, again)
        prepared: Prepared | None = graph.derived.get(key)
        if prepared is None:
            prepared = graph.derived[key] = self._prepare(graph, stacks, giver, again)
        return prepared if schedule is None else self._rescheduled(prepared, schedule)

    def _rescheduled(self, prepared: Prepared, schedule: Mapping[str, int]) -> Prepared:
        arguments = prepared.arguments[:]
        for choice, value in schedule.items():
            if choice not in self.lowered.schedule:
                known = ", ".join(self.lowered.schedule) or "none"
                raise DacergnnError(f'schedule: this build leaves no "{choice}" open to calls, but these: {known}.')
            try:
                arguments[self._layout.positions[argument(choice)]] = value
            except (TypeError, OverflowError):
                raise DacergnnError(f'schedule: "{choice}" is {value!r}; pass an integer of 64 bits.') from None
        return replace(prepared, arguments=arguments, spare=[])

    def _prepare(self, graph: HeteroGraph, stacks: Stacks | None, giver: Executable | None, again: bool) -> Prepared:
        if graph.device.type != self._device:
            own = f"these kernels are for devices of type {self._device!r}"
            raise ArrayError("graph", f"is on {graph.device}, but {own}; move it with .to({self._device!r})")
        layout, item = self._layout, self.dtype.itemsize
        sizes = graph.sizes_of(layout.spaces)
        addresses, encodings = graph.addresses(self.encodings)
        arguments = layout.arguments(self._handle, sizes, addresses)
        given: list[tuple[int, int]] = []
        places: Places = {}
        room = 0
        if giver is not None:
            saved = giver.prepare(graph)
            given = [
                (layout.positions[name], offset)
                for name, offset in zip(giver.saved, saved.saved_offsets, strict=True)
                if name in self.lowered.inputs
            ]
            if not again:
                places, room = giver.given(saved, self.lowered), saved.saved
        offsets, overwritten, size = arrange(layout, sizes, item, places, room)
        stacked: dict[str, int] = {}
        if stacks is not None:
            arguments.extend([0] * stacks.count)
            for name in sorted(stacks.names):
                space, shape = self.lowered.spaces[name]
                stacked[name] = size
                offsets.append((layout.positions[name], size))
                size += aligned(sizes[space] * prod(shape) * item)
        results = [
            (position, (sizes[rows], *shape), sizes[rows] * width >= LARGE)
            for position, rows, shape, width in layout.results
        ]
        saved_offsets = layout.saved_offsets(sizes)
        return Prepared(
            arguments,
            Inputs(self._forms(stacks, giver), graph.device, sizes, stacked),
            results,
            saved_offsets.pop(),
            saved_offsets,
            size + layout.scratch(sizes),
            size,
            offsets,
            layout.hosted,
            given + overwritten,
            encodings,
            [],
            weakref.ref(graph),
            set(),
        )

    def _forms(self, stacks: Stacks | None, giver: Executable | None) -> InputForms:
        """Returns the forms of inputs that ``giver`` has not saved, some in the parts of ``stacks``; made once."""
        forms = self._known_forms.get((stacks, giver))
        if forms is None:
            saved = () if giver is None else giver.saved
            forms = InputForms(self.lowered, self.dtype, self._layout.positions, stacks, saved)
            self._known_forms[stacks, giver] = forms
        return forms

    def given(self, prepared: Prepared, reader: Lowered) -> Places:
        """Returns the places of the saved arrays, and when ``reader`` reads them last."""
        return places_of([*self.lowered.outputs[self.results :]], [*prepared.saved_offsets, prepared.saved], reader)

    def __call__(
        self,
        prepared: Prepared,
        inputs: list[Tensor],
        giver_lease: Lease | None = None,
        shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> list[Tensor]:
        """Runs on the arrays ``prepared.inputs.names``, in this order, then the parts of others; returns the results.

        Args:
            giver_lease: Holds the saved arrays of the giver that the call was prepared with.
            shapes: Shapes of the results, in place of rows of their row spaces.

        Raises:
            ArrayError: One does not fit graph and program, or torch makes tensors that kernels cannot write to.
        """
        return self.run(prepared, inputs, giver_lease, shapes)[0]

    def run(
        self,
        prepared: Prepared,
        inputs: list[Tensor],
        giver_lease: Lease | None = None,
        shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> tuple[list[Tensor], Lease | None]:
        """Returns the results, and the buffer with the saved arrays."""
        if _is_profiled():
            with record_function(f"dacergnn::{self.lowered.name}"):
                return self._run(prepared, inputs, giver_lease, shapes)
        return self._run(prepared, inputs, giver_lease, shapes)

    def _run(
        self,
        prepared: Prepared,
        inputs: list[Tensor],
        giver_lease: Lease | None,
        shapes: Sequence[tuple[int, ...]] | None,
    ) -> tuple[list[Tensor], Lease | None]:
        arguments, address, workspace = self.frame(prepared)
        try:
            results: list[Tensor] = []
            for place, (position, shape, large) in enumerate(prepared.outputs):
                if shapes is not None:
                    shape = shapes[place]
                tensor = leased(shape, self.dtype) if large else torch.empty(shape, dtype=self.dtype)
                if not has_memory(tensor):
                    raise _no_memory(tensor)
                arguments[position] = tensor.data_ptr()
                results.append(tensor)
            for position, result in prepared.hosted:
                arguments[position] = arguments[result]
            lease = None
            if self._saved:
                lease = Lease(POOL, prepared.saved)
                start = lease.buffer.data_ptr()
                for position, offset in zip(self._saved, prepared.saved_offsets, strict=True):
                    arguments[position] = start + offset
            if giver_lease is not None:
                start = giver_lease.buffer.data_ptr()
                for position, offset in prepared.offsets_given:
                    arguments[position] = start + offset
            fit = prepared.inputs.fit
            if fit is not None:
                arguments[self.end] = fit.pieces_address
            if fit is None or DESCRIBE is None or not self._read_and_call(inputs, fit.expected_address, address):
                inputs, fit = prepared.inputs.place(inputs, arguments)
                arguments[self.end] = fit.pieces_address
                self._function(address)
            return results, lease
        finally:
            prepared.spare.append(arguments)
            POOL.give_workspace(workspace, prepared.workspace)

    def frame(self, prepared: Prepared) -> Frame:
        """Returns the arguments and the workspace of one call."""
        workspace = POOL.workspace(prepared.workspace)
        if not has_memory(workspace):
            raise _no_memory(workspace)
        start = workspace.data_ptr()
        try:
            arguments = prepared.spare.pop()
        except IndexError:
            arguments = prepared.arguments[:]
        if arguments[self.end + 1] != start:
            for position, offset in prepared.offsets:
                arguments[position] = start + offset
            arguments[self.end + 1] = start
        return arguments, arguments.buffer_info()[0], workspace


def _no_memory(made: Tensor) -> ArrayError:
    """Returns the error for tensors of torch that kernels cannot write to."""
    where = f"is made where torch allocates a {type(made).__name__} on {made.device}"
    remedy = "leave FakeTensorMode and default devices, or trace it with torch.compile"
    return ArrayError("the call", f"{where}, which has no memory for results; {remedy}")
