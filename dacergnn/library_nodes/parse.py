"""Turns Python syntax trees into expressions and statements of the program form."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, reduce

import numpy as np

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.diagnostics import fail, nearest
from dacergnn.library_nodes.form import ENTITY, GEMM_OPERATORS, Const, Expr, Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.operators import OPERATORS, STRUCTURAL, WITH_DIMS, op, power

BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
}
FLIPPED: dict[type[ast.AST], str] = {ast.Lt: "gt", ast.LtE: "ge"}
_ROW_ATTRIBUTES = {
    "src": "src", "dst": "dst", "src_pair": "srcpair", "dst_pair": "dstpair", "edge": "edge",
    "row": "row", "column": "column", "typed_column": "typedcolumn", "pair": "pair", "nonzero": "nonzero",
}  # fmt: skip
_NODE_TYPE = {"": "ntype", "src": "srctype", "dst": "dsttype"}
_ARITY = {name: entry.arity for name, entry in OPERATORS.items()} | STRUCTURAL

_ALIASES = {"dot_prod": "dot_prd"}
KNOWN_OPERATORS = (*_ARITY, "reshape", *_ALIASES)
"""Names that calls in expressions may have."""
# Advice for Python that is not part of the program form.
_INSTEAD: dict[type[ast.AST], str] = {
    ast.IfExp: "rows have no branches; multiply by a comparison: (e.s > 0.0) * e.src.x",
    ast.Compare: "comparisons are >, >=, <, <= and ==, of two values: (a < b) * (b < c)",
    ast.BoolOp: "comparisons give 0 or 1: multiply them for and, add them for or",
    ast.BinOp: "there are + - * / @ and, with a constant, **",
    ast.GeneratorExp: "an aggregation runs over the edges of a row: sum(e.src.x for e in n.incoming_edges())",
    ast.ListComp: "an aggregation runs over the edges of a row: sum(e.src.x for e in n.incoming_edges())",
    ast.List: "values are joined by concat(a, b)",
    ast.Tuple: "values are joined by concat(a, b)",
}

NameLookup = Callable[[str, ast.AST], Expr]


class ExpressionParser:
    """Parses expressions inside a loop over ``space``.

    ``entities`` maps loop variables to the path that leads to their row ("" for the innermost loop);
    ``name`` resolves bare names (constants, locals, arrays of one row).
    """

    def __init__(self, space: str, entities: Mapping[str, str], name: NameLookup) -> None:
        self.space = space
        self.entities = entities
        self.name = name
        self.seen: list[tuple[Ref, ast.AST]] = []
        """References parsed so far, with their places."""

    def entity(self, node: ast.AST) -> str | None:
        """Returns the path that a loop variable, or an attribute like ``e.src`` of one, stands for."""
        if isinstance(node, ast.Name):
            return self.entities.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr in _ROW_ATTRIBUTES:
            base = self.entity(node.value)
            if base is None:
                return None
            path = _ROW_ATTRIBUTES[node.attr]
            if base not in ("", f"{path}pair"):
                fail(node, f"{ast.unparse(node.value)} has no .{node.attr}")
            if (self.space, path) not in MAPS:
                fail(node, self._no_path(node.attr))
            return path
        return None

    def _no_path(self, name: str) -> str:
        paths = [known for known, path in _ROW_ATTRIBUTES.items() if (self.space, path) in MAPS]
        known = f"; they have .{', .'.join(paths)}" if paths else ""
        return f"rows of this loop ({self.space}) have no .{name}{known}{nearest(name, paths, '.{}')}"

    def ref(self, node: ast.AST) -> Ref | None:
        """Returns the reference that ``node`` spells, or None when it is something else."""
        reference = self._ref(node)
        if reference is not None:
            self.seen.append((reference, node))
        return reference

    def _ref(self, node: ast.AST) -> Ref | None:
        if isinstance(node, ast.Attribute) and node.attr == "T":
            if isinstance(node.value, ast.Name | ast.Call):
                inner = self.parse(node.value)
            else:
                inner = self.ref(node.value)
            return replace(inner, transposed=True) if isinstance(inner, Ref) else None
        if isinstance(node, ast.Attribute):
            path = self.entity(node.value)
            return None if path is None else Ref(node.attr, path)
        if isinstance(node, ast.Subscript):
            path = self.entity(node.value)
            if path is not None:
                if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
                    fail(node, 'row values are named by a string, as in e["att"]')
                return Ref(node.slice.value, path)
            if isinstance(node.value, ast.Name):
                return Ref(node.value.id, self._type_path(node.slice))
        return None

    def _type_path(self, key: ast.AST) -> str:
        if isinstance(key, ast.Attribute) and key.attr in ("etype", "ntype"):
            joined = self._joined_type(key) if self.space == "R" else None
            if joined is not None:
                return joined
            path = self.entity(key.value)
            if path is not None:
                name = "etype" if key.attr == "etype" else _NODE_TYPE.get(path, "")
                if (self.space, name) in MAPS and (key.attr == "ntype" or path in ("", "srcpair", "dstpair")):
                    return name
        if isinstance(key, ast.Tuple) and len(key.elts) == 2:
            edge_type, source = key.elts
            if (
                isinstance(edge_type, ast.Attribute)
                and edge_type.attr == "etype"
                and self.entity(edge_type.value) == ""
                and self.entity(source) == "src"
            ):
                return "typedsrc"
        types = [t for t in ("etype", "ntype") if (self.space, t) in MAPS]
        known = isinstance(key, ast.Attribute) and key.attr not in ("etype", "ntype")
        guess = nearest(key.attr, types, ".{}") if known and isinstance(key, ast.Attribute) else ""
        return fail(
            key,
            "weights are sliced by a type: W[e.etype], W[n.ntype], W[e.src.ntype], W[e.dst.ntype], "
            f"W[e.etype, e.src]{guess}",
        )

    def _joined_type(self, key: ast.Attribute) -> str | None:
        """Returns the path of ``r.src.ntype``: an edge type has no end points, but their types are known."""
        end = key.value
        if key.attr != "ntype" or not isinstance(end, ast.Attribute) or self.entity(end.value) != "":
            return None
        return _NODE_TYPE.get(end.attr)

    def parse(self, node: ast.AST) -> Expr:
        """Returns the expression that ``node`` spells."""
        reference = self.ref(node)
        if reference is not None:
            return reference
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and math.isfinite(node.value):
            return Const(float(node.value))
        if isinstance(node, ast.Name):
            value = self.name(node.id, node)
            if isinstance(value, Ref):
                self.seen.append((value, node))
            return value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self.parse(node.operand)
            return Const(-operand.value) if isinstance(operand, Const) else Op("neg", (operand,))
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return Op(BINARY[type(node.op)], (self.parse(node.left), self.parse(node.right)))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return power(self.parse(node.left), self.parse(node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return Op("linear", (self.parse(node.left), self.parse(node.right)))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.parse(node.left), self.parse(node.comparators[0])
            kind = type(node.ops[0])
            if kind in BINARY:
                return Op(BINARY[kind], (left, right))
            if kind in FLIPPED:
                return Op(FLIPPED[kind], (right, left))
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute | ast.Subscript):
            base = node.value
            if isinstance(base, ast.Name) and base.id not in self.entities:
                fail(base, f'"{base.id}" is no variable of a loop here; there are {", ".join(self.entities)}')
            if isinstance(base, ast.Attribute) and self.entity(base.value) is not None:
                own = isinstance(base.value, ast.Name)
                fail(base, self._no_path(base.attr) if own else f"{ast.unparse(base.value)} has no .{base.attr}")
        hint = next((f"; {text}" for kind, text in _INSTEAD.items() if isinstance(node, kind)), "")
        return fail(node, f"this is not an expression of the program form{hint}")

    def _call(self, node: ast.Call) -> Expr:
        if not isinstance(node.func, ast.Name):
            known = getattr(node.func, "attr", "") in KNOWN_OPERATORS
            form = f"{node.func.attr}(...)" if known and isinstance(node.func, ast.Attribute) else "exp(e.src.x)"
            fail(node, f"operators are called by their name alone: {form}")
        name = _ALIASES.get(node.func.id, node.func.id)
        if node.keywords:
            fail(node, f"operands are given by position, not by name: {name}(x, ...)")
        if name == "reshape":
            return self._reshape(node)
        if name not in _ARITY:
            known = ", ".join(sorted(KNOWN_OPERATORS))
            guess = nearest(name, KNOWN_OPERATORS, "{}()")
            fail(node, f"unknown operator {name}(); the program form has: {known}{guess}")
        if name == "concat":
            return self._concat(node)
        arity = _ARITY[name]
        args = [self.parse(a) for a in node.args[:arity]]
        if len(args) < arity:
            defaults = OPERATORS[name].constants if name in OPERATORS else ()
            missing = defaults[len(defaults) - (arity - len(args)) :]
            args += [Const(v) for v in missing if v is not None]
        if len(args) != arity:
            fail(node, f"{name}() takes {arity} operand{'s' * (arity > 1)}")
        dims = tuple(self._integer(a) for a in node.args[arity:])
        if dims and name not in WITH_DIMS:
            fail(node, f"{name}() takes {arity} operand{'s' * (arity > 1)}")
        return op(name, *args, dims=dims) if name not in GEMM_OPERATORS else Op(name, tuple(args), dims)

    def _concat(self, node: ast.Call) -> Expr:
        """Parses ``concat(a, b, ...)``, also with a single list of values, as in torch."""
        items = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.List) else node.args
        if len(items) < 2:
            fail(node, "concat() takes two operands or more")
        values = [self.parse(item) for item in items]
        return reduce(lambda joined, value: op("concat", joined, value), values)

    def _integer(self, node: ast.AST) -> int:
        value = fold(self.parse(node))
        if not isinstance(value, Const) or value.value != int(value.value):
            fail(node, "a size must be an integer known at compile time")
        return int(value.value)

    def _reshape(self, node: ast.Call) -> Expr:
        if not node.args:  # a value without sizes becomes a scalar for each row
            fail(node, "reshape() takes a value and the sizes of its new row shape")
        inner, view = self.parse(node.args[0]), tuple(self._integer(a) for a in node.args[1:])
        if isinstance(inner, Ref) and inner.transposed:
            fail(node, "a matrix is reshaped before it is transposed: reshape(W, ...).T")
        if isinstance(inner, Ref):
            return replace(inner, view=view)
        return Op("reshape", (inner,), view)


def fold(expr: Expr) -> Expr:
    """Returns the expression with operations on constants carried out."""
    if isinstance(expr, Op):
        args = tuple(fold(a) for a in expr.args)
        if args and all(isinstance(a, Const) for a in args) and expr.name in OPERATORS:
            values = [np.float64(a.value) for a in args if isinstance(a, Const)]
            with np.errstate(all="ignore"):
                value = float(OPERATORS[expr.name].numpy(*values))
            if not math.isfinite(value):
                raise ProgramError(f"{expr.name} of constants gives {value}.")
            return Const(value)
        return replace(expr, args=args)
    return expr


@lru_cache(maxsize=4096)
def parse_statement(text: str, space: str) -> Statement:
    """Parses one canonical statement of a loop over ``space``: the inverse of `form.statement_text`."""
    node = ast.parse(text).body[0]

    def bare(name: str, where: ast.AST) -> Expr:
        return Ref(name, "one")

    parser = ExpressionParser(space, {ENTITY[space]: ""}, bare)
    if isinstance(node, ast.AugAssign):
        return Statement(space, _target(parser, node.target), "+=", parser.parse(node.value))
    if not isinstance(node, ast.Assign):
        fail(node, "a statement assigns")
    target = _target(parser, node.targets[0])
    value = parser.parse(node.value)
    if target.path and isinstance(value, Op) and value.name in ("max", "min") and value.args[0] == target:
        return Statement(space, target, f"{value.name}=", value.args[1])
    return Statement(space, target, "=", value)


def _target(parser: ExpressionParser, node: ast.AST) -> Ref:
    value = parser.parse(node)
    if not isinstance(value, Ref):
        fail(node, "not a row value that can be assigned")
    return value


def view_shape(ref: Ref, shape: Shape) -> Shape:
    """Returns the row shape of a reference to an array of row shape ``shape``."""
    if ref.view is None:
        return shape
    if size(ref.view) != size(shape):
        raise ProgramError(f'reshape: "{ref.name}" has row shape {shape}, which does not fill {ref.view}.')
    return ref.view
