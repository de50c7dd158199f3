"""Chooses the aggregation order: transform each row first, or sum rows first and transform the sums.

(Cached Operator Reordering, tables 1 and 2, for one relation; here for typed products, at both end points.)

Precondition: an inter-operator SDFG whose operators hold one statement each, after compact_materialization.

Transform-first::

    for p in g.src_pairs():
        p["m"] = linear(p.src.x, W[p.etype])                   # U rows
    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["out"] += e["a"] * e.src_pair["m"]

Aggregate-first: the product is linear, so rows of one (destination, type) pair can be summed before it. The
program states a product over E rows; its kernel sums the rows of each pair, and multiplies V rows::

    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["out"] += e["a"] * linear(e.src.x, W[e.etype])       # V products

The same over (source, type) pairs serves gradients. A sum over edges of an outer product, or of a product that
flows to the sources, can first be formed over the pairs of either side::

    dW[e.etype] += e["a"] * outer_prod(e.src.x, e.dst.g)

    for p in g.src_pairs(): for e in p.outgoing_edges():
        p["sum"] += e["a"] * e.dst.g
    dW[p.etype] += outer_prod(p.src.x, p["sum"])               # U rows

Relations differ: in one, few sources reach many destinations; in its inverse, many sources reach few destinations.
The edges are then divided by relation into a part with fewer source pairs and a part with fewer destination pairs
(`graph.spaces`). Each part has its own order, and the sums of both are added::

    for p in g.src_pairs_s():
        p["m"] = linear(p.src.x, W[p.etype])                   # Us rows
    for n in g.dst_nodes(): for e in n.incoming_edges_s():
        n["out_s"] += e.edge["a"] * e.src_pair["m"]
    for n in g.dst_nodes(): for e in n.incoming_edges_d():
        n["out_d"] += e.edge["a"] * linear(e.src.x, W[e.etype])    # Vd products

Rows may have a bias of their type. Transform-first adds it to each product; aggregate-first adds it to the sums, times
the sum of the factors::

    for p in g.dst_pairs(): for e in p.incoming_edges():
        p["total"] += e["a"]
    for p in g.dst_pairs():
        p.dst["bias"] += p["total"] * b[p.etype]               # joins the sums of a * linear(x, W)

Saves: 2 (U - V) K M FLOPs and U M values in the first case, 2 (E - U) K M FLOPs in the second. With parts, products
have as many rows as the sum over relations of min(U, V). Equal sums are formed once. All combinations are priced with
the sizes of the graph; the cheapest is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import dace

from dacergnn.graph.spaces import FEWER, MAPS, PARTS, along, has_parts, kind, part, through
from dacergnn.library_nodes.form import Op, Ref, Statement, size
from dacergnn.program.listing import Listing, rebase
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.bias import without_bias
from dacergnn.sdfg_passes.cheapest import Option, choose
from dacergnn.sdfg_passes.compact_materialization import compact
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.differentiate import Derivation, derive
from dacergnn.sdfg_passes.given_order import penalty
from dacergnn.sdfg_passes.listing_cost import listing_seconds
from dacergnn.sdfg_passes.matrix_orders import WIDEST, WIDEST_HELD, matrix_orders
from dacergnn.sdfg_passes.node_orders import at_other_ends, node_orders
from dacergnn.sdfg_passes.questions import Questions
from dacergnn.target import find

HANDED_ON = 1.5e-5
"""Seconds that a call takes to allocate a saved array and to hand it to the backward."""
DOUBT = 0.02
"""Share of the price that other orders must save; prices are not exact enough for less, for example on fused loops."""
_OPPOSITE = {"src": "dstpair", "dst": "srcpair"}


@dataclass(frozen=True)
class AggregationOrder(Pass):
    """Rewrites every sum over edges in its cheapest order; counts these sums.

    Args:
        order: "transform_first" or "aggregate_first" wherever that is possible, at any cost, or "auto".
        wrt: Inputs that gradients will be generated for; the price includes the programs of these gradients.
        caching: With "recompute_all", the price includes that the backward computes saved arrays again.
    """

    name: ClassVar[str] = "aggregation_order"
    order: str = "auto"
    wrt: tuple[str, ...] = ()
    caching: str = "cache_all"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        best, taken = self.cheapest(Listing.of(sdfg), context)
        if taken:
            best.write(sdfg)
        return taken

    def cheapest(self, listing: Listing, context: Context) -> tuple[Listing, int]:
        """Returns the listing with the cheapest combination of orders, and the number of rewritten statements."""
        total, price = 0, partial(self._seconds, context)
        parted, doubt = has_parts(context.profile.sizes), DOUBT if self.order == "auto" else 0.0
        widest = WIDEST if find(context.implementation).makes_rows else WIDEST_HELD
        for asked in context.questions.rounds():  # a sum that is transformed afterwards may go through pairs
            listing, taken = choose(listing, asked.open(_sites(listing, parted, widest)), price, asked, doubt)
            if not taken:
                break
            total += taken
        return listing, total

    def _seconds(self, context: Context, listing: Listing) -> float:
        """Returns the price of a program in seconds, including the programs of its gradients."""
        sizes, rates = context.profile.sizes, context.rates
        asked_for = penalty(listing, self.order)
        if not self.wrt:
            return listing_seconds(listing, sizes, rates) + asked_for
        gradient = derive(listing, self.wrt)
        compact(gradient.backward)
        if self.caching == "recompute_all":
            parts = (listing, _cheapest_again(gradient, context))
        else:
            parts = (gradient.forward, gradient.backward)
            asked_for += HANDED_ON * len(gradient.saved)
        return asked_for + sum(listing_seconds(part, sizes, rates) for part in parts)


def _cheapest_again(gradient: Derivation, context: Context) -> Listing:
    """Returns the backward that computes saved arrays again, in its cheapest order if it has another one."""
    again = replace(gradient.forward.copy(), outputs=tuple(gradient.saved))
    again.drop_unused()
    backward = gradient.backward
    whole = replace(
        backward.copy(),
        arrays={**again.arrays, **backward.arrays},
        inputs=tuple(dict.fromkeys((*again.inputs, *(n for n in backward.inputs if again.producer(n) is None)))),
        statements=[*again.statements, *backward.statements],
    )
    if not any(option for statement in whole.statements for option in at_other_ends(whole, statement)):
        return whole
    return AggregationOrder().cheapest(whole, replace(context, questions=Questions()))[0]


def _sites(listing: Listing, parted: bool, widest: int) -> dict[str, list[Option]]:
    """Returns other ways to compute each sum over edges, by its array; by relation only if both parts have edges."""
    sites: dict[str, list[Option]] = {}
    for statement in listing.statements:
        options = [*node_orders(listing, statement)]
        if kind(statement.space) == "E" and statement.op == "+=" and statement.target.path:
            options += [
                *_aggregate_first(listing, statement),
                *_transform_first(listing, statement),
                *_through_pairs(listing, statement),
                *matrix_orders(listing, statement, widest),
                *(_by_relation(listing, statement) if parted else ()),
            ]
        if options:
            sites[statement.target.name] = options
    return sites


def _aggregate_first(listing: Listing, statement: Statement) -> list[Option]:
    """Returns the option to multiply sums, in place of the rows of pairs that the statement gathers."""
    product_sum = _product_of_sums(listing, statement)
    if product_sum is None:
        return []
    new, constant = product_sum

    def apply(listing: Listing) -> None:
        if constant is None:
            listing.exchange(statement, new)
            return
        target = statement.target
        product, offset = _like(listing, target), _like(listing, target)
        made = _sum_of_constants(listing, new, constant, offset)
        total = Op("add", (Ref(product.name), Ref(offset.name)))
        last = Statement(listing.space(target.name), Ref(target.name), "=", total)
        listing.exchange(statement, replace(new, target=product), *made, last)

    return [Option("aggregate_first", apply)]


def _product_of_sums(listing: Listing, statement: Statement) -> tuple[Statement, Ref | None] | None:
    """Returns a product over edges in place of a sum of products of pairs, and the constant added to each of these."""
    scale, rows = _scaled(statement)
    side = _OPPOSITE.get(statement.target.path)
    if rows is None or rows.path != side:
        return None
    product_rows, constant = without_bias(listing, Ref(rows.name))
    if constant is not None and constant.path != "etype":
        return None
    producer = listing.producer(product_rows.name)
    gemm = None if producer is None or producer.op != "=" else producer.gemm
    if gemm is None or producer is None or gemm.kind != "linear" or gemm.w.path != "etype":
        return None
    if gemm.scale is not None:
        return None  # this scale has rows of pairs, but a product over edges takes a scale of edges
    if scale is not None and size(listing.shape(scale)) == 1:
        scale = replace(scale, view=() if listing.shape(scale) else None)
    product = Op("linear", (_from_edge(gemm.x, rows.path), gemm.w))
    if scale is not None and listing.shape(scale) not in ((), listing.shape(gemm.x)[:-1]):
        return None  # the scale has heads that the product lacks
    if size(listing.shape(statement.target)) != size(listing.shape(rows)):
        return None
    new = replace(statement, expr=product if scale is None else Op("mul", (scale, product)))
    if new.gemm is None or (constant is not None and scale is None):
        return None
    if constant is not None and listing.shape(constant) != listing.shape(statement.target):
        return None  # sums of the two are added, so their shapes must agree
    return new, constant


def _sum_of_constants(listing: Listing, product: Statement, constant: Ref, target: Ref) -> list[Statement]:
    """Returns statements that sum ``scale * constant`` over the edges of a product: first the scales of each pair."""
    gemm = product.gemm
    side = {"src": "srcpair", "dst": "dstpair"}[target.path]
    assert gemm is not None and gemm.scale is not None
    pairs = MAPS[product.space, side]
    scales = Ref(listing.add(gemm.scale.name, pairs, listing.shape(gemm.scale)))
    return [
        Statement(product.space, replace(scales, path=side), "+=", gemm.scale),
        Statement(pairs, target, "+=", Op("mul", (scales, constant))),
    ]


def _transform_first(listing: Listing, statement: Statement, constant: Ref | None = None) -> list[Option]:
    """Returns the option to gather products of pairs, in place of multiplying sums; adds ``constant`` to each."""
    gemm, side = statement.gemm, _OPPOSITE.get(statement.target.path)
    if gemm is None or side is None or gemm.kind != "linear" or gemm.w.path != "etype":
        return []
    product = rebase(Op("linear", (gemm.x, gemm.w)), statement.space, side)
    if product is None:
        return []
    shape, pairs = listing.shape(statement.target), MAPS[statement.space, side]

    def apply(listing: Listing) -> None:
        rows = Ref(listing.add("rows", pairs, shape))
        made = [Statement(pairs, rows, "=", product)]
        if constant is not None:
            made.append(Statement(pairs, Ref(listing.add("rows", pairs, shape)), "=", Op("add", (rows, constant))))
        gathered = replace(made[-1].target, path=side)
        expr = gathered if gemm.scale is None else Op("mul", (gemm.scale, gathered))
        listing.exchange(statement, *made, replace(statement, expr=expr))

    return [Option("transform_first", apply)]


def _from_edge(ref: Ref, via: str) -> Ref:
    """Turns a reference from the rows of a pair into one from edges, which reach the pair by ``via``."""
    return replace(ref, path=ref.path or via)


def _scaled(statement: Statement) -> tuple[Ref | None, Ref | None]:
    """Splits ``s * x`` or ``x`` into (s, x), where s is a value of the own row; returns (None, None) for others."""
    expr = statement.expr
    if isinstance(expr, Ref):
        return None, expr
    if isinstance(expr, Op) and expr.name == "mul":
        for scale, rows in (expr.args, expr.args[::-1]):
            if (
                isinstance(scale, Ref)
                and isinstance(rows, Ref)
                and scale.path == "" != rows.path
                and not rows.transposed
            ):
                return scale, rows
    return None, None


def _through_pairs(
    listing: Listing, statement: Statement, sides: Sequence[str] = ("srcpair", "dstpair")
) -> list[Option]:
    """Returns options to sum inside (end point, type) pairs first, if all other operands depend on the pair alone."""
    gemm = statement.gemm
    if gemm is None:
        return []
    options: list[Option] = []
    for via in sides:
        path = through(statement.space, via, statement.target.path)
        inner = [r for r in (gemm.x, gemm.w) if through(statement.space, via, r.path) is None]
        if path is None or len(inner) != 1 or (gemm.kind == "linear" and inner[0] != gemm.x):
            continue
        options.append(Option(f"through_{via}", partial(_sum_first, statement, inner[0], gemm.scale, via, path)))
    return options


def _sum_first(statement: Statement, inner: Ref, scale: Ref | None, via: str, path: str, listing: Listing) -> None:
    shape, pairs = listing.shape(inner), MAPS[statement.space, via]
    name = listing.add("sum", pairs, shape)
    row = Op("mul", (scale, inner)) if scale is not None else inner
    gemm = statement.gemm
    assert gemm is not None
    operands = tuple(Ref(name, via) if r == inner else r for r in (gemm.x, gemm.w))
    product = rebase(Op(gemm.kind, operands), statement.space, via)
    assert product is not None
    listing.exchange(
        statement,
        Statement(statement.space, Ref(name, via), "+=", row),
        Statement(pairs, replace(statement.target, path=path), "+=" if path else "=", product),
    )


# By relation


def _by_relation(listing: Listing, statement: Statement) -> list[Option]:
    """Returns the options to give each part of the edges the order in which its products have the fewest rows."""
    product_sum = (statement, None) if statement.is_gemm else _product_of_sums(listing, statement)
    gemm = None if product_sum is None else product_sum[0].gemm
    target = statement.target
    if product_sum is None or gemm is None or statement.space != "E":
        return []
    if listing.space(target.name) != MAPS["E", target.path]:
        return []
    if any(not ref.path or along("Es", "edge", ref.path) is None for ref in (gemm.x, gemm.w, target)):
        return []  # the edges and pairs of a part are other rows than those of the whole
    whole, constant = product_sum
    orders = [_orders(listing, replace(whole, space="E" + suffix), constant) for suffix in PARTS]

    def apply(listing: Listing, choice: int) -> None:
        scales: list[Statement] = []
        sums: list[Statement] = []
        for suffix in PARTS:
            space, expr = "E" + suffix, Op(gemm.kind, (gemm.x, gemm.w))
            if gemm.scale is not None:
                scale = listing.add(gemm.scale.name, space, listing.arrays[gemm.scale.name].shape)
                scales.append(Statement(space, Ref(scale), "=", Ref(gemm.scale.name, "edge")))
                expr = Op("mul", (Ref(scale, view=gemm.scale.view), expr))
            sums.append(Statement(space, _like(listing, target), "+=", expr))
        offsets: list[Statement] = []
        for own in sums:
            if constant is not None and not _is_transformed_first(own):
                offsets += _sum_of_constants(listing, own, constant, _like(listing, target))
        terms = [s.target for s in (*sums, *offsets) if s.target.path == target.path]
        total = Op("add", (Ref(terms[0].name), Ref(terms[1].name)))
        for term in terms[2:]:
            total = Op("add", (total, Ref(term.name)))
        last = Statement(MAPS["E", target.path], Ref(target.name), "=", total)
        listing.exchange(statement, *scales, *sums, *offsets, last)
        for own in sums:
            _orders(listing, own, constant)[choice].apply(listing)

    names = ("by_relation", "by_relation_through_pairs")
    return [Option(names[k], partial(apply, choice=k)) for k in range(min(map(len, orders)))]


def _like(listing: Listing, target: Ref) -> Ref:
    """Adds an array with rows like those of another; returns a reference that reaches it in the same way."""
    rows = listing.arrays[target.name]
    return replace(target, name=listing.add(target.name, rows.space, rows.shape))


def _is_transformed_first(statement: Statement) -> bool:
    """Returns whether a part has fewer pairs at the end points whose rows are multiplied than at those that get
    sums."""
    return _OPPOSITE[statement.target.path] == f"{FEWER[part(statement.space)]}pair"


def _orders(listing: Listing, statement: Statement, constant: Ref | None = None) -> list[Option]:
    """Returns the orders with the fewest rows for a product over a part: sums of pairs in its kernel, or stored."""
    gemm, fewest = statement.gemm, f"{FEWER[part(statement.space)]}pair"
    first = _transform_first(listing, statement, constant)
    through_pairs = _through_pairs(listing, statement, (fewest,))
    if gemm is None or gemm.kind == "outer_prod":
        return through_pairs * 2
    if not first or _is_transformed_first(statement):
        return first * 2
    return [Option("in_kernel", lambda listing: None), *through_pairs]
