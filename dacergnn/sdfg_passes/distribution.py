"""Distributes linear functions over sums and concatenations of edge values.

::

    e["y"] = linear(concat(e.src["x"], e.dst["x"] - e.src["x"]), W)

    r["W_0_64"] = take_rows(r["W"], 0, 64); r["W_64_128"] = take_rows(r["W"], 64, 128)
    n["y_src"] = linear(n["x"], W_0_64); n["y_dst"] = linear(n["x"], W_64_128)        # and once more by W_64_128
    e["y"] = e.src["y_src"] + (e.dst["y_dst"] - e.src["y_src_1"])

`linear` is linear in its rows, `dot_prd` in both operands. Both are distributed over sums, differences, negation,
concatenations, and factors and divisors of lower rank, also through intermediate arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace

from dacergnn.graph.spaces import MAPS, PARTS, TYPE_PATHS, along, is_encoding, kind, through
from dacergnn.library_nodes.form import Expr, Gemm, Op, Ref, Shape, Statement, refs
from dacergnn.library_nodes.operators import op
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program.listing import Listing, map_refs, rebase
from dacergnn.sdfg_passes.regular import is_regular

ENDS: dict[str, tuple[str, ...]] = {
    space + part: ends
    for part in ("", *PARTS)
    for space, ends in {"E": ("src", "dst"), "U": ("src",), "V": ("dst",)}.items()
}
"""Paths from the rows of edges and pairs to their end points."""
_PAIRS = ("srcpair", "dstpair")
_PART = "part"  # stands for a part in the distributed expression


def new_array(listing: Listing, name: str, space: str, shape: Shape) -> str:
    """Declares an array, under another name if the name is that of an encoding."""
    return listing.add("part" if is_encoding(name) else name, space, shape)


def distribute(listing: Listing, statement: Statement, singular: Set[str] = frozenset()) -> bool:
    """Splits the linear functions of a statement where parts of their operands depend on different end points.

    Expressions that read an array of ``singular`` do not move to nodes.
    """
    rewriting = _Rewriting(listing, statement, singular)
    gemm = statement.gemm
    expr = rewriting.dot_products(statement.expr) if gemm is None else rewriting.linear(gemm)
    if expr is None or expr == statement.expr:
        return False
    listing.exchange(statement, *rewriting.statements, replace(statement, expr=expr))
    return True


@dataclass(frozen=True)
class _Part:
    """Describes an operand that takes the columns ``start`` to ``stop`` of the whole. ``via`` leads to the row on which
    it depends together with its weight: an end point, a pair, or "" for the edge itself."""

    expr: Expr
    start: int
    stop: int
    via: str


@dataclass
class _Distributed:
    """Holds the parts of a whole, and how they are combined."""

    parts: list[_Part] = field(default_factory=list[_Part])
    joined: bool = False  # parts of a concatenation, which share the work of the whole
    scaled: bool = False  # a factor that differs between heads


@dataclass
class _Rewriting:
    listing: Listing
    statement: Statement
    singular: Set[str]
    statements: list[Statement] = field(default_factory=list[Statement])

    # The two linear functions

    def linear(self, gemm: Gemm) -> Expr | None:
        """Returns the expression in place of a product of rows with weights; None if distribution gains nothing."""
        if gemm.kind != "linear":
            return None
        distributed, whole = self._worthwhile(gemm.x, gemm.w)
        shape, target = self._shape(Op("linear", (gemm.x, gemm.w))), self.listing.shape(self.statement.target)
        scale = () if gemm.scale is None else self.listing.shape(gemm.scale)
        if distributed is None or (shape != target and (distributed.scaled or scale)):
            return None
        width = self._shape(gemm.x)[-1]

        def part(item: _Part) -> Expr:
            weight = gemm.w if (item.start, item.stop) == (0, width) else self._rows_of(gemm.w, item)
            space, (x, w) = self._at(item, item.expr, weight)
            if not isinstance(x, Ref) or x.transposed:
                x = self._array("tmp", space, self._shape(x), x)
            name = f"{self.statement.target.name}_{item.via or 'edge'}"
            array = self._array(name, space, target, Op("linear", (x, w)))
            return replace(array, path=item.via if space != self.statement.space else "")

        total = _insert(whole, distributed.parts, part)
        return total if gemm.scale is None else op("mul", gemm.scale, total)

    def dot_products(self, expr: Expr) -> Expr:
        """Returns the expression with its dot products split."""
        if not isinstance(expr, Op):
            return expr
        if expr.name == "dot_prd":
            for x, weight in (expr.args, expr.args[::-1]):
                if self._shape(x) == self._shape(Op("mul", expr.args)):
                    distributed, whole = self._worthwhile(x, weight)
                    if distributed is not None:
                        return self._dot_product(distributed, whole, x, weight)
        return replace(expr, args=tuple(self.dot_products(a) for a in expr.args))

    def _dot_product(self, distributed: _Distributed, whole: Expr, x: Expr, weight: Expr) -> Expr:
        shape, rank = self._shape(x), len(self._shape(weight))

        def part(item: _Part) -> Expr:
            all_of_it = (item.start, item.stop) == (0, shape[-1]) or rank < len(shape)
            own = weight if all_of_it else self._columns_of(weight, item)
            space, (a, b) = self._at(item, item.expr, own)
            name = f"{self.statement.target.name}_{item.via or 'edge'}"
            array = self._array(name, space, shape[:-1], op("dot_prd", a, b))
            return replace(array, path=item.via if space != self.statement.space else "")

        return _insert(whole, distributed.parts, part)

    # Operands and their parts

    def _worthwhile(self, x: Expr, weight: Expr) -> tuple[_Distributed | None, Expr]:
        """Returns the distribution, or None if edges multiply no less, and the whole in terms of `_PART` operators.

        Parts that depend on a pair count like edges, but slightly cheaper if they come from a concatenation. These are
        as much work as the whole on edges, and less where compaction gives pairs rows of their own.
        """
        distributed = _Distributed()
        width = self._shape(x)[-1]
        whole = self._parts(distributed, x, weight, 0)
        work = 0.0
        for part in distributed.parts:
            at_node = part.via in ENDS[self.statement.space]
            discount = 0.999 if distributed.joined and part.via in _PAIRS else 1.0
            work += 0 if at_node else discount * (part.stop - part.start)
        return (distributed if work < width else None), whole

    def _parts(self, distributed: _Distributed, expr: Expr, weight: Expr, start: int) -> Expr:
        shape = self._shape(expr)
        for candidate in dict.fromkeys((expr, self._behind(expr))):
            via = self._hangs_on(candidate, weight)
            if via:
                return _leaf(distributed, candidate, start, shape, via)
        inner = self._behind(expr)
        if isinstance(inner, Op):
            args = inner.args
            shapes = [self._shape(a) for a in args]
            if inner.name in ("add", "sub", "neg") and all(s == shape for s in shapes):
                return op(inner.name, *(self._parts(distributed, a, weight, start) for a in args))
            if inner.name in ("mul", "div"):
                for x, factor in ((0, 1), (1, 0))[: 1 if inner.name == "div" else 2]:
                    if shapes[x] == shape and len(shapes[factor]) < len(shape):
                        distributed.scaled |= shapes[factor] != ()
                        part = self._parts(distributed, args[x], weight, start)
                        return op(inner.name, *((part, args[1]) if x == 0 else (args[0], part)))
            if inner.name == "concat":
                distributed.joined = True
                first = self._parts(distributed, args[0], weight, start)
                return op("add", first, self._parts(distributed, args[1], weight, start + shapes[0][-1]))
        return _leaf(distributed, expr, start, shape, "")

    def _behind(self, expr: Expr) -> Expr:
        """Returns the expression that an intermediate array holds, as seen from the statement's rows; else ``expr``."""
        if not isinstance(expr, Ref) or expr.transposed:
            return expr
        made, space = self.listing.producer(expr.name), self.statement.space
        if made is None or made.op != "=" or made.is_gemm or made.space not in ENDS or made.target != Ref(expr.name):
            return expr
        shape = self._shape(expr)
        paths = {r.path: along(space, expr.path, r.path) for r in made.reads}
        if self._shape(made.expr) != shape or self.listing.arrays[expr.name].shape != shape or None in paths.values():
            return expr
        return map_refs(made.expr, lambda r: replace(r, path=paths[r.path] or ""))

    def _hangs_on(self, expr: Expr, weight: Expr) -> str:
        """Returns the path to the end point, or else pair, on which an operand and its weight depend; else ""."""
        space = self.statement.space
        for via in ENDS[space] if is_regular(expr, self.singular) and is_regular(weight, self.singular) else ():
            if rebase(expr, space, via) is not None and rebase(weight, space, via) is not None:
                return via
        for via in _PAIRS if kind(space) == "E" else ():
            if self._depends(expr, via) and self._depends(weight, via):
                return via
        return ""

    def _depends(self, expr: Expr, via: str) -> bool:
        """Returns whether the edges of a pair share one value of the expression, also through intermediate edge
        values."""

        def same(ref: Ref) -> bool:
            if through(self.statement.space, via, ref.path) is not None:
                return True
            made = self.listing.producer(ref.name) if ref.path == "" else None
            own = made is not None and made.op == "=" and made.space == self.statement.space
            return own and made is not None and self._depends(made.expr, via)

        return all(same(r) for r in refs(expr))

    # New statements

    def _at(self, part: _Part, *exprs: Expr) -> tuple[str, list[Expr]]:
        """Returns the row space that a part moves to, and the expressions as seen from its rows."""
        space = self.statement.space
        if part.via not in ENDS[space]:
            return space, list(exprs)
        moved = [rebase(e, space, part.via) for e in exprs]
        return MAPS[space, part.via], [e for e in moved if e is not None]

    def _rows_of(self, weight: Ref, part: _Part) -> Ref:
        """Returns the rows of the weights that multiply a part of a concatenation."""
        dims = (part.start, part.stop)
        taken = Op("slice" if weight.transposed else "take_rows", (Ref(weight.name),), dims)
        name = f"{weight.name}_{part.start}_{part.stop}"
        array = self._array(name, self.listing.space(weight.name), self._shape(taken), taken)
        return replace(weight, name=array.name)

    def _columns_of(self, weight: Expr, part: _Part) -> Expr:
        """Returns columns of a dot product's other operand; of a weight as an array, whose gradient is narrow."""
        dims = (part.start, part.stop)
        if not isinstance(weight, Ref) or weight.path not in TYPE_PATHS or weight.transposed:
            return Op("slice", (weight,), dims)
        taken = Op("slice", (Ref(weight.name, view=weight.view),), dims)
        name = f"{weight.name}_{part.start}_{part.stop}"
        array = self._array(name, self.listing.space(weight.name), self._shape(taken), taken)
        return replace(array, path=weight.path)

    def _array(self, name: str, space: str, shape: Shape, expr: Expr) -> Ref:
        array = new_array(self.listing, name, space, shape)
        self.statements.append(Statement(space, Ref(array), "=", expr))
        return Ref(array)

    def _shape(self, expr: Expr) -> Shape:
        return shape_of(expr, self.listing.shape)


def _leaf(distributed: _Distributed, expr: Expr, start: int, shape: Shape, via: str) -> Expr:
    distributed.parts.append(_Part(expr, start, start + shape[-1], via))
    return Op(_PART, (), (len(distributed.parts) - 1,))


def _insert(whole: Expr, parts: Sequence[_Part], make: Callable[[_Part], Expr]) -> Expr:
    """Returns the distributed expression with the results of ``make`` in place of its parts."""

    def inserted(expr: Expr) -> Expr:
        if not isinstance(expr, Op):
            return expr
        if expr.name == _PART:
            return make(parts[expr.dims[0]])
        return replace(expr, args=tuple(inserted(a) for a in expr.args))

    return inserted(whole)
