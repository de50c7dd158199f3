"""Turns products of sparse rows, or of linear functions of them, into sums over nonzeros (see `sparse_features`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NoReturn

from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.graph.spaces import MAPS, PAIR_NONZEROS, along, through
from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, Statement, refs, statement_text
from dacergnn.library_nodes.operators import op
from dacergnn.library_nodes.place import at
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program.listing import Listing, map_refs

_PAIRS = {("src", "S"): ("UZS", "srcpair"), ("dst", "S"): ("VZS", "dstpair"), ("dst", "D"): ("VZD", "dstpair")}
"""Nonzeros of pairs, and the path from edges to pairs, for features of an end point with weights of edge types."""
_OWN_TYPE = (("", "ntype"), ("src", "srctype"), ("dst", "dsttype"))


@dataclass(frozen=True)
class WeightRows:
    """Describes an array of weight rows over columns of features: rows of each matrix of ``source``, one per type.

    Matrices have the row shape ``shape``, perhaps to be ``transposed``; then rows ``start`` to ``stop`` are taken.
    """

    source: str
    shape: Shape
    transposed: bool
    start: int
    stop: int

    def of(self, weights: Tensor) -> Tensor:
        """Returns the rows of ``weights``; the weights themselves if these have the rows in order."""
        if not self.transposed and (self.start, self.stop) == (0, self.shape[0]):
            return weights
        matrices = weights.reshape(-1, *self.shape)
        return (matrices.mT if self.transposed else matrices)[:, self.start : self.stop].contiguous()


@dataclass(frozen=True)
class _Weight:
    """Describes weights as seen from the rows of a product; features multiply their rows ``start`` to ``stop``."""

    ref: Ref
    start: int
    stop: int

    def part(self, start: int, stop: int) -> _Weight:
        return replace(self, start=self.start + start, stop=self.start + stop)

    def along(self, path: str) -> _Weight:
        return replace(self, ref=replace(self.ref, path=path))


@dataclass
class SparseProducts:
    """Rewrites the products of a listing.

    ``sides`` are the sides of the sparse arrays, ``values`` the arrays that hold their nonzeros. ``weights`` are the
    arrays of weight rows that products need.
    """

    listing: Listing
    sides: dict[str, str]
    values: dict[str, str]
    weights: dict[tuple[WeightRows, str], str] = field(default_factory=dict[tuple[WeightRows, str], str])
    _made: dict[object, str] = field(default_factory=dict[object, str])
    _new: list[Statement] = field(default_factory=list[Statement])

    def rewrite(self, statement: Statement) -> None:
        """Rewrites a statement if it is a product of sparse rows."""
        gemm, listing = statement.gemm, self.listing
        if gemm is None or gemm.kind != "linear" or not self.is_sparse(gemm.x.name):
            return
        self._statement, self._new = statement, []
        weight = _Weight(gemm.w, 0, self._matrix(gemm.w)[0])
        product = self._product(gemm.x, weight, statement.space)
        shape, target = self._matrix(gemm.w)[1:], statement.target
        wanted = listing.shape(target)

        def viewed(expr: Expr) -> Expr:
            return map_refs(expr, lambda r: replace(r, view=wanted) if listing.shape(r) == shape != wanted else r)

        last = self._new[-1] if self._new else statement
        alone = product == Ref(last.target.name) and gemm.scale is None and (statement.op, target.path) == ("=", "")
        if alone and listing.space(last.target.name) == listing.space(target.name):
            # The statement's own array replaces the one that was made last.
            self._made = {k: target.name if name == last.target.name else name for k, name in self._made.items()}
            into = replace(last, target=replace(last.target, name=target.name), expr=viewed(last.expr))
            listing.exchange(statement, *self._new[:-1], into)
        else:
            expr = viewed(product)
            expr = expr if gemm.scale is None else op("mul", gemm.scale, expr)
            listing.exchange(statement, *self._new, replace(statement, expr=expr))

    def is_sparse(self, name: str) -> bool:
        """Returns whether an array consists of sparse rows, or is computed from some without a product in between."""
        made = self.listing.producer(name)
        return name in self.sides or (
            made is not None and not made.is_gemm and any(self.is_sparse(r.name) for r in made.reads)
        )

    def refuse(self, expr: Expr, statement: Statement, reason: str) -> NoReturn:
        """Raises UnsupportedCallError for the use of an expression of sparse rows in a statement."""
        name = next((r.name for r in refs(expr) if self.is_sparse(r.name)), next(iter(self.sides)))
        made = self.listing.producer(name)
        if made is not None:
            self.refuse(made.expr, statement, reason)
        text = statement_text(statement)
        with at(statement.place):
            raise UnsupportedCallError(f"{name} is sparse, but used in {text}: {reason}; pass {name}.to_dense().")

    # Moving products to the front

    def _product(self, expr: Expr, weight: _Weight, space: str) -> Expr:
        """Returns the product of an expression in rows of ``space`` with weights, in terms of products of its parts."""
        if not any(self.is_sparse(r.name) for r in refs(expr)):
            return self._dense(expr, weight, space)
        if isinstance(expr, Ref):
            return self._of_ref(expr, weight, space)
        assert isinstance(expr, Op)
        shape, *shapes = (shape_of(e, self.listing.shape) for e in (expr, *expr.args))
        if expr.name in ("add", "sub", "neg") and all(s == shape for s in shapes):
            return op(expr.name, *(self._product(a, weight, space) for a in expr.args))
        for x in {"mul": (0, 1), "div": (0,)}.get(expr.name, ()):
            if shapes[x] == shape and shapes[1 - x] == ():
                args = list(expr.args)
                args[x] = self._product(args[x], weight, space)
                return op(expr.name, *args)
        if expr.name == "concat":
            first = shapes[0][-1]
            parts = zip(expr.args, (weight.part(0, first), weight.part(first, shape[-1])), strict=True)
            return op("add", *(self._product(a, w, space) for a, w in parts))
        return self.refuse(expr, self._statement, "the product is not linear in it")

    def _of_ref(self, ref: Ref, weight: _Weight, space: str) -> Expr:
        if ref.transposed or self.listing.shape(ref) != self.listing.arrays[ref.name].shape:
            return self.refuse(ref, self._statement, "rows are multiplied in the shape that they have")
        if ref.name in self.sides:
            return self._of_features(ref, weight, space)
        path = weight.ref.path
        own = path if not ref.path or path == "one" else through(space, ref.path, path)
        if own is None:
            return self.refuse(ref, self._statement, "weights are chosen by a type of other rows")
        return self._seen(self._of_array(ref.name, weight.along(own)), ref.path, weight)

    def _of_array(self, name: str, weight: _Weight) -> str:
        """Returns the array of the products of an array's rows with the weights that these rows choose."""
        key, made = (name, weight), self.listing.producer(name)
        if key not in self._made:
            assert made is not None
            target, path = made.target.path, weight.ref.path
            seen = path if path == "one" else along(made.space, target, path)
            if made.op not in ("=", "+=") or made.is_gemm or seen is None:
                self.refuse(made.expr, made, "a product can only be moved in front of sums")
            expr = self._product(made.expr, weight.along(seen), made.space)
            array = self._array(f"{name}_{weight.ref.name}", self.listing.space(name), weight)
            self._made[key] = array
            self._new.append(replace(made, target=Ref(array, target), expr=expr))
        return self._made[key]

    # Products

    def _of_features(self, ref: Ref, weight: _Weight, space: str) -> Expr:
        """Returns the product of a sparse row with weights: a sum over its nonzeros, in an array of its own."""
        side, path = self.sides[ref.name], weight.ref.path
        pairs = _PAIRS.get((ref.path, side)) if path == "etype" else None
        if path == "one" or (ref.path, path) in _OWN_TYPE:
            nonzeros, to, back = f"Z{side}", "row", ref.path
        elif pairs is not None and space in ("E", PAIR_NONZEROS[pairs[0]][0]):
            nonzeros, to, back = pairs[0], "pair", pairs[1] if space == "E" else ""
        else:
            return self.refuse(
                ref, self._statement, "weights are chosen by a type that is neither its own nor an edge's"
            )
        column = "column" if path == "one" else "typedcolumn"
        key = (nonzeros, column, weight.along(""))
        if key not in self._made:
            self._made[key] = self._array(f"{ref.name}_{weight.ref.name}", MAPS[nonzeros, to], weight)
            value = Ref(self.values[ref.name], "" if to == "row" else "nonzero")
            row = Ref(self._rows(weight, MAPS[nonzeros, column]), column)
            self._new.append(Statement(nonzeros, Ref(self._made[key], to), "+=", op("mul", value, row)))
        return self._seen(self._made[key], back, weight)

    def _rows(self, weight: _Weight, space: str) -> str:
        """Returns the array of weight rows over columns, which each call makes of an input."""
        ref = weight.ref
        if ref.name not in self.listing.inputs:
            self.refuse(self._statement.expr, self._statement, f"{ref.name} is no input; compute it before, with torch")
        shape = self.listing.arrays[ref.name].shape
        key = (WeightRows(ref.name, shape, ref.transposed, weight.start, weight.stop), space)
        if key not in self.weights:
            self.weights[key] = self._array(ref.name, space, weight)
        return self.weights[key]

    def _dense(self, expr: Expr, weight: _Weight, space: str) -> Expr:
        """Returns the product of an expression without sparse rows with its part of the weights."""
        if not isinstance(expr, Ref):
            name = self.listing.add("part", space, shape_of(expr, self.listing.shape))
            self._new.append(Statement(space, Ref(name), "=", expr))
            expr = Ref(name)
        own, count = weight.ref, weight.stop - weight.start
        if count != self._matrix(own)[0]:
            rows, columns = self.listing.arrays[own.name].shape
            taken = Op("slice" if own.transposed else "take_rows", (Ref(own.name),), (weight.start, weight.stop))
            types, shape = self.listing.space(own.name), (rows, count) if own.transposed else (count, columns)
            name = self.listing.add(f"{own.name}_{weight.start}_{weight.stop}", types, shape)
            self._new.append(Statement(types, Ref(name), "=", taken))
            own = replace(own, name=name)
        name = self._array("product", space, weight)
        self._new.append(Statement(space, Ref(name), "=", Op("linear", (expr, own))))
        return Ref(name)

    def _seen(self, name: str, path: str, weight: _Weight) -> Ref:
        """Returns a reference to an array of products, viewed in the shape of these products."""
        shape = self._matrix(weight.ref)[1:]
        return Ref(name, path, None if self.listing.arrays[name].shape == shape else shape)

    def _array(self, name: str, space: str, weight: _Weight) -> str:
        """Adds an array whose rows have the shape of products with the weights; returns its name."""
        return self.listing.add(name, space, self._matrix(weight.ref)[1:])

    def _matrix(self, ref: Ref) -> Shape:
        """Returns the shape (K, M) of weights as a product sees them."""
        return shape_of(ref, self.listing.shape)
