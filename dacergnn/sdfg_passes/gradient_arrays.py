"""Holds the arrays of a backward program: gradients, which sum their contributions, and intermediate values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dacergnn.library_nodes.form import GEMM_OPERATORS, GRADIENT, Expr, Op, Ref, Shape, Statement, refs
from dacergnn.library_nodes.operators import op
from dacergnn.library_nodes.parse import fold
from dacergnn.library_nodes.place import Place
from dacergnn.library_nodes.plan import Rows
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program.emission import OWN_STATEMENT, is_plain
from dacergnn.program.listing import Listing


class _Term(NamedTuple):
    """Holds a contribution, and the place of the statement whose gradient it belongs to."""

    expr: Expr
    place: Place | None


@dataclass
class _Contributions:
    """Holds the contributions to the gradient of an array by (row space, path, row shape)."""

    terms: dict[tuple[str, str, Shape], list[_Term]] = field(default_factory=dict[tuple[str, str, Shape], list[_Term]])

    def add(self, space: str, path: str, shape: Shape, term: _Term) -> None:
        self.terms.setdefault((space, path, shape), []).append(term)


class GradientArrays:
    """Builds the backward of a program, with the gradients of arrays that are asked for.

    Attributes:
        backward: The program.
        contributions: Contributions to the gradients of arrays, by the names of the arrays.
        place: The place of the statement that is differentiated, which the new statements get.
    """

    def __init__(self, forward: Listing) -> None:
        self.backward = Listing(item=forward.item)
        self.contributions: dict[str, _Contributions] = {}
        self.place: Place | None = None
        self._forward = forward
        self._gradients: dict[str, str] = {}
        self._emitted: dict[object, str] = {}

    def add_input(self, name: str, rows: Rows) -> None:
        """Makes an array an input of the program."""
        self.backward.arrays[name] = rows
        self.backward.inputs += (name,)

    def accumulate(self, ref: Ref, space: str, term: Expr) -> None:
        """Adds ``term``, for every row of ``space``, to the gradient of the row that ``ref`` leads to."""
        shape = self._forward.shape(ref)
        self.contributions.setdefault(ref.name, _Contributions()).add(space, ref.path, shape, _Term(term, self.place))

    def gradient(self, name: str) -> str:
        """Returns the array that holds the gradient of ``name``; emits its operators at the first call."""
        if name not in self._gradients:
            self._gradients[name] = self._sum_contributions(name)
        return self._gradients[name]

    def result(self, name: str) -> str:
        """Returns the gradient of ``name`` as an array of its own, which the program can return."""
        gradient, rows = self.gradient(name), self._forward.arrays[name]
        if self.backward.is_internal(gradient):
            return gradient
        self._emitted.clear()  # the gradient is that of an output, or is a result already
        return self.emit(gradient, rows.space, "", [Ref(gradient)], rows.shape)

    def emit(self, name: str, space: str, path: str, terms: list[Expr], shape: Shape, owner: str | None = None) -> str:
        """Adds to the backward program an operator that writes the sum of ``terms``; returns its array."""
        expr = fold(_sum(terms))
        if not self._is_product(space, path, expr):
            expr = self._hoist(expr, space, top=not (isinstance(expr, Op) and expr.name in GEMM_OPERATORS))
            rank = len(shape_of(expr, self.shape))
            expr = Op("expand", (expr,), shape[rank:]) if rank < len(shape) else expr
        key = (space, path, expr, shape, owner or space)
        if key in self._emitted:
            return self._emitted[key]
        for ref in refs(expr):
            if ref.name not in self.backward.arrays:
                self.add_input(ref.name, self._forward.arrays[ref.name])
        array = self.fresh(name)
        self.backward.arrays[array] = Rows(owner or space, shape)
        self.backward.statements.append(Statement(space, Ref(array, path), "+=" if path else "=", expr, self.place))
        self._emitted[key] = array
        return array

    def fresh(self, name: str) -> str:
        """Returns a name that no array of either program has."""
        candidate, count = name, 0
        while candidate in self._forward.arrays or candidate in self.backward.arrays:
            count += 1
            candidate = f"{name}_{count}"
        return candidate

    def shape(self, ref: Ref) -> Shape:
        """Returns the row shape of a reference to an array of either program."""
        return self.backward.shape(ref) if ref.name in self.backward.arrays else self._forward.shape(ref)

    def _sum_contributions(self, name: str) -> str:
        space, shape = self._forward.arrays[name].space, self._forward.arrays[name].shape
        own: list[_Term] = []
        partial: list[_Term] = []
        for (term_space, path, term_shape), terms in self.contributions[name].terms.items():
            products = [t for t in terms if self._is_product(term_space, path, t.expr)]
            plain = [t for t in terms if t not in products]
            if (term_space, path, term_shape) == (space, "", shape):
                own += plain
            elif plain:
                products.append(_Term(_sum([t.expr for t in plain]), _first(plain)))
            for term in products:
                self.place = term.place
                array = self.emit(GRADIENT + name, term_space, path, [term.expr], term_shape, space)
                partial.append(_Term(Ref(array, view=shape if term_shape != shape else None), term.place))
        self.place = _first([*own, *partial])
        terms = [t.expr for t in (*own, *partial)]
        only = terms[0]
        if (
            len(terms) == 1
            and isinstance(only, Ref)
            and only == Ref(only.name)
            and only.name in self.backward.arrays
            and self.backward.shape(only) == shape
        ):
            return only.name
        return self.emit(GRADIENT + name, space, "", terms, shape)

    def _is_product(self, space: str, path: str, term: Expr) -> bool:
        return Statement(space, Ref("gradient", path), "+=" if path else "=", term).is_gemm

    def _hoist(self, expr: Expr, space: str, top: bool = False) -> Expr:
        """Moves products and reductions inside an expression into operators of their own; returns the rest."""
        if not isinstance(expr, Op):
            return expr
        expr = replace(expr, args=tuple(self._hoist(a, space) for a in expr.args))
        if top or expr.name not in OWN_STATEMENT or is_plain(expr):
            return expr
        return Ref(self.emit("tmp", space, "", [expr], shape_of(expr, self.shape)))


def _first(terms: Sequence[_Term]) -> Place | None:
    """Returns the first place that is known."""
    return next((t.place for t in terms if t.place is not None), None)


def _sum(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = op("add", total, term)
    return total
