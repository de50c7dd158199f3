"""Lowering: an SDFG whose access schemes are fixed becomes C++ through DaCe's code generator."""

from __future__ import annotations

import copy
from itertools import pairwise
from dataclasses import dataclass, replace

import dace
from dace import Memlet
from dace.codegen import codegen

from dacergnn.library_nodes.cpu import is_encoding
from dacergnn.library_nodes.node import row_shape, row_space
from dacergnn.program import Program


@dataclass(frozen=True)
class Buffer:
    """An array of a lowered program: ``rows`` is its row space, ``elements`` the size of one row."""

    name: str
    rows: str
    shape: tuple[int, ...]
    elements: int
    first: int  # index of the operator that writes it
    last: int  # index of the last operator that reads it


@dataclass(frozen=True)
class Lowered:
    """C++ of a program, and what the caller has to know about its function."""

    name: str
    code: str
    signature: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Buffer, ...]
    intermediates: tuple[Buffer, ...]
    encodings: tuple[str, ...]
    spaces: dict[str, tuple[str, tuple[int, ...]]]  # of the inputs: row space and row shape
    dtype: str


def lower(sdfg: dace.SDFG) -> Lowered:
    """Generate the code of ``sdfg`` (left as it is); intermediates become arguments that the caller allocates."""
    program = Program(sdfg)
    operators = program.operators
    order = {name: k for k, o in enumerate(operators) for name in o.written_arrays}
    last = {name: k for k, o in enumerate(operators) for name in o.read_arrays}
    intermediates = [n for n, d in sdfg.arrays.items() if d.transient and n in order]

    def buffer(name: str) -> Buffer:
        desc = sdfg.arrays[name]
        shape = row_shape(desc)
        elements = 1
        for extent in shape:
            elements *= extent
        return Buffer(name, row_space(desc), shape, elements, order[name], last.get(name, order[name]))

    lowered = Lowered(
        name=sdfg.name,
        code="",
        signature=(),
        inputs=tuple(program.inputs),
        outputs=tuple(buffer(n) for n in program.outputs),
        intermediates=tuple(buffer(n) for n in intermediates),
        encodings=tuple(n for n in sdfg.arrays if is_encoding(n)),
        spaces={n: (row_space(sdfg.arrays[n]), row_shape(sdfg.arrays[n])) for n in program.inputs},
        dtype=str(next(iter(sdfg.arrays.values())).dtype.to_string()),
    )
    code, signature = _generate(sdfg)
    return replace(lowered, code=code, signature=signature)


def _generate(sdfg: dace.SDFG) -> tuple[str, tuple[str, ...]]:
    sdfg = copy.deepcopy(sdfg)
    program = Program(sdfg)
    operators = program.operators
    for before, after in pairwise(operators):
        program.state.add_nedge(before, after, Memlet())  # one order, the one that memory is planned for
    for desc in sdfg.arrays.values():
        desc.transient = False
    with dace.config.set_temporary("compiler", "cpu", "openmp_sections", value=False):
        sdfg.expand_library_nodes()
        signature = tuple(sdfg.arglist())
        frame = next(c for c in codegen.generate_code(sdfg) if c.language == "cpp" and c.title == "Frame")
    # DaCe's build folder holds a header with the hash of the program; the cache keys by content instead.
    code = "\n".join(line for line in frame.clean_code.splitlines() if "hash.h" not in line)
    return code, signature
