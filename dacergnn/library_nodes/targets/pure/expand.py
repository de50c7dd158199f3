"""Replaces an operator by plain SDFG maps with scalar tasklets."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import dace
from dace import Memlet, dtypes

from dacergnn.library_nodes.access import index_name
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Const, Expr, Op, Ref, Shape, Statement
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.library_nodes.operators import OPERATORS, op
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.shapes import shape_of

_WCR = {"+=": "lambda a, b: a + b", "max=": "lambda a, b: max(a, b)", "min=": "lambda a, b: min(a, b)"}
INPUT = "in" + PREFIX  # connectors of tasklets must not carry the names of arrays
_FAR = repr(2.0**127)  # minima start from it, maxima from its negative; exact in float32 too, so that == finds it
_START = {"=": "0", "+=": "0", "max=": f"-{_FAR}", "min=": _FAR}


def subscript(desc: Any, index: tuple[str, ...]) -> str:
    """Returns the index as tasklets write it: DaCe drops the axes of one element."""
    parts = [i for i, extent in zip(index, desc.shape, strict=True) if extent != 1]
    return f"[{', '.join(parts)}]" if parts else ""


def reindex(index: tuple[str, ...], shape: Shape, other: Shape) -> tuple[str, ...]:
    """Returns the index into ``shape`` as an index into ``other``, a shape of as many elements."""
    if shape == other:
        return index
    flat = "0"
    for extent, i in zip(shape, index, strict=True):
        flat = f"({flat} * {extent} + {i})"
    parts: list[str] = []
    for extent in reversed(other):
        parts.insert(0, f"({flat} % {extent})")
        flat = f"({flat} // {extent})"
    return tuple(parts)


class _Scalar:
    """Writes Python tasklet code that computes one element of an expression."""

    def __init__(self, statement: Statement, arrays: dict[str, Any]) -> None:
        self.statement = statement
        self.arrays = arrays
        self.lines: list[str] = []
        self.indent = 0
        self.count = 0

    def shapes(self, ref: Ref) -> Shape:
        return view_shape(ref, row_shape(self.arrays[ref.name]))

    def row(self, path: str) -> str:
        name = index_name(self.statement.space, path)
        return f"{INPUT}{name}[i]" if name else ("i" if path == "" else "0")

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def element(self, ref: Ref, index: tuple[str, ...]) -> str:
        """Returns an element of a row; the index is in the shape with which the reference views the row."""
        shape = row_shape(self.arrays[ref.name])
        if ref.transposed:
            index = (*index[:-2], index[-1], index[-2])
        index = reindex(index, self.shapes(ref), shape)
        return INPUT + ref.name + subscript(self.arrays[ref.name], (self.row(ref.path), *index))

    def value(self, expr: Expr, index: tuple[str, ...]) -> str:
        if isinstance(expr, Const):
            return repr(expr.value)
        index = index[: len(shape_of(expr, self.shapes))]
        if isinstance(expr, Ref):
            return self.element(expr, index)
        if expr.name == "sum":
            return self.total(expr.args[0], index)
        if expr.name == "sum_heads":
            heads = range(shape_of(expr.args[0], self.shapes)[0])
            return f"({' + '.join(self.value(expr.args[0], (str(h), *index)) for h in heads)})"
        if expr.name == "to_heads":
            return self.value(expr.args[0], index[1:])
        if expr.name == "dot_prd":
            return self.total(op("mul", *expr.args), index)
        if expr.name == "linear":
            x, w = expr.args
            assert isinstance(x, Ref) and isinstance(w, Ref)
            return self.loop(
                self.shapes(x)[-1],
                lambda k: f"{self.element(x, (*index[:-1], k))} * {self.element(w, (*index[:-1], k, index[-1]))}",
            )
        if expr.name in WEIGHT_PRODUCTS:
            return self.product_of_weights(expr, index)
        if expr.name == "take_rows":
            return self.value(expr.args[0], (*index[:-2], f"({index[-2]} + {expr.dims[0]})", index[-1]))
        if expr.name == "pad_rows":
            before, rows = expr.dims[0], shape_of(expr.args[0], self.shapes)[-2]
            row = f"min(max({index[-2]} - {before}, 0), {rows - 1})"
            inside = f"{index[-2]} >= {before} and {index[-2]} < {before + rows}"
            return f"({self.value(expr.args[0], (*index[:-2], row, index[-1]))} if {inside} else 0.0)"
        if expr.name == "outer_prod":
            x, y = expr.args
            return f"({self.value(x, index[:-1])} * {self.value(y, (*index[:-2], index[-1]))})"
        if expr.name == "expand":
            return self.value(expr.args[0], index)
        if expr.name == "slice":
            return self.value(expr.args[0], (*index[:-1], f"({index[-1]} + {expr.dims[0]})"))
        if expr.name == "concat":
            first = shape_of(expr.args[0], self.shapes)[-1]
            a = self.value(expr.args[0], (*index[:-1], f"min({index[-1]}, {first - 1})"))
            b = self.value(expr.args[1], (*index[:-1], f"max({index[-1]} - {first}, 0)"))
            return f"({a} if {index[-1]} < {first} else {b})"
        entry = OPERATORS[expr.name]
        return (entry.python or entry.code).format(*(f"({self.value(a, index)})" for a in expr.args))

    def product_of_weights(self, expr: Op, index: tuple[str, ...]) -> str:
        """Returns an element of `compose` or `inner`: in matrices without a head axis, heads are blocks of columns."""
        x, w = expr.args
        assert isinstance(x, Ref) and isinstance(w, Ref)
        if expr.name == "inner":
            head = index[0] if len(index) == 3 else "0"
            d, m = shape_of(expr, self.shapes)[-2:]
            columns = (f"({head} * {d} + {index[-2]})", f"({head} * {m} + {index[-1]})")
            return self.loop(
                shape_of(x, self.shapes)[0],
                lambda k: f"{self.element(x, (k, columns[0]))} * {self.element(w, (k, columns[1]))}",
            )
        d, m = shape_of(w, self.shapes)[-2:]
        heads = len(shape_of(w, self.shapes)) == 3
        head, column = f"({index[1]} // {m})", f"({index[1]} % {m})"
        return self.loop(
            d,
            lambda k: (
                f"{self.element(x, (index[0], f'({head} * {d} + {k})'))} * "
                f"{self.element(w, (head, k, column) if heads else (k, column))}"
            ),
        )

    def total(self, expr: Expr, index: tuple[str, ...]) -> str:
        return self.loop(shape_of(expr, self.shapes)[-1], lambda k: self.value(expr, (*index, k)))

    def loop(self, extent: int, term: Any) -> str:
        self.count += 1
        name, k = f"s{self.count}", f"k{self.count}"
        self.line(f"{name} = 0.0")
        self.line(f"for {k} in range({extent}):")
        self.indent += 1
        text = term(k)
        self.line(f"{name} = {name} + {text}")
        self.indent -= 1
        return name


def expand_pure(operators: Sequence[Any], own: Sequence[Mapping[str, Any]]) -> dace.SDFG:
    """Returns a nested SDFG that runs the body of a library node, a map per statement; its locals are arrays inside."""
    (node,), (arrays,) = operators, map(dict, own)
    nested = dace.SDFG(f"{node.name}_pure")
    for name, desc in arrays.items():
        inner = copy.deepcopy(desc)
        inner.transient = name in node.locals
        if inner.transient:
            inner.storage = dtypes.StorageType.CPU_Heap
        inner.lifetime = dtypes.AllocationLifetime.Scope
        nested.add_datadesc(PREFIX + name, inner)
    last = nested.add_state("start", is_start_block=True)
    last.set_default_lineinfo(node.debuginfo or dtypes.DebugInfo(0))
    for statement in node.statements:
        last = _add_statement(nested, last, statement, arrays)
    return nested


def _state_after(nested: dace.SDFG, last: Any, label: str) -> Any:
    """Adds a state whose nodes are of the same line, which DaCe would look for in the stack, node by node."""
    state = nested.add_state_after(last, label)
    state.set_default_lineinfo(last._default_lineinfo)  # pyright: ignore[reportPrivateUsage]
    return state


def _ranges(first: str, shape: Shape) -> Any:
    return {"i": f"0:{first}", **{f"j{n}": f"0:{extent}" for n, extent in enumerate(shape)}}


def _add_statement(nested: dace.SDFG, last: Any, statement: Statement, arrays: dict[str, Any]) -> Any:
    out = PREFIX + statement.target.name
    desc = nested.arrays[out]
    shape = row_shape(desc)
    own = ", ".join(["i", *(f"j{n}" for n in range(len(shape)))])
    rows = "1" if statement.space == "ONE" else statement.space
    start = _START[statement.op]
    if statement.op != "=" or row_space(desc) != statement.space:  # else every row is assigned
        last = _state_after(nested, last, "init")
        last.add_mapped_tasklet(
            "init",
            _ranges(str(desc.shape[0]), shape),
            {},
            f"o = {start}",
            {"o": Memlet(f"{out}[{own}]")},
            external_edges=True,
        )
    main = _state_after(nested, last, "main")
    scalar = _Scalar(statement, arrays)
    # A product may be stored in another shape of as many elements; all other values have the target's shape.
    over = shape_of(statement.expr, scalar.shapes) if statement.is_gemm else shape
    index = tuple(f"j{n}" for n in range(len(over)))
    value = scalar.value(statement.expr, index)
    target = subscript(desc, (scalar.row(statement.target.path), *reindex(index, over, shape)))
    names = {r.name for r in statement.reads}
    names |= {n for n in (index_name(statement.space, r.path) for r in (*statement.reads, statement.target)) if n}
    inputs = {INPUT + n: Memlet.from_array(PREFIX + n, nested.arrays[PREFIX + n]) for n in sorted(names)}
    if statement.target.path == "" and over == shape:
        code, output = f"o = {value}", Memlet(f"{out}[{own}]")
    else:
        code = f"o{target} = {value}"
        output = Memlet.from_array(out, desc, wcr=_WCR.get(statement.op))
        output.volume = 1
    _, entry, _ = main.add_mapped_tasklet(
        "body",
        _ranges(rows, over),
        inputs,
        "\n".join([*scalar.lines, code]),
        {"o": output},
        external_edges=True,
    )
    # GCC 12 compiles loads that depend on a condition wrongly, in loops of a fixed length inside other loops.
    entry.map.collapse = 1 + len(over)
    if statement.op not in ("max=", "min="):
        return main
    final = _state_after(nested, main, "empty_groups")
    final.add_mapped_tasklet(
        "empty", _ranges(str(desc.shape[0]), shape), {"v": Memlet(f"{out}[{own}]")}, f"o = 0 if v == {start} else v",
        {"o": Memlet(f"{out}[{own}]")}, external_edges=True,
    )  # fmt: skip
    return final
