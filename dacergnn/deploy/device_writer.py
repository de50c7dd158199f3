"""Writes the C++ of a call on a CUDA device: floating-point numbers lie on the device, integers on the host.

Edges are checked, sorted and encoded on the host, as in every library. What kernels read of integers is copied to the
device, and results are left there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from dacergnn.deploy.graph_code import EncodedGraph
from dacergnn.deploy.literals import literal
from dacergnn.deploy.network import (
    Array,
    Call,
    Constant,
    Graph,
    Input,
    Network,
    RunProgram,
    ScatterRows,
    Step,
)
from dacergnn.deploy.program_code import ProgramCode
from dacergnn.deploy.sizes import cpp
from dacergnn.deploy.slots import Slots
from dacergnn.deploy.types import c_type
from dacergnn.deploy.writer import CallWriter
from dacergnn.graph.spaces import parse_encoding, target_space
from dacergnn.runtime.lower import Lowered


def _is_on_device(step: Step) -> bool:
    """Tells whether the device does a step: one that computes or moves floating-point numbers, but those of edges."""
    has_numbers = any(array.dtype.is_floating_point for array in (*step.reads, *step.writes))
    return isinstance(step, RunProgram) or (has_numbers and step.graph is None)


class DeviceCallWriter(CallWriter):
    """Writes the function that runs a call."""

    def __init__(self, network: Network, programs: dict[int, ProgramCode]) -> None:
        super().__init__(network, programs)
        self.memory = Slots()
        """The buffers on the device; those of ``slots`` are on the host."""
        self.pinned = 0
        """The number of buffers for copies between host and device."""
        self._on_device = False
        self._made_there: set[Array] = set()
        self._copies: dict[tuple[Array, bool], str] = {}
        self._uploads: dict[Graph, dict[str, str]] = {}
        self._integers: list[tuple[Input, str]] = []

    def write(self) -> list[str]:
        self._add("deploy::device::begin(context);")
        return super().write()

    @property
    def rows(self) -> str:  # type: ignore[override]
        return "deploy::device::" if self._on_device else "deploy::"

    # Memory

    def _device_buffer(self, owner: object, size: Hashable) -> str:
        return f"context.memory[{self._slot(self.memory, owner, size)}]"

    def _pinned_buffer(self) -> str:
        self.pinned += 1
        return f"context.pinned[{self.pinned - 1}]"

    def _result_buffer(self, owner: object, size: Hashable) -> str:
        return self._device_buffer(owner, size) if self._on_device else self._buffer(owner, size)

    def _define(self, array: Array) -> None:
        if self._on_device:
            self._made_there.add(array)
        super()._define(array)

    def pointer(self, array: Array) -> str:
        return self._address(array, on_device=self._on_device)

    def _address(self, array: Array, *, on_device: bool) -> str:
        """Returns the address of an array on the device or on the host, where it may be a copy."""
        base, start = self._owner_address(array.owner, on_device=on_device), array.offset
        return base if start == 0 else f"({base} + {cpp(start)})"

    def _owner_address(self, owner: Array, *, on_device: bool) -> str:
        if (owner in self._made_there) is on_device:
            return owner.name
        if (owner, on_device) not in self._copies:
            self._copies[owner, on_device] = name = f"{owner.name}_{'there' if on_device else 'here'}"
            kind, block = c_type(owner.dtype), f"{{{owner.name}, {_size(owner)}}}"
            call = f"deploy::fetched(context, {self._pinned_buffer()}, {{{block}}})"
            if on_device:
                call = self._uploaded(owner, f"upload of {owner.name}", [block])
            self._add(f"{kind} *const {name} = ({kind} *){call}[0];")
        return self._copies[owner, on_device]

    def _uploaded(self, owner: object, size: Hashable, blocks: Sequence[str]) -> str:
        """Returns the call that copies blocks to the device."""
        buffers = f"{self._pinned_buffer()}, {self._device_buffer(owner, size)}"
        return f"deploy::uploaded(context, {buffers}, {{{', '.join(blocks)}}})"

    def _constant(self, constant: Constant) -> None:
        super()._constant(constant)
        kind = c_type(constant.dtype)
        name = self._copies[constant, True] = f"{constant.name}_there"
        self._add(f"[[maybe_unused]] {kind} *const {name} = ({kind} *)memory[k_{constant.name}];")

    # Arguments and results

    def _inputs(self) -> None:
        super()._inputs()
        if not self._integers:
            return
        blocks = [f"{{{where}.data, {_size(array)}}}" for array, where in self._integers]
        self._add(f"const auto integers = deploy::fetched(context, {self._pinned_buffer()}, {{{', '.join(blocks)}}});")
        for place, (array, _) in enumerate(self._integers):
            kind = c_type(array.dtype)
            self._add(f"{kind} *const {array.name} = ({kind} *)integers[{place}];")

    def _input_address(self, array: Input, where: str) -> None:
        if not array.dtype.is_floating_point:
            self._integers.append((array, where))
            return
        self._made_there.add(array)
        super()._input_address(array, where)
        self._add(f"deploy::check_on_device(context, {where}.data, {_size(array)}, {literal(array.label)});")

    def _output_room(self, *, early: bool) -> None:
        super()._output_room(early=early)
        if early:
            for place, (label, _) in enumerate(self.network.outputs):
                where = f"outputs[{place}]"
                self._add(f"deploy::check_on_device(context, {where}.data, {where}.bytes, {literal(label)});")

    def _outputs(self) -> None:
        self._add("deploy::device::check_launches();")
        super()._outputs()

    def _output(self, where: str, array: Array, size: str) -> None:
        source = self._address(array, on_device=array.owner in self._made_there)
        self._add(f"deploy::copy_output(context, {where}.data, {source}, {size});")

    # Steps

    def _step(self, step: Step) -> None:
        self._on_device = _is_on_device(step)
        super()._step(step)
        self._on_device = False

    def _encode(self, graph: Graph) -> None:
        super()._encode(graph)
        programs = [s.program for s in self.network.steps if isinstance(s, RunProgram) and s.of is graph]
        read = dict.fromkeys(name for program in programs for name in self.programs[id(program)].lowered.encodings)
        self._uploads[graph] = self._encodings_there(graph, self._graphs[graph], [*read], graph.name)

    def _encodings_there(self, owner: object, graph: EncodedGraph, read: Sequence[str], name: str) -> dict[str, str]:
        """Writes the copies of the encodings ``read`` to the device; returns their addresses there."""
        if not read:
            return {}
        blocks = [f"{{{graph.encodings[own]}, {_bytes(own, graph.sizes)}}}" for own in read]
        call = self._uploaded(owner, ("encodings", name), blocks)
        self._add(f"const auto {name}_there = {call};")
        return {own: f"(Index *){name}_there[{place}]" for place, own in enumerate(read)}

    def _encodings(self, owner: object, of: Graph | None, graph: EncodedGraph) -> dict[str, str]:
        return self._uploads[of] if of is not None else self._encodings_there(owner, graph, [*graph.encodings], "rows")

    def _run(self, step: RunProgram) -> None:
        for array in step.inputs.values():
            self.pointer(array)  # copies it where that is needed, outside of the program's block
        super()._run(step)

    def _operand(self, owner: object, array: Array) -> str:
        pointer = self.pointer(array)
        if array.offset == 0 and not isinstance(array.owner, Input):
            return pointer
        buffer = self._device_buffer(owner, ("aligned", str(array.elements)))
        return f"deploy::aligned(context, {buffer}, {pointer}, {cpp(array.elements)})"

    def _prepare(self, owner: object, program: Lowered, graph: EncodedGraph) -> None:
        needs = [
            " + ".join(f"{width} * {graph.sizes[space]}" for space, width in need.items()) for need in program.scratch
        ]
        if needs:
            size = f"std::max<Number>({{{', '.join(needs)}}})"
            buffer = self._device_buffer(owner, ("scratch", size))
            self._add(f"dacergnn::cuda::call.workspace = {buffer}.of<char>({size});")

    def _scatter(self, step: ScatterRows) -> None:
        made, rows, count = step.made, cpp(step.made.shape[0]), cpp(step.index.elements)
        label, own = literal(step.label), f"{made.name}_pieces"
        self._add(f"deploy::check_size({cpp(step.source.shape[0])}, {count}, 0, {label});")
        index = self._address(step.index, on_device=False)
        buffer = self._buffer(made, ("pieces", rows, count))
        self._add(f"deploy::Pieces {own} = deploy::pieces_of({buffer}, {index}, {count}, {rows}, {label});")
        fields = {"order": count, "starts": f"({own}.count + 1)", "firsts": f"({rows} + 1)"}
        blocks = [f"{{{own}.{field}, Number(sizeof(Index)) * {size}}}" for field, size in fields.items()]
        self._add(f"const auto {own}_there = {self._uploaded(made, ('pieces', rows, count), blocks)};")
        self._add(*[f"{own}.{field} = (Index *){own}_there[{place}];" for place, field in enumerate(fields)])
        self._define(made)
        partial = self._device_buffer(made, ("partial", rows, count))
        self._add(
            f"deploy::device::scatter_rows({partial}, {made.name}, {self.pointer(step.first)}, "
            f"{self.pointer(step.source)}, {own}, {cpp(made.width)}, deploy::Reduce::{ScatterRows.KINDS[step.reduce]}, "
            f"{str(step.include).lower()});"
        )

    def _room(self, step: Call) -> list[str]:
        sums = step.function.startswith("sum_of_rows")
        return [self._device_buffer(step.made[0], ("partial", str(step.made[0].elements)))] if sums else []


def _size(array: Array) -> str:
    """Returns the bytes of an array in C++."""
    return f"Number(sizeof({c_type(array.dtype)})) * {cpp(array.elements)}"


def _bytes(encoding: str, sizes: Mapping[str, str]) -> str:
    """Returns the bytes of an encoding in C++."""
    own = parse_encoding(encoding)
    is_pointer = own.kind == "ptr"
    count = sizes[target_space(own.space, own.paths[-1])] if is_pointer else sizes[own.space]
    return f"Number(sizeof(Index)) * ({count}{' + 1' if is_pointer else ''})"
