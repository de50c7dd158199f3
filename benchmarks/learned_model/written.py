"""Compiled programs as values of JSON, so that measurements stay usable after the passes have changed."""

from __future__ import annotations

from typing import Any

import dace

from dacergnn.library_nodes import SegmentGemm, Traversal
from dacergnn.program import Program

Written = dict[str, Any]
_KINDS: dict[str, Any] = {"SegmentGemm": SegmentGemm, "Traversal": Traversal}
_BODY = ("space", "body", "spaces", "locals")


def written(sdfg: dace.SDFG) -> Written:
    """Returns the arrays, operators and schedules of a compiled program, without its encodings."""
    program = Program(sdfg)
    operators: list[Any] = program.operators
    used = {name for o in operators for name in (*o.read_arrays, *o.written_arrays, *o.locals)}
    return {
        "name": sdfg.name,
        "dtype": str(next(iter(sdfg.arrays.values())).dtype.to_string()),
        "arrays": {name: [program.space(name), *program.shape(name)] for name in sdfg.arrays if name in used},
        "inputs": program.inputs,
        "outputs": program.outputs,
        "operators": [_operator(operator) for operator in operators],
    }


def _operator(operator: Any) -> Written:
    names: tuple[str, ...] = (*_BODY, *operator.schedule_properties)
    if isinstance(operator, Traversal):
        names = (*names, "adjacency")
    return {"kind": type(operator).__name__, **{name: getattr(operator, name) for name in names}}


def read(record: Written) -> dace.SDFG:
    """Returns the program that `written` wrote; it runs like the original once encodings have been chosen for it."""
    program = Program.empty(record["name"])
    dtype: Any = getattr(dace, record["dtype"])
    arrays = {name: (space, tuple(shape)) for name, (space, *shape) in record["arrays"].items()}
    for name in record["inputs"]:
        if name in arrays:
            program.add_input(name, *arrays[name], dtype)
    for name, rows in arrays.items():
        if name not in record["inputs"]:
            program.add_array(name, *rows, dtype)
    for values in record["operators"]:
        node = _KINDS[values["kind"]]()
        for name, value in values.items():
            if name != "kind":
                setattr(node, name, value)
        node.name = node.statements[-1].target.name
        program.place(node)
    for name in record["outputs"]:
        program.mark_output(name)
    return program.sdfg
