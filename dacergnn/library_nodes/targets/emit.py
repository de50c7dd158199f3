"""Writes the C++ of one statement of a traversal body: scalar assignments in loops over the row shape.

Every operator becomes one ``const Value`` line in the outermost loop on which its value depends. So a value that is
the same for all heads or features is computed once; equal expressions share a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Shape, ShapeOf
from dacergnn.library_nodes.operators import OPERATORS, op
from dacergnn.library_nodes.shapes import shape_of

INDEX = ("h", "f", "g")
LANES = (16, 8, 4)
"""Numbers of partial sums of a reduction over a row; the length of the row is a multiple of its number."""


def offset(shape: Shape, index: tuple[str, ...]) -> str:
    """Returns the row-major offset of an element of a row."""
    text = "0"
    for extent, i in zip(shape, index, strict=True):
        text = i if text == "0" else f"({text}) * {extent} + {i}"
    return text


@dataclass
class Scope:
    """Holds the lines of one level of a loop nest, and the values that have a name in it."""

    lines: list[str] = field(default_factory=list[str])
    values: dict[tuple[Expr, tuple[str, ...]], str] = field(default_factory=dict[tuple[Expr, tuple[str, ...]], str])


def named_rows(
    place: Callable[[Ref], str], converted: Callable[[Ref], int] = lambda _: 0
) -> tuple[Callable[[Ref], str], list[str]]:
    """Returns a function that names the pointer to the row of a reference, and the list to which it adds declarations.

    Args:
        place: Returns the pointer as an expression.
        converted: Returns the width of a row whose elements are converted to values together; 0 for other rows.
    """
    names: dict[tuple[str, str], str] = {}
    lines: list[str] = []

    def pointer(ref: Ref) -> str:
        key = (ref.name, ref.path)
        if key not in names:
            name = names[key] = f"row{len(names)}"
            width = converted(ref)
            if width:
                lines.append(f"Value {name}[{width}];")
                lines.append(f"dacergnn::copy_row<{width}, false>({place(ref)}, Value(1), {name});")
            else:
                lines.append(f"const auto* const {name} = {place(ref)};")
        return names[key]

    return pointer, lines


class Emitter:
    """Emits the loops of ``store(offset, value)`` over the elements of a statement's expression.

    ``pointer(ref)`` names the C++ pointer to the row that a reference leads to. Without ``simd`` the compiler is free
    to unroll the loops: this is for rows of a few elements inside a loop that is vectorized itself.
    """

    def __init__(self, shapes: ShapeOf, pointer: Callable[[Ref], str], simd: bool = True) -> None:
        self.shapes = shapes
        self.pointer = pointer
        self.simd = simd
        self._count = 0

    def loops(self, expr: Expr, target: Shape, store: Callable[[str, str], str]) -> str:
        """Returns loops over ``target`` that pass each element of ``expr`` to ``store``."""
        lines = self.lines(expr, target, store)
        text = "\n".join(lines[-1])
        for depth in range(len(target) - 1, -1, -1):
            loop = self._loop(INDEX[depth], target[depth], text, "for (" not in text)
            text = "\n".join([*lines[depth], loop])
        return text

    def lines(self, expr: Expr, target: Shape, store: Callable[[str, str], str]) -> list[list[str]]:
        """Returns the lines outside of the loops over ``target``, and those inside each loop, from the outside in."""
        index = INDEX[: len(target)]
        scopes = [Scope() for _ in range(len(target) + 1)]
        value = self._value(expr, scopes, index)
        scopes[-1].lines.append(store(offset(target, index), value))
        return [scope.lines for scope in scopes]

    def _element(self, ref: Ref, index: tuple[str, ...]) -> str:
        return f"{self.pointer(ref)}[{offset(self.shapes(ref), index)}]"

    def _loop(self, index: str, extent: int, body: str, innermost: bool, total: str = "") -> str:
        if extent == 1:
            return f"{{ constexpr int64_t {index} = 0;\n{body}\n}}"
        simd = f"DACERGNN_SIMD_SUM({total})" if total else "DACERGNN_SIMD"
        pragma = f"{simd}\n" if innermost and self.simd else ""
        return f"{pragma}for (int64_t {index} = 0; {index} < {extent}; ++{index}) {{\n{body}\n}}"

    def _name(self, scope: Scope, key: tuple[Expr, tuple[str, ...]], code: str) -> str:
        self._count += 1
        name = f"t{self._count}"
        scope.lines.append(f"const Value {name} = {code};")
        scope.values[key] = name
        return name

    def _value(self, expr: Expr, scopes: list[Scope], index: tuple[str, ...]) -> str:
        if isinstance(expr, Const):
            return f"Value({expr.value!r})"
        shape = shape_of(expr, self.shapes)
        index = index[: len(shape)]
        scopes = scopes[: len(shape) + 1]
        key = (expr, index)
        for scope in scopes:
            if key in scope.values:
                return scope.values[key]
        if isinstance(expr, Ref):
            seen = (*index[:-2], index[-1], index[-2]) if expr.transposed else index
            return self._name(scopes[-1], key, self._element(expr, seen))
        if expr.name in ("sum", "dot_prd"):
            return self._reduction(expr, scopes, index)
        if expr.name == "sum_heads":
            heads = range(shape_of(expr.args[0], self.shapes)[0])
            terms = [self._value(expr.args[0], [scopes[0], *scopes], (str(h), *index)) for h in heads]
            return self._name(scopes[-1], key, " + ".join(terms))
        if expr.name == "to_heads":
            return self._value(expr.args[0], [scopes[0], *scopes[2:]], index[1:])
        if expr.name == "expand":
            return self._value(expr.args[0], scopes, index)
        if expr.name == "outer_prod":
            x = self._value(expr.args[0], scopes, index[:-1])
            y = self._value(expr.args[1], [*scopes[:-2], scopes[-1]], (*index[:-2], index[-1]))
            return self._name(scopes[-1], key, f"({x} * {y})")
        if expr.name == "slice":
            return self._value(expr.args[0], scopes, (*index[:-1], f"({index[-1]} + {expr.dims[0]})"))
        if expr.name == "take_rows":
            row = f"({index[-2]} + {expr.dims[0]})"
            return self._value(expr.args[0], scopes, (*index[:-2], row, index[-1]))
        if expr.name in ("concat", "pad_rows"):
            code = self._concat(expr, scopes, index) if expr.name == "concat" else self._pad(expr, scopes, index)
            return self._name(scopes[-1], key, code)
        code = OPERATORS[expr.name].code.format(*(self._value(a, scopes, index) for a in expr.args))
        return self._name(scopes[-1], key, code)

    def _reduction(self, expr: Op, scopes: list[Scope], index: tuple[str, ...]) -> str:
        body = expr.args[0] if expr.name == "sum" else op("mul", *expr.args)
        extent = shape_of(body, self.shapes)[-1]
        self._count += 1
        name, k = f"s{self._count}", f"k{self._count}"
        inner = Scope()
        value = self._value(body, [*scopes, inner], (*index, k))
        lanes = next((n for n in LANES if extent % n == 0), 0)
        if self.simd and lanes:
            # One sum for each lane: a reduction clause would add up the lanes of its vector one after the other.
            lines = "\n".join([f"const int64_t {k} = start + lane;", *inner.lines, f"lanes[lane] += {value};"])
            text = (
                f"Value {name};\n{{\nValue lanes[{lanes}] = {{}};\n"
                f"for (int64_t start = 0; start < {extent}; start += {lanes})\n"
                f"DACERGNN_SIMD\nfor (int64_t lane = 0; lane < {lanes}; ++lane) {{\n{lines}\n}}\n"
                f"{name} = dacergnn::sum_lanes<{lanes}>(lanes);\n}}"
            )
        else:
            lines = "\n".join([*inner.lines, f"{name} += {value};"])
            text = f"Value {name} = 0;\n" + self._loop(k, extent, lines, True, name)
        scopes[-1].lines.append(text)
        scopes[-1].values[expr, index] = name
        return name

    def _concat(self, expr: Op, scopes: list[Scope], index: tuple[str, ...]) -> str:
        first = shape_of(expr.args[0], self.shapes)[-1]
        i = index[-1]
        # Both sides are evaluated, so each index is clamped into its row.
        a = self._value(expr.args[0], scopes, (*index[:-1], f"dacergnn::minimum<int64_t>({i}, {first - 1})"))
        b = self._value(expr.args[1], scopes, (*index[:-1], f"dacergnn::maximum<int64_t>({i} - {first}, 0)"))
        return f"({i} < {first} ? {a} : {b})"

    def _pad(self, expr: Op, scopes: list[Scope], index: tuple[str, ...]) -> str:
        before, rows = expr.dims[0], shape_of(expr.args[0], self.shapes)[-2]
        row = f"dacergnn::minimum<int64_t>(dacergnn::maximum<int64_t>({index[-2]} - {before}, 0), {rows - 1})"
        value = self._value(expr.args[0], scopes, (*index[:-2], row, index[-1]))
        return f"({index[-2]} >= {before} && {index[-2]} < {before + rows} ? {value} : Value(0))"
