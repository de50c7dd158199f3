"""Sparse features: products of sparse rows with weights become sums over the nonzeros.

Precondition: an inter-operator SDFG as it was parsed, one statement in each operator; some inputs are sparse.

Before::

    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["sum"] += e["norm"] * e.src["x"]
    for n in g.dst_nodes():
        n["y"] = linear(n["sum"], W)

After: products are moved in front of what is linear, and the product of x itself is a sum of rows of W, one for each
nonzero of x. x has become the values of the nonzeros, W an array over the columns of x::

    for z in g.src_nonzeros():
        z.row["x_W"] += z["x"] * z.column["W"]
    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["y"] += e["norm"] * e.src["x_W"]

Weights chosen by node type have a row for each (node type, column); where edge types choose them, products belong to
pairs of an end point and a type, and the loop runs over the nonzeros of all pairs. Gradients follow: that of W is a sum
over the nonzeros of a column.

Saves, for Z nonzeros in N rows of K values: (N K - Z) values of memory, 2 (N K - Z) M FLOPs. Products come first then:
sums of sparse rows, which `aggregation_order` might prefer, are denser than the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import dace
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.graph.spaces import MAPS, NODE_SIDES, PAIR_NONZEROS, along, through
from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, Statement, match_gemm, refs, statement_text
from dacergnn.library_nodes.operators import op, shape_of
from dacergnn.program.listing import Listing, map_refs

_SIDES = {nodes: side for side, nodes in NODE_SIDES.items()}
_PAIRS = {("src", "S"): ("UZS", "srcpair"), ("dst", "S"): ("VZS", "dstpair"), ("dst", "D"): ("VZD", "dstpair")}
"""Rows of nonzeros, and the path from edges to pairs, for features of an end point with weights of edge types."""
_OWN_TYPE = (("", "ntype"), ("src", "srctype"), ("dst", "dsttype"))


@dataclass(frozen=True)
class WeightRows:
    """How the rows of weights that nonzeros choose from are made of an input: matrices [K, M] lie behind each other.

    ``source`` holds matrices of ``shape``, transposed or not, of which rows ``start`` to ``stop`` are meant.
    """

    source: str
    shape: Shape
    transposed: bool
    start: int
    stop: int

    def of(self, weights: Tensor) -> Tensor:
        """The rows, by views of torch where there are some."""
        rows = self.shape[-1] if self.transposed else self.shape[0]
        if not self.transposed and (self.start, self.stop) == (0, rows):
            return weights
        matrices = weights.reshape(-1, *self.shape)
        return (matrices.mT if self.transposed else matrices)[:, self.start : self.stop].contiguous()


@dataclass(frozen=True)
class SparseProgram:
    """Result of `sparse_features`: the program, and for each of its inputs what it is made of.

    ``arrays`` are inputs of the program that was given, of which those in ``sparse`` belong to sources ("S") or
    destinations ("D") and come as the values of their nonzeros.
    """

    sdfg: dace.SDFG
    arrays: dict[str, str | WeightRows]
    sparse: dict[str, str]


def sparse_features(sdfg: dace.SDFG, sparse: Sequence[str]) -> SparseProgram:
    """The program for inputs of which those in ``sparse`` are sparse matrices; ``sdfg`` stays as it is.

    Raises:
        UnsupportedCallError: One is used otherwise than in products with weights; names it and its use.
    """
    return _Rewriting(Listing.of(sdfg), sparse).run(sdfg.name, next(iter(sdfg.arrays.values())).dtype)


@dataclass
class _Rewriting:
    listing: Listing
    sparse: Sequence[str]
    sides: dict[str, str] = field(default_factory=dict[str, str])
    weights: dict[tuple[WeightRows, str, Shape], str] = field(default_factory=dict[tuple[WeightRows, str, Shape], str])
    made: dict[object, str] = field(default_factory=dict[object, str])
    statements: list[Statement] = field(default_factory=list[Statement])
    """Made for the product that is being rewritten."""
    current: Statement | None = None
    values: dict[str, str] = field(default_factory=dict[str, str])
    """Array of the values of the nonzeros, by sparse array."""

    def run(self, name: str, dtype: dace.typeclass) -> SparseProgram:
        listing = self.listing
        for array in self.sparse:
            self._declare(array)
        for statement in list(listing.statements):
            gemm, self.current = match_gemm(statement), statement
            if gemm is None or gemm.kind != "linear" or not self._is_sparse(gemm.x.name):
                continue
            product = self._product(gemm.x, _Weight(gemm.w, 0, self._matrix(gemm.w)[0]), statement.space)
            product = self._viewed(product, self._matrix(gemm.w)[1:], listing.shape(statement.target))
            expr = product if gemm.scale is None else op("mul", gemm.scale, product)
            listing.exchange(statement, *self.statements, replace(statement, expr=expr))
            self.statements = []
        listing.inputs = (*listing.inputs, *self.values.values())
        listing.drop_unused()
        for statement in listing.statements:
            for ref in statement.reads:
                if ref.name in self.sparse:
                    self._refuse(ref.name, statement, "only products with weights take it")
        return self._result(name, dtype)

    def _declare(self, array: str) -> None:
        rows = self.listing.arrays[array]
        if rows.space not in _SIDES or len(rows.shape) != 1:
            what = f"{rows.space}{list(rows.shape)}"
            raise UnsupportedCallError(f"{array} is sparse, but has rows {what}; sparse features are NS[K] or ND[K]; "
                                       f"pass {array}.to_dense().")  # fmt: skip
        side = _SIDES[rows.space]
        if side in self.sides.values():
            raise UnsupportedCallError(f"{array} is the second sparse array of {rows.space} rows; pass it as "
                                       f"{array}.to_dense(), or join both by torch.cat.")  # fmt: skip
        self.sides[array] = side
        self.values[array] = self.listing.add(array, f"Z{side}", ())

    # Products

    def _is_sparse(self, name: str) -> bool:
        """Whether an array consists of sparse rows, or is computed of some without a product in between."""
        if name in self.sparse:
            return True
        made = self.listing.producer(name)
        return made is not None and not made.is_gemm and any(self._is_sparse(r.name) for r in made.reads)

    def _viewed(self, product: Expr, shape: Shape, wanted: Shape) -> Expr:
        """A sum of rows of ``shape``, seen in another shape."""
        if shape == wanted:
            return product
        return map_refs(product, lambda r: replace(r, view=wanted) if self.listing.shape(r) == shape else r)

    def _product(self, expr: Expr, weight: _Weight, space: str) -> Expr:
        """The product of an expression in rows of ``space`` with weights, as one of products of what it consists of."""
        if not any(self._is_sparse(r.name) for r in refs(expr)):
            return self._dense(expr, weight, space)
        if isinstance(expr, Ref):
            return self._of_ref(expr, weight, space)
        assert isinstance(expr, Op)
        shapes = [shape_of(a, self.listing.shape) for a in expr.args]
        shape = shape_of(expr, self.listing.shape)
        if expr.name in ("add", "sub", "neg") and all(s == shape for s in shapes):
            return op(expr.name, *(self._product(a, weight, space) for a in expr.args))
        if expr.name in ("mul", "div"):
            for x, factor in ((0, 1), (1, 0))[: 1 if expr.name == "div" else 2]:
                if shapes[factor] == () and shapes[x] == shape:
                    args = list(expr.args)
                    args[x] = self._product(args[x], weight, space)
                    return op(expr.name, *args)
        if expr.name == "concat":
            first = shapes[0][-1]
            parts = ((expr.args[0], weight.rows(0, first)), (expr.args[1], weight.rows(first, shape[-1])))
            return op("add", *(self._product(a, w, space) for a, w in parts))
        return self._refuse_expr(expr)

    def _of_ref(self, ref: Ref, weight: _Weight, space: str) -> Expr:
        if ref.transposed or self.listing.shape(ref) != self.listing.arrays[ref.name].shape:
            return self._refuse_expr(ref, "in the shape that it has, in no other one")
        if ref.name in self.sparse:
            return self._of_features(ref, weight, space)
        path = through(space, ref.path, weight.ref.path) if ref.path else weight.ref.path
        path = "one" if weight.ref.path == "one" else path
        if path is None:
            return self._refuse_expr(ref, "by weights that belong to the same rows")
        return Ref(self._pushed(ref.name, replace(weight, ref=replace(weight.ref, path=path))), ref.path)

    def _pushed(self, name: str, weight: _Weight) -> str:
        """The array of the products of an array's rows with weights, which its rows choose."""
        if (name, weight) in self.made:
            return self.made[name, weight]
        made = self.listing.producer(name)
        assert made is not None
        path = along(made.space, made.target.path, weight.ref.path)
        path = "one" if weight.ref.path == "one" else path
        if made.op not in ("=", "+=") or made.is_gemm or path is None:
            return self._refuse(self._feature(made.expr), made, "a product can only be moved in front of sums")
        expr = self._product(made.expr, replace(weight, ref=replace(weight.ref, path=path)), made.space)
        shape = self._matrix(weight.ref)[1:]
        new = self.made[name, weight] = self.listing.add(f"{name}_{weight.ref.name}", self.listing.space(name), shape)
        self.statements.append(replace(made, target=Ref(new, made.target.path), expr=expr))
        return new

    def _of_features(self, ref: Ref, weight: _Weight, space: str) -> Expr:
        """The product of a sparse row with weights: a sum over its nonzeros, in an array of its own."""
        side, path = self.sides[ref.name], weight.ref.path
        if path == "one" or (ref.path, path) in _OWN_TYPE:
            nonzeros, to, back = f"Z{side}", "row", ref.path
            column = "column" if path == "one" else "typedcolumn"
        elif path == "etype" and (found := self._pairs(ref, side, space)) is not None:
            nonzeros, to, column = found[0], "pair", "typedcolumn"
            back = found[1] if space == "E" else ""
        else:
            return self._refuse_expr(ref, "by weights that are its own type's, or an edge type's")
        key = (ref.name, weight.plain, nonzeros, column)
        if key not in self.made:
            shape = self._matrix(weight.ref)[1:]
            rows = self._weight_rows(weight, MAPS[nonzeros, column], shape)
            self.made[key] = self.listing.add(f"{ref.name}_{weight.ref.name}", MAPS[nonzeros, to], shape)
            own = Ref(self.values[ref.name], "nonzero" if nonzeros in PAIR_NONZEROS else "")
            total = Op("mul", (own, Ref(rows, column)))
            self.statements.append(Statement(nonzeros, Ref(self.made[key], to), "+=", total))
        return Ref(self.made[key], back)

    def _pairs(self, ref: Ref, side: str, space: str) -> tuple[str, str] | None:
        found = _PAIRS.get((ref.path, side))
        return found if found is not None and space in ("E", PAIR_NONZEROS[found[0]][0]) else None

    def _dense(self, expr: Expr, weight: _Weight, space: str) -> Expr:
        """The product of a dense part with its rows of the weights."""
        if not isinstance(expr, Ref):
            name = self.listing.add("part", space, shape_of(expr, self.listing.shape))
            self.statements.append(Statement(space, Ref(name), "=", expr))
            expr = Ref(name)
        source, columns = weight.ref, self._matrix(weight.ref)[0]
        if (weight.start, weight.stop) != (0, columns):
            shape = self.listing.shape(Ref(source.name))
            own = (
                (shape[0], weight.stop - weight.start) if source.transposed else (weight.stop - weight.start, shape[1])
            )
            taken = Op("slice" if source.transposed else "take_rows", (Ref(source.name),), (weight.start, weight.stop))
            types = self.listing.space(source.name)
            name = self.listing.add(f"{source.name}_{weight.start}_{weight.stop}", types, own)
            self.statements.append(Statement(types, Ref(name), "=", taken))
            source = replace(source, name=name)
        name = self.listing.add("product", space, self._matrix(weight.ref)[1:])
        self.statements.append(Statement(space, Ref(name), "=", Op("linear", (expr, source))))
        return Ref(name)

    # Weights

    def _matrix(self, ref: Ref) -> Shape:
        """(K, M) of weights as the product sees them."""
        return shape_of(ref, self.listing.shape)

    def _weight_rows(self, weight: _Weight, space: str, shape: Shape) -> str:
        """The input that holds the rows of weights over columns."""
        ref = weight.ref
        if ref.name not in self.listing.inputs:
            self._refuse_expr(ref, "by weights that are inputs; compute them before, with torch")
        rows = WeightRows(ref.name, self.listing.arrays[ref.name].shape, ref.transposed, weight.start, weight.stop)
        key = (rows, space, shape)
        if key not in self.weights:
            self.weights[key] = self.listing.add(ref.name, space, shape)
        return self.weights[key]

    # The result

    def _result(self, name: str, dtype: dace.typeclass) -> SparseProgram:
        """The program with its inputs in the order of those that they are made of."""
        listing = self.listing
        read = {r.name for s in listing.statements for r in s.reads}
        arrays: dict[str, str | WeightRows] = {}
        for old in listing.inputs[: -len(self.values)]:
            arrays |= {own: rows for (rows, _, _), own in self.weights.items() if rows.source == old}
            if old in self.sides:
                arrays[self.values[old]] = old
            elif old in read or not any(rows.source == old for rows, _, _ in self.weights):
                arrays[old] = old
        names = {own: old for own, old in self._names(arrays).items() if own != old}
        listing.statements = [
            replace(s, expr=map_refs(s.expr, lambda r: replace(r, name=names.get(r.name, r.name))))
            for s in listing.statements
        ]
        listing.arrays |= {old: listing.arrays[own] for own, old in names.items()}
        arrays = {names.get(own, own): made for own, made in arrays.items()}
        listing.inputs = tuple(arrays)
        return SparseProgram(listing.build(name, dtype), arrays, {n: self.sides[n] for n in self.sparse})

    def _names(self, arrays: dict[str, str | WeightRows]) -> dict[str, str]:
        """What inputs are called: as the arrays that they stand for, the first one of each."""
        names: dict[str, str] = {}
        for own, made in arrays.items():
            old = made if isinstance(made, str) else made.source
            names[own] = own if old in names.values() or (old != own and old in arrays) else old
        return names

    # Errors

    def _refuse_expr(self, expr: Expr, remedy: str = "") -> NoReturn:
        assert self.current is not None
        self._refuse(
            self._feature(expr),
            self.current,
            f"it is multiplied {remedy}" if remedy else "the product is not linear in it",
        )

    def _feature(self, expr: Expr) -> str:
        """The sparse array that an expression depends on."""
        found = (r.name for r in refs(expr) if self._is_sparse(r.name))
        name = next(found, self.sparse[0])
        made = self.listing.producer(name)
        return name if made is None else self._feature(made.expr)

    def _refuse(self, name: str, statement: Statement, reason: str) -> NoReturn:
        raise UnsupportedCallError(
            f"{name} is sparse, but used in {statement_text(statement)}: {reason}; pass {name}.to_dense()."
        )


@dataclass(frozen=True)
class _Weight:
    """The rows ``start`` to ``stop`` of weights, which `ref` reaches from the rows of a product."""

    ref: Ref
    start: int
    stop: int

    def rows(self, start: int, stop: int) -> _Weight:
        return replace(self, start=self.start + start, stop=self.start + stop)

    @property
    def plain(self) -> tuple[str, bool, int, int]:
        """What is meant, from wherever it is reached."""
        return self.ref.name, self.ref.transposed, self.start, self.stop
