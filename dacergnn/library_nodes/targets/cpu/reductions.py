"""Writes C++ over the elements of one row, with the start values and operations of reductions."""

from __future__ import annotations

from dacergnn.library_nodes.form import Statement

IDENTITY = {
    "+=": "Value(0)",
    "max=": "-std::numeric_limits<Value>::infinity()",
    "min=": "std::numeric_limits<Value>::infinity()",
}
COMBINE = {
    "=": "{0} = {1};",
    "+=": "{0} += {1};",
    "max=": "{0} = dacergnn::maximum({0}, {1});",
    "min=": "{0} = dacergnn::minimum({0}, {1});",
}


def accumulator(statement: Statement, width: int) -> str:
    """Returns a row on the stack with the start value of a reduction."""
    name = f"own_{statement.target.name}"
    return f"Value {name}[{width}];\n" + each(width, f"{name}[f] = {IDENTITY[statement.op]};")


def each(width: int, line: str) -> str:
    """Returns a loop over the elements f of a row."""
    if width == 1:
        return line.replace("[f]", "[0]")
    return f"DACERGNN_SIMD\nfor (int64_t f = 0; f < {width}; ++f) {line}"
