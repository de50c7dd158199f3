"""Moves functions behind extrema: monotone functions that all edges of a node share are computed once per node.

Precondition: a listing that `propagation_postponing` rewrites.

Before::

    for e in g.edges():
        e["h"] = relu(e.dst["a"] - e.src["b"])
        e.dst["out"] = max(e.dst["out"], e["h"])

After::

    for e in g.edges():
        e.dst["out_min"] = min(e.dst["out_min"], e.src["b"])
        e.dst["degree"] += 1.0
    for n in g.dst_nodes():
        n["out"] = relu((n["a"] - n["out_min"]) * clamp_max(n["degree"], 1.0))

Nodes that no edge reaches keep their 0. Rounding is monotone, too: results are the same to the last digit, unless terms
of a sum change places. Gradients are the same, except where the function makes different values equal: there its slope
is 0, or rounding loses the difference.

Saves, for values of M elements: (E - N) M operations for each function and E M values of memory; in the backward, the
same except for the gradient of the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from dacergnn.graph.spaces import MAPS, TYPE_PATHS
from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Statement
from dacergnn.library_nodes.operators import OPERATORS, op
from dacergnn.library_nodes.shapes import is_elementwise, shape_of
from dacergnn.program.listing import Listing, map_refs, rebase
from dacergnn.sdfg_passes.distribution import ENDS, new_array
from dacergnn.sdfg_passes.regular import is_regular

_FLIPPED = {"max=": "min=", "min=": "max="}


def behind_extrema(listing: Listing, singular: Set[str]) -> int:
    """Postpones functions behind extrema wherever possible; returns the number of statements that were rewritten."""
    extrema = [
        s for s in listing.statements if s.op in _FLIPPED and s.space in ENDS and s.target.path not in TYPE_PATHS
    ]
    return sum(_postpone(listing, s, singular) for s in extrema)


def _postpone(listing: Listing, statement: Statement, singular: Set[str]) -> bool:
    name, path, space = statement.target.name, statement.target.path, statement.space
    owner = MAPS[space, path]
    if listing.space(name) != owner:
        return False

    def shared(expr: Expr) -> Expr | None:
        """Returns an expression that is the same for all rows of a group, as a value of the group; else None."""
        moved = rebase(expr, space, path)
        return moved if moved is not None and is_regular(moved, singular) else None

    peeled = _Peeled(_whole(listing, statement, statement.expr), statement.op)
    while peeled.sum(shared) or peeled.function():
        pass
    if not peeled.outer:
        return False
    operand, shape = peeled.expr, shape_of(peeled.expr, listing.shape)
    new: list[Statement] = []
    if not isinstance(operand, Ref):  # the gradient compares it with the result, bit by bit
        own = Ref(new_array(listing, "tmp", space, shape))
        new.append(Statement(space, own, "=", operand))
        operand = own
    inner = new_array(listing, f"{name}_{peeled.op[:3]}", owner, shape)
    new.append(Statement(space, Ref(inner, path), peeled.op, operand))
    reached = None
    if not all(peeled.keeps_zero):
        degree = new_array(listing, "degree", owner, ())
        new.append(Statement(space, Ref(degree, path), "+=", Const(1.0)))
        reached = op("clamp_max", Ref(degree), 1.0)
    value = peeled.rebuilt(Ref(inner), reached)
    listing.exchange(statement, *new, Statement(owner, Ref(name), "=", value))
    return True


def _whole(listing: Listing, statement: Statement, expr: Expr) -> Expr:
    """Returns the expression with the element-wise values that only this statement reads put in place."""

    def value(ref: Ref) -> Expr:
        made = listing.producer(ref.name)
        if made is None or made.op != "=" or made.target != ref:
            return ref
        if not listing.is_internal(ref.name) or not isinstance(made.expr, Op) or not is_elementwise(made.expr):
            return ref
        if not all(s is statement or s.target.name in inside for s in listing.consumers(ref.name)):
            return ref
        inside.add(ref.name)
        return map_refs(made.expr, value)

    inside = set[str]()
    return map_refs(expr, value)


@dataclass
class _Peeled:
    """Holds an expression, the extremum to take of it, and the functions to apply to that, the innermost last."""

    expr: Expr
    op: str
    outer: list[Callable[[Expr], Expr]] = field(default_factory=list[Callable[[Expr], Expr]])
    keeps_zero: list[bool] = field(default_factory=list[bool])

    def sum(self, shared: Callable[[Expr], Expr | None]) -> bool:
        """Removes from a sum the terms that all rows share, or its sign; returns whether there were any."""
        terms = [*_terms(self.expr, "add")]
        moved = [(sign, shared(term)) for sign, term in terms]
        fixed = [(sign, value) for sign, value in moved if value is not None]
        varying = [term for term, (_, value) in zip(terms, moved, strict=True) if value is None]
        if not varying or not (fixed or (len(varying) == 1 and varying[0][0] == "sub")):
            return False
        self.expr, sign = (varying[0][1], varying[0][0]) if len(varying) == 1 else (_total(varying), "add")
        if sign == "sub":
            self.op = _FLIPPED[self.op]
        self._take(lambda value: _total([*fixed, (sign, value)]), not fixed)
        return True

    def function(self) -> bool:
        """Removes a rising function or a constant factor; returns whether there was one."""
        expr = self.expr
        if not isinstance(expr, Op):
            return False
        operator = OPERATORS.get(expr.name)
        if (
            operator is not None
            and operator.rising
            and all(isinstance(a, Const) and a.value >= 0 for a in expr.args[1:])
        ):
            self.expr, rest = expr.args[0], expr.args[1:]
            self._take(lambda value: Op(expr.name, (value, *rest)), operator.zero_at_zero)
            return True
        if expr.name == "div" or isinstance(expr.args[-1], Const):
            value, factor = expr.args[0], expr.args[-1]
        else:
            factor, value = expr.args[0], expr.args[-1]
        if expr.name not in ("mul", "div") or not isinstance(factor, Const) or not factor.value:
            return False
        self.expr, self.op = value, self.op if factor.value > 0 else _FLIPPED[self.op]
        self._take(lambda value: Op(expr.name, (value, factor)), True)
        return True

    def _take(self, function: Callable[[Expr], Expr], keeps_zero: bool) -> None:
        self.outer.append(function)
        self.keeps_zero.append(keeps_zero)

    def rebuilt(self, value: Expr, reached: Expr | None) -> Expr:
        """Returns the removed functions of ``value``, with 0 where ``reached`` is 0."""
        for position in range(len(self.outer) - 1, -1, -1):
            value = self.outer[position](value)
            if reached is not None and self.keeps_zero.index(False) == position:
                value = op("mul", value, reached)
        return value


def _terms(expr: Expr, sign: str) -> list[tuple[str, Expr]]:
    """Returns the terms of a sum, each to be added ("add") or subtracted ("sub")."""
    if not isinstance(expr, Op) or expr.name not in ("add", "sub", "neg"):
        return [(sign, expr)]
    other = "sub" if sign == "add" else "add"
    if expr.name == "neg":
        return _terms(expr.args[0], other)
    return [*_terms(expr.args[0], sign), *_terms(expr.args[1], sign if expr.name == "add" else other)]


def _total(terms: list[tuple[str, Expr]]) -> Expr:
    """Returns the sum of terms."""
    ordered = sorted(terms, key=lambda term: term[0] == "sub")
    (sign, total), *rest = ordered
    total = op("neg", total) if sign == "sub" else total
    for sign, term in rest:
        total = op(sign, total, term)
    return total
