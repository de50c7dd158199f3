"""Reorders linear operators: products with weights move to where they are cheapest (Hector 3.2.3, Pigeon 3.4.1).

Precondition: an inter-operator SDFG whose operators hold one statement each.

A linear after a linear is one linear by the product of their weights::

    e["hs"] = linear(e.src.x, W[e.etype])                  r["F"] = compose(W[r], q[r])
    e["s"] = linear(e["hs"], q[e.etype])                   e["s"] = linear(e.src.x, F[e.etype])

Here, a `dot_prd` with a weight is a linear to one column. A product with one operand of a dot product may move to the
other operand, which may have fewer rows::

    e["k2"] = linear(e.src.k, A[e.etype])                  e["q2"] = linear(e.dst.q, A[e.etype].T)
    e["s"] = dot_prd(e["k2"], e.dst.q)                     e["s"] = dot_prd(e.src.k, e["q2"])

The operand may also differ by relation: each relation takes the side on which it has fewer pairs (`graph.spaces`). A
bias of a type between two products is multiplied separately. A bias of an operand of a dot product is multiplied with
the other operand.

Saves in the first case 2 E K M FLOPs, if ``hs`` is not needed anyway, for 2 R K M more. Every combination of orders is
priced for the whole program, so that a product that others need stays shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import ClassVar

import dace

from dacergnn.graph.spaces import FEWER, MAPS, PARTS, TYPE_PATHS, along, has_parts, through
from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, Statement, size
from dacergnn.program.listing import Listing, map_refs
from dacergnn.sdfg_passes.aggregation_order import AggregationOrder
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.bias import without_bias
from dacergnn.sdfg_passes.cheapest import Option, choose
from dacergnn.sdfg_passes.compact_materialization import compact
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.listing_cost import listing_seconds
from dacergnn.sdfg_passes.questions import Questions


@dataclass(frozen=True)
class LinearOperatorReordering(Pass):
    """Rewrites products in their cheapest order; counts these products.

    Where each relation joins one source type with one destination type, weights by node type can be multiplied with
    weights by relation.

    Args:
        merge_all: Makes every product of weights at any cost, as Hector does, and no other rewrite.
    """

    name: ClassVar[str] = "linear_operator_reordering"
    merge_all: bool = False

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        total = 0
        for asked in context.questions.rounds():  # a product of weights may be an operand of the next
            listing = Listing.of(sdfg)
            listing.settle()
            if self.merge_all:
                best, taken = _merge_all(listing, context.profile.single_typed)
            else:
                best, taken = _cheapest(listing, context, asked)
            if not taken:
                break
            total += taken
            best.write(sdfg)
        return total


def _cheapest(listing: Listing, context: Context, questions: Questions) -> tuple[Listing, int]:
    """Returns the listing with the cheapest combination of rewrites, and how many these are."""
    sizes, rates, single_typed = context.profile.sizes, context.rates, context.profile.single_typed
    later = replace(context, questions=Questions())  # trials for a price do not ask the plan

    def price(candidate: Listing) -> float:
        trial = candidate.copy()
        compact(trial, single_typed=single_typed)
        best, _ = AggregationOrder().cheapest(trial, later)
        return listing_seconds(best, sizes, rates)

    parted = has_parts(sizes)
    sites = {s.target.name: _options(listing, s, single_typed, parted) for s in listing.statements}
    open_sites = questions.open({name: options for name, options in sites.items() if options})
    return choose(listing, open_sites, price, questions)


def _merge_all(listing: Listing, single_typed: bool) -> tuple[Listing, int]:
    result, taken = listing.copy(), 0
    for statement in listing.statements:
        chain = _chain(result, statement, single_typed)
        if chain is not None:
            _merge(result, statement, chain)
            taken += 1
    result.settle()
    return result, taken


def _options(listing: Listing, statement: Statement, single_typed: bool, parted: bool) -> list[Option]:
    options: list[Option] = []
    chain = _chain(listing, statement, single_typed)
    if chain is not None:
        options.append(Option("merge_weights", lambda candidate, chain=chain: _merge(candidate, statement, chain)))
    if isinstance(statement.expr, Op) and statement.expr.name == "dot_prd":
        for side, (first, second) in zip("ab", (statement.expr.args, statement.expr.args[::-1]), strict=True):
            factors = _factors(listing, statement, first, second)
            if factors is None:
                continue
            options.append(Option(f"transpose_{side}", partial(_transpose, statement, first, second, factors)))
            if not parted or not _may_part(statement, factors):
                continue
            options.append(Option(f"by_relation_{side}", partial(_by_relation, statement, factors)))
            product = listing.producer(first.name) if isinstance(first, Ref) else None
            inner = None if product is None else _chain(listing, product, single_typed)
            if product is not None and inner is not None:
                merged = partial(_merged_by_relation, statement, first, second, product, inner)
                options.append(Option(f"merged_by_relation_{side}", merged))
    return options


# A linear after a linear


@dataclass(frozen=True)
class _Chain:
    """Describes ``linear(linear(x, a), b)`` as seen from a statement; ``rows`` is the row space of a times b."""

    x: Ref
    a: Ref
    b: Ref
    rows: str
    path: str  # from the statement to those rows
    constant: Expr | None  # b applied to a bias between the two


def _chain(listing: Listing, statement: Statement, single_typed: bool) -> _Chain | None:
    second = _linear_operands(listing, statement)
    if second is None:
        return None
    y, b = second
    product, bias = without_bias(listing, y)
    first = listing.row_producer(product.name)
    gemm = None if first is None else first.gemm
    if gemm is None or gemm.kind != "linear" or gemm.scale is not None or len(listing.shape(gemm.x)) != 1:
        return None
    constant: Expr | None = None
    if bias is not None:
        there = _from(bias, statement.space, y.path)
        if there is None:
            return None
        constant = map_refs(statement.expr, lambda ref: replace(there, view=listing.shape(y)) if ref == y else ref)
    x, a = _from(gemm.x, statement.space, y.path), _from(gemm.w, statement.space, y.path)
    if x is None or a is None:
        return None
    paths = {r.path for r in (a, b)} - {"one"}
    if len(paths) <= 1:
        path = paths.pop() if paths else "one"
    elif single_typed and "etype" in paths and paths <= {"etype", "srctype", "dsttype"}:
        path = "etype"
    else:
        return None
    rows = MAPS[statement.space, path]
    inner = [through(statement.space, path, r.path) for r in (a, b)]
    if None in inner:
        return None
    return _Chain(x, replace(a, path=inner[0] or ""), replace(b, path=inner[1] or ""), rows, path, constant)


def _linear_operands(listing: Listing, statement: Statement) -> tuple[Ref, Ref] | None:
    """Returns (y, b) of ``linear(y, b)``; a dot product with a weight is a linear to one column for each head."""
    gemm = statement.gemm
    if statement.op != "=" or statement.target.path:
        return None  # aggregation_order rewrites sums over edges
    if gemm is not None:
        plain = gemm.kind == "linear" and gemm.scale is None and gemm.w.view is None
        return (gemm.x, gemm.w) if plain else None
    expr = statement.expr
    if not isinstance(expr, Op) or expr.name != "dot_prd":
        return None
    for y, b in (expr.args, expr.args[::-1]):
        if isinstance(y, Ref) and isinstance(b, Ref) and b.path in TYPE_PATHS and y.path not in TYPE_PATHS:
            shape = listing.shape(b)
            if y.transposed or b.transposed:
                return None
            return (y, replace(b, view=(*shape, 1))) if shape == listing.shape(y) and len(shape) <= 2 else None
    return None


def _from(ref: Ref, space: str, via: str) -> Ref | None:
    """Returns a reference of the rows behind ``via`` as seen from rows of ``space``; None if no path leads there."""
    path = along(space, via, ref.path)
    return None if path is None else replace(ref, path=path)


def _merge(listing: Listing, statement: Statement, chain: _Chain) -> None:
    """Replaces two linears by one with the product of their weights."""
    expr = Op("compose", (chain.a, chain.b))
    columns = size(listing.shape(statement.target))
    name = listing.add(f"{chain.a.name}_{chain.b.name}", chain.rows, (size(listing.shape(chain.x)), columns))
    product = Statement(chain.rows, Ref(name), "=", expr)
    linear = Op("linear", (chain.x, Ref(name, chain.path)))
    if chain.constant is None:
        listing.exchange(statement, product, replace(statement, expr=linear))
        return
    rows = listing.arrays[statement.target.name]
    parts = [listing.add(statement.target.name, statement.space, rows.shape) for _ in range(2)]
    listing.exchange(
        statement,
        product,
        Statement(statement.space, Ref(parts[0]), "=", linear),
        Statement(statement.space, Ref(parts[1]), "=", chain.constant),
        replace(statement, expr=Op("add", (Ref(parts[0]), Ref(parts[1])))),
    )


# A product in a dot product


@dataclass(frozen=True)
class _Factors:
    """Describes ``dot_prd(linear(x, w) + constant, y)`` in a statement; ``row`` is y in the shape that w multiplies."""

    x: Ref
    w: Ref
    y: Ref
    row: Ref
    constant: Ref | None  # depends on the type of a row


def _factors(listing: Listing, statement: Statement, first: Expr, second: Expr) -> _Factors | None:
    """Returns the factors of a dot product whose first operand is a product; one head is as good as none."""
    if not isinstance(first, Ref) or not isinstance(second, Ref) or second.path in TYPE_PATHS:
        return None
    if first.transposed or second.transposed or listing.shape(first) != listing.shape(second):
        return None
    rows, bias = without_bias(listing, first)
    producer = listing.row_producer(rows.name)
    gemm = None if producer is None else producer.gemm
    if gemm is None or gemm.kind != "linear" or gemm.scale is not None:
        return None
    x, w = (_from(ref, statement.space, first.path) for ref in (gemm.x, gemm.w))
    constant = None if bias is None else _from(bias, statement.space, first.path)
    if constant is not None and listing.shape(constant) != listing.shape(first):
        constant = replace(constant, view=listing.shape(first))
    if x is None or w is None or (constant is None) != (bias is None):
        return None
    heads, own = listing.shape(first)[:-1], listing.shape(x)[:-1]
    if heads == own:
        return _Factors(x, w, second, second, constant)
    row = replace(second, view=listing.shape(second)[-1:])
    return _Factors(x, w, second, row, constant) if (prod(heads), own) == (1, ()) else None


def _from_other_side(
    listing: Listing, space: str, heads: Shape, factors: _Factors, constant: Ref | None
) -> tuple[list[Statement], Expr]:
    """Returns statements and the value of dot_prd(x, linear(y, W^T)) + dot_prd(constant, y) on rows of ``space``."""
    x, w, y, row = factors.x, factors.w, factors.y, factors.row
    product = Ref(listing.add(y.name, space, listing.shape(x)))
    made = [Statement(space, product, "=", Op("linear", (row, replace(w, transposed=not w.transposed))))]
    operands = (x, product)
    if heads != listing.shape(x)[:-1]:
        operands = tuple(replace(operand, view=(*heads, *listing.shape(x))) for operand in operands)
    value = Op("dot_prd", operands)
    if constant is None:
        return made, value
    offset = Ref(listing.add(constant.name, space, heads))
    made.append(Statement(space, offset, "=", Op("dot_prd", (constant, y))))
    return made, Op("add", (value, offset))


def _transpose(statement: Statement, first: Expr, second: Expr, factors: _Factors, listing: Listing) -> None:
    """Turns dot_prd(linear(x, W), y) into dot_prd(x, linear(y, W^T)); W may be a merged weight by now."""
    factors = _factors(listing, statement, first, second) or factors
    heads = listing.shape(statement.target)
    made, value = _from_other_side(listing, statement.space, heads, factors, factors.constant)
    listing.exchange(statement, *made, replace(statement, expr=value))


def _may_part(statement: Statement, factors: _Factors) -> bool:
    """Returns whether either operand of a dot product over edges may be the one that is multiplied."""
    ends = {factors.x.path, factors.y.path}
    return statement.space == "E" and factors.w.path == "etype" and ends == {"src", "dst"}


def _by_relation(statement: Statement, factors: _Factors, listing: Listing) -> None:
    """Computes dot_prd(linear(x, W), y) by parts of the edges, with products on the side of fewer pairs."""
    values: list[Ref] = []
    new: list[Statement] = []
    heads, constant = listing.shape(statement.target), factors.constant
    own = constant if constant is None else replace(constant, path=constant.path or "edge")
    for part in PARTS:
        space = "E" + part
        if factors.x.path == FEWER[part]:
            made, value = _from_own_side(listing, space, factors, own)
        else:
            made, value = _from_other_side(listing, space, heads, factors, own)
        part_value = Ref(listing.add(statement.target.name, space, heads))
        whole = Ref(listing.add(statement.target.name, "E", heads))
        new += [*made, Statement(space, part_value, "=", value)]
        new.append(Statement(space, replace(whole, path="edge"), "+=", part_value))
        values.append(whole)
    listing.exchange(statement, *new, replace(statement, expr=Op("add", tuple(values))))


def _from_own_side(
    listing: Listing, space: str, factors: _Factors, constant: Ref | None
) -> tuple[list[Statement], Expr]:
    """Returns statements and the value of dot_prd(linear(x, W) + constant, y) on rows of ``space``."""
    rows = listing.shape(factors.y)
    product = Ref(listing.add(factors.y.name, space, rows))
    made = [Statement(space, product, "=", Op("linear", (factors.x, factors.w)))]
    if constant is not None:
        total = Ref(listing.add(factors.y.name, space, rows))
        made.append(Statement(space, total, "=", Op("add", (product, constant))))
        product = total
    return made, Op("dot_prd", (product, factors.y))


def _merged_by_relation(
    statement: Statement, first: Expr, second: Expr, product: Statement, chain: _Chain, listing: Listing
) -> None:
    """Merges the products that make the first operand into one, then rewrites as `_by_relation` does."""
    if product in listing.statements:  # else another rewrite has merged it
        _merge(listing, product, chain)
    factors = _factors(listing, statement, first, second)
    if factors is not None and _may_part(statement, factors):
        _by_relation(statement, factors, listing)
