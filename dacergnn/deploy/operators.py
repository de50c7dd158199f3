"""Writes the C++ of a library of torch operators, which run the compiled programs of an exported model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from dacergnn.deploy.literals import literal
from dacergnn.deploy.network import Array, Constant, Graph, Network, RunProgram
from dacergnn.deploy.program_code import ProgramCode, headers_of, programs_of
from dacergnn.deploy.types import c_type
from dacergnn.deploy.writer import CallWriter
from dacergnn.errors import UnsupportedCallError
from dacergnn.modules.exported import compiled_of, program_of

_SCALARS = {torch.float32: "Float", torch.float64: "Double"}
"""Names of types of elements in torch's C++."""


@dataclass(frozen=True)
class CarriedProgram:
    """Describes a program of an exported model, and the graphs that it runs on.

    Args:
        text: The program as the operator carries it.
        types: The number of edge types.
        node_types: The number of node types.
        typed: Whether nodes have types.
    """

    text: str
    types: int
    node_types: int
    typed: bool


def carried_programs(graph: fx.Graph) -> list[CarriedProgram]:
    """Returns the programs of an exported model, each once.

    Raises:
        UnsupportedCallError: The number of types of a graph differs from call to call.
    """
    found: dict[CarriedProgram, None] = {}
    for node in graph.find_nodes(op="call_function", target=torch.ops.dacergnn.program.default):
        _, src_type, _, sizes, _, text = node.args
        counts = [size.meta["val"] if isinstance(size, fx.Node) else size for size in sizes[2:4]]
        if not all(isinstance(count, int) for count in counts):
            raise UnsupportedCallError(
                f"{program_of(text).name}: the numbers of edge types and node types are open in the exported model; "
                "give them in numbers, such as num_relations of the layer."
            )
        found[CarriedProgram(text, *counts, typed=src_type is not None)] = None
    return list(found)


def operators_code(programs: Sequence[CarriedProgram]) -> str:
    """Returns the C++ of the library of operators for these programs.

    Raises:
        UnsupportedCallError: A program has no form in a C library.
    """
    writers = [_ProgramWriter(program, number) for number, program in enumerate(programs)]
    networks = [writer.network for writer in writers]
    codes = programs_of(Network([], [], {}, [step for network in networks for step in network.steps]))
    functions = [line for writer in writers for line in writer.function(codes)]
    table = [writer.entry() for writer in writers]
    namespaces = list({code.namespace: code for code in codes.values()}.values())
    held = [
        "static constexpr deploy::Program known[] = {", *table, "};",
        "static const deploy::Programs &own = *new deploy::Programs(known);",
    ] if table else ["static const deploy::Programs &own = *new deploy::Programs();"]  # fmt: skip
    lines = [
        *headers_of(namespaces),
        '#include "deploy/torch_operators.h"',
        "namespace {",
        "using dacergnn::Number;",
        "using deploy::Index;",
        *[code.text for code in namespaces],
        *functions,
        "}  // namespace",
        "const deploy::Programs &deploy::programs() {",
        *[f"  {line}" for line in held],
        "  return own;",
        "}",
    ]
    return "\n".join(lines) + "\n"


class _ProgramWriter:
    """Writes one program as a function of a graph and arrays, and its entry in the table of the library."""

    def __init__(self, carried: CarriedProgram, number: int) -> None:
        self.carried, self.number = carried, number
        self.compiled, order = compiled_of(carried.text)
        sources, destinations, edges = sympy.symbols("sources destinations edge_count")
        graph = Graph("g", (sources, destinations, carried.types, carried.node_types), carried.typed, edges)
        self.arrays = [
            self._array(f"a{i}", sympy.Symbol(f"a{i}_elements")) for i in range(len(program_of(carried.text).inputs))
        ]
        self.rows = self.compiled.result_rows
        self.results = [
            self._array(f"r{i}", graph.rows[space], *map(sympy.Integer, row))
            for i, (space, row) in enumerate(self.rows)
        ]
        inputs = {name: self.arrays[place] for name, place in zip(self.compiled.inputs, order, strict=True)}
        label = program_of(carried.text).name
        self.step = RunProgram(self.compiled, graph, None, inputs, self.results, label)
        self.network = Network([], [], {}, [self.step])
        self.slots = 0

    def _array(self, name: str, *shape: Any) -> Array:
        return Array(name, self.compiled.dtype, shape)

    def function(self, codes: dict[int, ProgramCode]) -> list[str]:
        """Returns the lines of the function."""
        writer = _FunctionWriter(self.network, codes, self.arrays)
        body = writer.write()
        self.slots = max(writer.slots.count, 1)
        return [
            f"void run_{self.number}(deploy::Context &context, const deploy::Edges &g, const deploy::Array *arrays,",
            "           void *const *results) {",
            *[f"  {line}" for line in body],
            "}",
            f"constexpr deploy::Result results_{self.number}[] = {{",
            *[
                f"    {{deploy::k{space}, {len(row)}, {{{', '.join(map(str, row or (0,)))}}}}},"
                for space, row in self.rows
            ],
            "};",
        ]

    def entry(self) -> str:
        """Returns the entry in the table."""
        own, exported = self.carried, program_of(self.carried.text)
        fields = [
            _text(own.text), literal(exported.name), own.types, own.node_types, own.typed, exported.single_typed,
            f"deploy::ScalarType::{_SCALARS[self.compiled.dtype]}", len(self.arrays), len(self.results), self.slots,
            f"results_{self.number}", f"run_{self.number}",
        ]  # fmt: skip
        return f"    {{{', '.join(str(f).lower() if isinstance(f, bool) else str(f) for f in fields)}}},"


class _FunctionWriter(CallWriter):
    """Writes the statements of the function; arrays come with their sizes, and torch has memory for the results."""

    def __init__(self, network: Network, codes: dict[int, ProgramCode], arrays: Sequence[Array]) -> None:
        super().__init__(network, codes)
        self.arrays = arrays
        (self.step,) = [step for step in network.steps if isinstance(step, RunProgram)]

    def _inputs(self) -> None:
        kind = c_type(self.step.program.dtype)
        self._add(
            "[[maybe_unused]] const Number sources = g.sizes.sources, destinations = g.sizes.destinations;",
            "[[maybe_unused]] const Number edge_count = g.count;",
        )
        for place, array in enumerate(self.arrays):
            self._add(f"{kind} *const {array.name} = ({kind} *)arrays[{place}].data;")
            self._add(f"[[maybe_unused]] const Number {array.name}_elements = arrays[{place}].elements;")
        assert self.step.of is not None
        self._encode(self.step.of)

    def _constants(self) -> list[Constant]:
        return []

    def _define(self, array: Array) -> None:
        place = [made is array for made in self.step.made].index(True)
        kind = c_type(array.dtype)
        self._add(f"{kind} *const {array.name} = ({kind} *)results[{place}];")

    def _output_room(self, *, early: bool) -> None:
        return

    def _outputs(self) -> None:
        return


def _text(text: str) -> str:
    """Returns a text as a view of its letters, of which some may be zero."""
    return f"{{{literal(text)}, {len(text.encode())}}}"
