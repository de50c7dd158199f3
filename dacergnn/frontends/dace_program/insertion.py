"""Insertion of a program in program form into an SDFG that DaCe's Python front end is building."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dace
from dace import Memlet

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.program import Program, parse


def insert_program(sdfg: dace.SDFG, state: dace.SDFGState, text: str, arrays: Mapping[str, str]) -> list[str]:
    """Adds the operators of a program to ``state``; returns the names of its results, new transients of ``sdfg``.

    Args:
        text: Source of a function of the graph and the parameters named in ``arrays``, without declarations.
        arrays: Array of ``sdfg`` behind every parameter; its leading dimension is a row space.

    Raises:
        ProgramError: The text is no program, or an array has no rows of a graph.
    """
    declared = {name: _declaration(name, sdfg.arrays[data]) for name, data in arrays.items()}
    dtypes = {sdfg.arrays[data].dtype for data in arrays.values()}
    if len(dtypes) != 1:
        raise ProgramError(f"the arrays of an operator have one element type, not {', '.join(map(str, dtypes))}.")
    program = Program(parse(text, dtype=dtypes.pop(), **declared))
    for symbol, kind in program.sdfg.symbols.items():
        if symbol not in sdfg.symbols:
            sdfg.add_symbol(symbol, kind)
    names = dict(arrays)
    for name, desc in program.sdfg.arrays.items():
        if name not in names:
            names[name], _ = sdfg.add_transient(name, desc.shape, desc.dtype, find_new_name=True)
    accesses = {name: state.add_access(data) for name, data in names.items()}
    for operator in program.operators:
        written: Any = accesses[operator.written_arrays[0]]
        operator.debuginfo = written.debuginfo  # DaCe knows which call is replaced
        state.add_node(operator)
        for name in operator.read_arrays:
            state.add_edge(accesses[name], None, operator, PREFIX + name, _whole(sdfg, names[name]))
        for name in operator.written_arrays:
            state.add_edge(operator, PREFIX + name, accesses[name], None, _whole(sdfg, names[name]))
    return [names[name] for name in program.outputs]


def _whole(sdfg: dace.SDFG, data: str) -> Memlet:
    return Memlet.from_array(data, sdfg.arrays[data])


def _declaration(name: str, desc: dace.data.Data) -> str:
    """Returns the declaration of an array in the program form, such as ``NS[64]``."""
    space = row_space(desc) if desc.shape else ""
    if space not in ROW_SPACES:
        raise ProgramError(
            f'"{name}" has the shape {tuple(desc.shape)}; its first dimension is a row space of dacergnn.ops: '
            "NS, ND, E, U, V, R or T, or 1."
        )
    try:
        shape = row_shape(desc)
    except TypeError as error:
        raise ProgramError(f'"{name}" has rows of shape {tuple(desc.shape[1:])}; sizes of rows are numbers.') from error
    return f"{space}[{', '.join(map(str, shape))}]" if shape else space
