"""Orders a product of nodes and a sum over edges: A (X W) or (A X) W.

(Cached Operator Reordering, 3.1, tables 1 and 2.)

Transform-first::

    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["out"] += e["a"] * e.src["h"]

Propagate-first; the gradient of W reads the sums, which are saved for it::

    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["sum"] += e["a"] * e.src.x
    for n in g.dst_nodes():
        n["out"] = linear(n["sum"], W)

The same holds for sums over outgoing edges, as gradients have them, and for products of sums that are scaled row by row
or added to other values of the nodes.

A sum of outer products with such sums has two orders, too (fused-propagate and split-propagate in table 1)::

    for n in g.dst_nodes():                          for n in g.src_nodes():
        dW += outer_prod(n["g"], n["sum"])               dW += outer_prod(n["sum_g"], n.x)

The second reads ``n["sum_g"] += e["a"] * e.dst["g"]``, which the gradient of x may share. It pays where the backward
would have to compute ``n["sum"]`` again. All of these are options for `aggregation_order`, which prices them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dacergnn.graph.spaces import MAPS, kind
from dacergnn.library_nodes.form import Expr, Gemm, Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes.cheapest import Option

_ENDS = ("src", "dst")


def node_orders(listing: Listing, statement: Statement) -> Iterator[Option]:
    """Yields the other order of a sum over edges of products, or of a product of such sums."""
    if kind(statement.space) == "E":
        yield from _propagate_first(listing, statement)
    else:
        yield from _transform_first(listing, statement)
        yield from at_other_ends(listing, statement)


@dataclass(frozen=True)
class _Sum:
    """Describes a sum over edges of rows of one end point, each times a value of the edge or of an end point."""

    statement: Statement
    scale: Ref | None
    rows: Ref

    def of(self, name: str, path: str | None = None) -> Expr:
        """Returns the summed expression, with the rows of another array in place of its own."""
        rows = Ref(name, self.rows.path if path is None else path)
        return rows if self.scale is None else Op("mul", (self.scale, rows))


def _sum(listing: Listing, statement: Statement | None) -> _Sum | None:
    if statement is None or statement.op != "+=" or statement.target.path not in _ENDS or statement.target.view:
        return None
    expr, scale = statement.expr, None
    if isinstance(expr, Op) and expr.name == "mul":
        known = [a for a in expr.args if isinstance(a, Ref)]
        single = [a for a in known if a.path in ("", *_ENDS) and size(listing.shape(a)) == 1]
        scale = min(single, key=lambda a: a.path, default=None)  # a value of the edge first
        expr = next((a for a in known if a.path and a is not scale), None)
        if scale is None:
            return None
        scale = replace(scale, view=() if listing.arrays[scale.name].shape else None)
    if not isinstance(expr, Ref) or expr.path not in _ENDS or expr.view:
        return None
    if listing.shape(expr) != listing.shape(statement.target):
        return None
    return _Sum(statement, scale, expr)


def _product(statement: Statement | None) -> Gemm | None:
    """Returns the product of a statement, if it multiplies own rows with the one weight of all nodes."""
    if statement is None or statement.target.path:
        return None
    gemm = statement.gemm
    if gemm is None or gemm.kind != "linear" or gemm.scale is not None:
        return None
    return gemm if gemm.w.path == "one" and not gemm.x.path and not gemm.x.view else None


def _propagate_first(listing: Listing, statement: Statement) -> Iterator[Option]:
    total = _sum(listing, statement)
    producer = None if total is None else listing.producer(total.rows.name)
    gemm = _product(producer)
    if total is None or gemm is None or producer is None or producer.target.view:
        return

    def apply(listing: Listing) -> None:
        nodes = MAPS[statement.space, statement.target.path]
        name = listing.add("sum", nodes, listing.shape(gemm.x))
        listing.exchange(
            statement,
            Statement(statement.space, Ref(name, statement.target.path), "+=", total.of(gemm.x.name)),
            Statement(nodes, Ref(statement.target.name), "=", Op("linear", (Ref(name), gemm.w))),
        )

    yield Option("propagate_first", apply)


def _transform_first(listing: Listing, statement: Statement) -> Iterator[Option]:
    gemm = _product(statement)
    if gemm is None:
        return
    shape = listing.shape(gemm.x)
    if not _Moving(listing.copy(), statement, gemm.w, shape).reaches_sums(gemm.x):
        return

    def apply(listing: Listing) -> None:
        moving = _Moving(listing, statement, gemm.w, shape)
        expr = moving.product(gemm.x)
        listing.exchange(statement, *moving.statements, replace(statement, expr=expr))

    yield Option("transform_first", apply)


def at_other_ends(listing: Listing, statement: Statement) -> Iterator[Option]:
    """Yields the sum of outer products over the nodes whose rows one operand sums up."""
    gemm = statement.gemm
    if gemm is None or gemm.kind != "outer_prod" or gemm.scale is not None or statement.target.path != "one":
        return
    operands = (gemm.x, gemm.w)
    if any(ref != Ref(ref.name) or listing.space(ref.name) != statement.space for ref in operands):
        return
    for summed, other in (operands, operands[::-1]):
        total = _sum(listing, listing.producer(summed.name))
        if total is None:
            continue

        def apply(listing: Listing, total: _Sum = total, summed: Ref = summed, other: Ref = other) -> None:
            edges, here, there = total.statement, total.statement.target.path, total.rows.path
            nodes = MAPS[edges.space, there]
            name = listing.add(f"sum_{other.name}", nodes, listing.shape(other))
            expr = total.of(other.name, here)
            exchanged = {summed: Ref(total.rows.name), other: Ref(name)}
            listing.exchange(
                statement,
                replace(edges, target=Ref(name, there), expr=expr),
                replace(statement, space=nodes, expr=Op("outer_prod", tuple(exchanged[ref] for ref in operands))),
            )

        yield Option(f"sum_{other.name}", apply)


@dataclass
class _Moving:
    """Moves the product of own rows with ``weight`` in front of the sums that make up these rows."""

    listing: Listing
    statement: Statement
    weight: Ref
    shape: Shape
    statements: list[Statement] = field(default_factory=list[Statement])
    sums: int = 0

    def reaches_sums(self, expr: Expr) -> bool:
        """Returns whether a product of ``expr`` can be moved in front of a sum over edges."""
        self.product(expr)
        return self.sums > 0

    def product(self, expr: Expr) -> Expr:
        """Returns the product of ``expr`` with the weight; ``expr`` is linear in the rows that it reads."""
        if isinstance(expr, Op):
            return replace(expr, args=tuple(self.product(a) if self._is_row(a) else a for a in expr.args))
        assert isinstance(expr, Ref)
        producer = self.listing.producer(expr.name)
        total = _sum(self.listing, producer)
        if total is not None:
            self.sums += 1
            rows = self._added(self.listing.space(total.rows.name), Op("linear", (Ref(total.rows.name), self.weight)))
            edges = total.statement
            name = self.listing.add(expr.name, self.listing.space(expr.name), self.listing.shape(self.statement.target))
            self.statements.append(replace(edges, target=replace(edges.target, name=name), expr=total.of(rows)))
            return Ref(name)
        if producer is not None and producer.op == "=" and not producer.target.view and self._is_linear(producer.expr):
            return self.product(producer.expr)
        return Ref(self._added(self.statement.space, Op("linear", (expr, self.weight))))

    def _added(self, space: str, product: Op) -> str:
        """Adds a product on rows of ``space`` as a statement; returns its array."""
        name = self.listing.add("rows", space, self.listing.shape(self.statement.target))
        self.statements.append(Statement(space, Ref(name), "=", product))
        return name

    def _is_linear(self, expr: Expr) -> bool:
        """Returns whether an expression is a linear function of own rows, with the same factor for all columns."""
        if isinstance(expr, Ref):
            return not expr.path and not expr.view
        if not isinstance(expr, Op):
            return False
        rows = tuple(a for a in expr.args if self._is_row(a))
        if expr.name == "mul":
            fits = len(rows) == 1
        elif expr.name == "div":
            fits = rows == expr.args[:1]
        else:
            fits = expr.name in ("add", "sub", "neg") and rows == expr.args
        return fits and all(map(self._is_linear, rows))

    def _is_row(self, expr: Expr) -> bool:
        """Returns whether an expression has the shape of the rows that are multiplied."""
        return shape_of(expr, self.listing.shape) == self.shape
