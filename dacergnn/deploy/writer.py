"""Writes the C++ of a call: the steps of a network over buffers of the calling thread."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

import sympy

from dacergnn.deploy.graph_code import EncodedGraph, encode, encode_rows
from dacergnn.deploy.literals import literal
from dacergnn.deploy.network import (
    AddLoops,
    Array,
    Call,
    Constant,
    Graph,
    Input,
    JoinEdges,
    Network,
    RunProgram,
    SameSize,
    ScatterRows,
    SortEdges,
    Step,
)
from dacergnn.deploy.program_code import ProgramCode
from dacergnn.deploy.sizes import Size, cpp
from dacergnn.deploy.slots import Slots, shared_places
from dacergnn.deploy.types import c_type
from dacergnn.errors import UnsupportedCallError
from dacergnn.runtime.lower import Lowered, argument

MOST_AXES = 4
"""The number of sizes in the structures of the C interface."""


class CallWriter:
    """Writes the function that runs a call.

    Args:
        programs: The programs of the network, by their namespaces in C++.
    """

    rows = "deploy::"
    """The namespace of operations on rows."""

    def __init__(self, network: Network, programs: dict[int, ProgramCode]) -> None:
        self.network, self.programs = network, programs
        self.lines: list[str] = []
        self.slots = Slots()
        self._places: dict[object, list[tuple[Slots, int, Hashable]]] = {}
        self._graphs: dict[Graph, EncodedGraph] = {}
        self._last = self._lifetimes()

    def write(self) -> list[str]:
        """Returns the statements of the function."""
        self._check_axes()
        self._inputs()
        self._output_room(early=True)
        for constant in self._constants():
            self._constant(constant)
        for number, step in enumerate(self.network.steps):
            self._step(step)
            self._release(number)
        self._outputs()
        return self.lines

    def _add(self, *lines: str) -> None:
        self.lines += lines

    def _constants(self) -> list[Constant]:
        return used_constants(self.network)

    def _constant(self, constant: Constant) -> None:
        kind = c_type(constant.dtype)
        self._add(f"{kind} *const {constant.name} = ({kind} *)weights[k_{constant.name}];")

    # Memory

    def _lifetimes(self) -> dict[object, int]:
        """Returns the last step that reads each array or graph, by the array that owns the memory."""
        last: dict[object, int] = {}
        for number, step in enumerate(self.network.steps):
            for array in (*step.reads, *step.writes):
                last[array.owner] = number
            if step.graph is not None:
                last[step.graph] = number
            if isinstance(step, SortEdges | JoinEdges):
                last.setdefault(step.made, number)
        for _, array in self.network.outputs:
            last[array.owner] = len(self.network.steps)
        return last

    def _buffer(self, owner: object, size: Hashable) -> str:
        """Returns a buffer that belongs to an array or a graph until that is read for the last time."""
        return f"context.slots[{self._slot(self.slots, owner, size)}]"

    def _slot(self, slots: Slots, owner: object, size: Hashable) -> int:
        slot = slots.take(size)
        self._places.setdefault(owner, []).append((slots, slot, size))
        return slot

    def _release(self, number: int) -> None:
        for owner in [o for o in self._places if self._last.get(o, -1) <= number]:
            for slots, slot, size in self._places.pop(owner):
                slots.give(slot, size)

    def _result_buffer(self, owner: object, size: Hashable) -> str:
        """Returns a buffer where the results of steps lie."""
        return self._buffer(owner, size)

    def _define(self, array: Array) -> None:
        """Writes the memory of a new array."""
        kind = c_type(array.dtype)
        buffer = self._result_buffer(array, (kind, str(array.elements)))
        self._add(f"{kind} *const {array.name} = {buffer}.of<{kind}>({cpp(array.elements)});")

    def pointer(self, array: Array) -> str:
        """Returns the address of an array, which may be a part of another one of another type of view."""
        start = array.offset
        return array.owner.name if start == 0 else f"({array.owner.name} + {cpp(start)})"

    # Arguments and results

    def _check_axes(self) -> None:
        """Refuses arrays of more axes than the structures of the C interface have sizes."""
        named = [(array.label, array) for array in self.network.inputs]
        for label, array in (*named, *self.network.outputs):
            if len(array.shape) > MOST_AXES:
                raise UnsupportedCallError(
                    f"{label} has {len(array.shape)} axes, and a C library passes {MOST_AXES} at most; reshape it."
                )

    def _inputs(self) -> None:
        known: set[Size] = set()
        for place, array in enumerate(self.network.inputs):
            self._input(place, array, known)
        open_sizes = {s for array in self.network.inputs for size in array.shape for s in size.free_symbols}
        missing = open_sizes - known
        if missing:
            raise UnsupportedCallError(f"The sizes {missing} of the inputs do not follow from an axis of their own.")

    def _input(self, place: int, array: Input, known: set[Size]) -> None:
        label, kind = literal(array.label), c_type(array.dtype)
        where = f"inputs[{place}]"
        self._add(f"deploy::check_input({where}, {len(array.shape)}, sizeof({kind}), {label});")
        for axis, size in enumerate(array.shape):
            own = f"{where}.sizes[{axis}]"
            if isinstance(size, sympy.Symbol) and size not in known:
                known.add(size)
                self._add(f"const Number {size.name} = {own};")
            else:
                self._add(f"deploy::check_size({own}, {cpp(size)}, {axis}, {label});")
        self._input_address(array, where)

    def _input_address(self, array: Input, where: str) -> None:
        kind = c_type(array.dtype)
        self._add(f"{kind} *const {array.name} = ({kind} *){where}.data;")

    def _output_room(self, *, early: bool) -> None:
        """Writes checks of the memory for results: before all steps where their sizes are known by then."""
        own = {s for array in self.network.inputs for size in array.shape for s in size.free_symbols}
        chosen = [
            (place, label, array)
            for place, (label, array) in enumerate(self.network.outputs)
            if all(size.free_symbols <= own for size in array.shape) is early
        ]
        for place, _, array in chosen:
            self._add(f"deploy::set_sizes(outputs[{place}], {{{', '.join(map(cpp, array.shape))}}});")
        for place, label, array in chosen:
            item = f"sizeof({c_type(array.dtype)})"
            self._add(f"deploy::check_room(outputs[{place}], {len(array.shape)}, {item}, {literal(label)});")

    def _outputs(self) -> None:
        self._output_room(early=False)
        for place, (_, array) in enumerate(self.network.outputs):
            size = f"Number(sizeof({c_type(array.dtype)})) * {cpp(array.elements)}"
            self._output(f"outputs[{place}]", array, size)

    def _output(self, where: str, array: Array, size: str) -> None:
        self._add(f"deploy::copy_output({where}, {self.pointer(array)}, {size});")

    # Steps

    def _step(self, step: Step) -> None:
        writers = {
            SortEdges: self._sort, JoinEdges: self._join, AddLoops: self._loops, Call: self._call,
            RunProgram: self._run, ScatterRows: self._scatter, SameSize: self._same_size,
        }  # fmt: skip
        writers[type(step)](step)  # type: ignore[operator]

    def _ends(self, edges: Array) -> str:
        pointer, count = self.pointer(edges), cpp(edges.shape[1])
        return f"deploy::Ends{{{pointer}, {pointer} + {count}, {count}, sizeof({c_type(edges.dtype)})}}"

    def _sort(self, step: SortEdges) -> None:
        graph = step.made
        sources, destinations, types, node_types = graph.sizes
        sizes = f"deploy::Sizes{{{cpp(sources)}, {cpp(destinations)}, {types}, {node_types}}}"
        own = "nullptr, 0"
        if step.types is not None:
            own = f"{self.pointer(step.types)}, sizeof({c_type(step.types.dtype)})"
            self._add(
                f"deploy::check_size({cpp(step.types.shape[0])}, {cpp(step.edges.shape[1])}, 0, "
                f"{literal(f'the types of the edges of {step.label}')});"
            )
        buffer = self._buffer(graph, ("edges", str(graph.edges)))
        arguments = f"{buffer}, {literal(step.label)}, {self._ends(step.edges)}, {own}, {sizes}"
        self._add(f"const deploy::Edges {graph.name} = deploy::sorted_edges({arguments});")
        if step.node_types is not None:
            given = f"{self.pointer(step.node_types)}, {cpp(step.node_types.shape[0])}, {literal(step.label)}"
            self._add(f"deploy::take_node_types({graph.name}, {given});")
        self._encode(graph)

    def _join(self, step: JoinEdges) -> None:
        graph = step.made
        parts = ", ".join(
            f"deploy::Relation{{{self._ends(p.edges)}, {p.number}, {p.ends[0]}, {p.ends[1]}, {literal(p.label)}}}"
            for p in step.parts
        )
        counts = ", ".join(map(cpp, step.counts))
        buffer = self._buffer(graph, ("edges", str(graph.edges)))
        relations = f"std::array<deploy::Relation, {len(step.parts)}>{{{parts}}}"
        nodes = f"std::array<Number, {len(step.counts)}>{{{counts}}}"
        arguments = f"{buffer}, {relations}, {nodes}, {cpp(graph.sizes[1])}, {graph.sizes[2]}"
        self._add(f"const deploy::Edges {graph.name} = deploy::typed_edges({arguments});")
        self._encode(graph)

    def _encode(self, graph: Graph) -> None:
        steps = [s for s in self.network.steps if isinstance(s, RunProgram) and s.of is graph]
        programs = [self.programs[id(s.program)].lowered for s in steps]
        count = iter(range(1 << 30))
        encoded = encode(graph, programs, lambda: self._buffer(graph, ("encoding", graph.name, next(count))))
        self._graphs[graph] = encoded
        self._add(*encoded.lines)

    def _loops(self, step: AddLoops) -> None:
        buffer = self._buffer(step.made, ("loops", str(step.found)))
        count, sources, destinations = cpp(step.count), cpp(step.nodes[0]), cpp(step.nodes[1])
        own, kind = f"{step.made.name}_loops", c_type(step.made.dtype)
        arguments = f"{buffer}, {literal(step.label)}, {self._ends(step.edges)}, {count}, {sources}, {destinations}"
        self._add(f"const deploy::Loops {own} = deploy::with_loops({arguments});")
        self._add(f"const Number {cpp(step.found)} = {own}.count;")
        self._add(f"{kind} *const {step.made.name} = ({kind} *){own}.edges;")

    def _same_size(self, step: SameSize) -> None:
        if step.name != step.known:
            self._add(f"const Number {cpp(step.name)} = {cpp(step.known)};")

    def _call(self, step: Call) -> None:
        for array in step.made:
            self._define(array)
        given = [*self._room(step), *[array.name for array in step.made], *map(self._argument, step.given)]
        self._add(f"{self.rows}{step.function}({', '.join(given)});")

    def _argument(self, given: Array | Size | str) -> str:
        if isinstance(given, Array):
            return self.pointer(given)
        return given if isinstance(given, str) else cpp(given)

    def _room(self, step: Call) -> list[str]:
        """Returns the memory that a function takes besides, as an argument."""
        return []

    def _scatter(self, step: ScatterRows) -> None:
        self._define(step.made)
        self._add(
            f"deploy::check_size({cpp(step.source.shape[0])}, {cpp(step.index.elements)}, 0, {literal(step.label)});"
        )
        made, rows, width = step.made, cpp(step.made.shape[0]), cpp(step.made.width)
        counts = self._buffer(made, ("counts", str(step.made.shape[0])))
        self._add(
            f"std::copy_n({self.pointer(step.first)}, {cpp(made.elements)}, {made.name});",
            f"deploy::scatter_rows({made.name}, {rows}, {self.pointer(step.source)}, {self.pointer(step.index)}, "
            f"{cpp(step.index.elements)}, {width}, deploy::Reduce::{ScatterRows.KINDS[step.reduce]}, "
            f"{str(step.include).lower()}, {counts}.of<std::int64_t>({rows}), {literal(step.label)});",
        )

    def _run(self, step: RunProgram) -> None:
        code = self.programs[id(step.program)]
        lowered = code.lowered
        for array in step.made:
            self._define(array)
        owner = object()
        count = iter(range(1 << 30))
        self._add("{")
        if step.of is None:
            assert step.rows is not None
            rows = cpp(step.rows)
            graph = encode_rows(rows, lowered, lambda: self._buffer(owner, ("encoding", rows, next(count))))
            self._add(*graph.lines)
        else:
            graph = self._graphs[step.of]
        for name, array in step.inputs.items():
            self._check_rows(step, name, array, graph, *lowered.spaces[name])
        values = self._encodings(owner, step.of, graph)
        values |= {name: self._operand(owner, array) for name, array in step.inputs.items()}
        values |= {b.name: array.name for b, array in zip(lowered.outputs, step.made, strict=True)}
        lifetimes = {b.name: ((b.rows, b.elements), b.first, b.last) for b in lowered.intermediates}
        places = shared_places(lifetimes)
        kind, made = code.element, dict[int, str]()
        for buffer in lowered.intermediates:
            place, size = places[buffer.name], graph.sizes[buffer.rows]
            if place not in made:
                made[place] = self._result_buffer(owner, (size, buffer.elements))
            values[buffer.name] = f"{made[place]}.of<{kind}>({size} * {buffer.elements})"
        values |= {argument(choice): str(value) for choice, value in lowered.schedule.items()}
        values |= {space: size for space, size in graph.sizes.items() if space not in values}
        arguments = ", ".join(["nullptr", *[values[name] for name in lowered.signature]])
        self._prepare(owner, lowered, graph)
        self._add(f"DEPLOY_RUN(({code.namespace}::__program_{lowered.name}({arguments})));")
        self._add("}")
        self._last[owner] = -1

    def _encodings(self, owner: object, of: Graph | None, graph: EncodedGraph) -> dict[str, str]:
        """Returns the addresses of encodings where programs read them; ``owner`` owns memory of the program."""
        return dict(graph.encodings)

    def _operand(self, owner: object, array: Array) -> str:
        """Returns the address of an array where programs read it."""
        return self.pointer(array)

    def _prepare(self, owner: object, program: Lowered, graph: EncodedGraph) -> None:
        """Writes what comes before the call of a program."""

    def _check_rows(
        self, step: RunProgram, name: str, array: Array, graph: EncodedGraph, space: str, row: tuple[int, ...]
    ) -> None:
        """Writes a check that an array has the rows that a program reads."""
        wanted, found = f"{graph.sizes[space]} * {prod(row)}", cpp(array.elements)
        label = literal(f"{step.label}: array {name} of {step.program.title}")
        self._add(f"deploy::check_elements({found}, {wanted}, {label});")


def used_constants(network: Network) -> list[Constant]:
    """Returns the constants that steps or results read."""
    arrays: Sequence[Array] = [a for step in network.steps for a in step.reads] + [a for _, a in network.outputs]
    return list({id(a.owner): a.owner for a in arrays if isinstance(a.owner, Constant)}.values())
