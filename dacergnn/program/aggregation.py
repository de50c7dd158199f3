"""Expands aggregations over the edges of a row, written as in Python, into the loops that they stand for.

``n["h"] = mean(e["m"] for e in n.incoming_edges())`` becomes::

    h_sum, h_degree = 0.0, 0.0
    for e in n.incoming_edges():
        h_sum += e["m"]
        h_degree += 1.0
    n["h"] = h_sum / max(h_degree, 1.0)
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

from dacergnn.library_nodes.diagnostics import fail, located

AGGREGATIONS = ("sum", "mean", "max", "min")
_START = {"sum": 0.0, "mean": 0.0, "max": -1e30, "min": 1e30}
_EXAMPLE = "sum(e.src.x for e in n.incoming_edges())"


def expand(statement: ast.stmt, fresh: Callable[[str], str]) -> list[ast.stmt]:
    """Returns the loops of the aggregations in a statement, then the statement; ``fresh`` makes names of locals."""
    if not isinstance(statement, ast.Assign | ast.AugAssign):
        return [statement]
    expansion = _Expansion(statement, fresh)
    direct = expansion.direct()
    if direct is not None:
        return direct
    statement.value = expansion.visit(statement.value)
    return [*expansion.loops, statement]


class _Expansion(ast.NodeTransformer):
    def __init__(self, statement: ast.Assign | ast.AugAssign, fresh: Callable[[str], str]) -> None:
        self.statement = statement
        self.target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        self.fresh = fresh
        self.loops: list[ast.stmt] = []

    def direct(self) -> list[ast.stmt] | None:
        """Returns a loop that reduces into the target; None if the statement does more or reads the old value."""
        call, name = self.statement.value, _name(self.target)
        kind = _aggregation(call)
        if kind in (None, "mean") or isinstance(self.statement, ast.AugAssign) or not isinstance(call, ast.Call):
            return None
        if name in {_name(n) for n in ast.walk(call)}:
            return None
        self._reduce(call, kind, self.target)
        return self.loops

    def visit_Call(self, node: ast.Call) -> ast.AST:
        kind = _aggregation(node)
        if kind is None:
            return self.generic_visit(node)
        base = _name(self.target) or kind
        total = located(ast.Name(self.fresh(f"{base}_{'sum' if kind == 'mean' else kind}"), ast.Store()), node)
        if kind != "mean":
            self._reduce(node, kind, total)
            return total
        degree = located(ast.Name(self.fresh(f"{base}_degree"), ast.Store()), node)
        self._reduce(node, "sum", total, degree)
        largest = ast.Call(ast.Name("max", ast.Load()), [degree, ast.Constant(1.0)], [])
        return located(ast.BinOp(total, ast.Div(), largest), node)

    def _reduce(self, call: ast.Call, kind: str, target: ast.expr, degree: ast.expr | None = None) -> None:
        (generator,) = call.args
        assert isinstance(generator, ast.GeneratorExp)
        loop = generator.generators[0]
        if len(generator.generators) != 1 or loop.ifs:
            fail(
                generator,
                f"an aggregation has one for and no if: {_EXAMPLE}; a comparison times a value leaves out edges",
            )
        self.loops.append(_assign(target, ast.Constant(_START[kind]), call))
        if kind == "sum":
            body: list[ast.stmt] = [_add(target, generator.elt, call)]
        else:
            largest = ast.Call(ast.Name(kind, ast.Load()), [copy.deepcopy(target), generator.elt], [])
            body = [_assign(target, largest, call)]
        if degree is not None:
            self.loops.append(_assign(degree, ast.Constant(0.0), call))
            body.append(_add(degree, ast.Constant(1.0), call))
        self.loops.append(located(ast.For(loop.target, loop.iter, body, []), call))


def _aggregation(node: ast.AST) -> str | None:
    """Returns the kind of an aggregation over edges; None for everything else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in AGGREGATIONS:
        return None
    if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) and not node.keywords:
        return node.func.id
    return fail(node, f"mean() runs over the edges of a row: mean{_EXAMPLE[3:]}") if node.func.id == "mean" else None


def _name(node: ast.AST) -> str | None:
    """Returns the name of the row value that a node spells; None for other nodes."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _assign(target: ast.expr, value: ast.expr, origin: ast.AST) -> ast.stmt:
    return located(ast.Assign([copy.deepcopy(target)], value), origin)


def _add(target: ast.expr, value: ast.expr, origin: ast.AST) -> ast.stmt:
    return located(ast.AugAssign(copy.deepcopy(target), ast.Add(), value), origin)  # type: ignore[arg-type]
