"""Aggregation order: transform each row first, or sum rows first and transform the sums.

(Cached Operator Reordering, tables 1 and 2, for one relation; here for typed products, on both sides.)

Precondition: an inter-operator SDFG whose operators hold one statement each, after compact_materialization.

Transform-first::

    for p in g.src_pairs():
        p["m"] = linear(p.src.x, W[p.etype])                   # U rows
    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["out"] += e["a"] * e.src_pair["m"]

Aggregate-first: the product is linear, so rows of one (destination, type) pair are summed before it. The
product over E rows says so; its kernel sums what shares a pair, and multiplies V rows::

    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["out"] += e["a"] * linear(e.src.x, W[e.etype])       # V products

The mirror over (source, type) pairs serves gradients: a sum over edges of an outer product, or of a product
that flows to the sources, factors through the pairs of either side::

    dW[e.etype] += e["a"] * outer_prod(e.src.x, e.dst.g)

    for p in g.src_pairs(): for e in p.outgoing_edges():
        p["sum"] += e["a"] * e.dst.g
    dW[p.etype] += outer_prod(p.src.x, p["sum"])               # U rows

Relations differ: in one, few sources reach many destinations, in its inverse many reach few. The edges are then
divided by relation into the part with fewer pairs of sources and the part with fewer pairs of destinations
(`graph.spaces`), each in its own order, and the sums of both are added::

    for p in g.src_pairs_s():
        p["m"] = linear(p.src.x, W[p.etype])                   # Us rows
    for n in g.dst_nodes(): for e in n.incoming_edges_s():
        n["out_s"] += e.edge["a"] * e.src_pair["m"]
    for n in g.dst_nodes(): for e in n.incoming_edges_d():
        n["out_d"] += e.edge["a"] * linear(e.src.x, W[e.etype])    # Vd products

Saves: 2 (U - V) K M FLOPs and U M values in the first case, 2 (E - U) K M FLOPs in the second; with parts, products
have as many rows as the sum over relations of min(U, V). Equal sums are formed once. All combinations are priced with
the sizes of the graph; the cheapest is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import dace

from dacergnn.config import TYPICAL_RATES, Rates
from dacergnn.graph.spaces import FEWER, MAPS, PARTS, along, has_parts, kind, part, through
from dacergnn.library_nodes.form import Op, Ref, Statement, match_gemm, size
from dacergnn.program.listing import Listing, rebase
from dacergnn.sdfg_passes.choice import Option, choose
from dacergnn.sdfg_passes.choices import Choices
from dacergnn.sdfg_passes.compact_materialization import compact
from dacergnn.sdfg_passes.differentiate import derive
from dacergnn.sdfg_passes.given_order import penalty
from dacergnn.sdfg_passes.listing_cost import listing_seconds
from dacergnn.sdfg_passes.node_orders import node_orders

HANDED_ON = 1.5e-5
"""Seconds in which a call allocates an array that is saved, and hands it to the backward."""
DOUBT = 0.02
"""Share of the price that other orders must save: less is within what prices do not see, such as loops that fuse."""
_OPPOSITE = {"src": "dstpair", "dst": "srcpair"}


def aggregation_order(
    sdfg: dace.SDFG,
    sizes: Mapping[str, int],
    rates: Rates = TYPICAL_RATES["cpu"],
    wrt: Sequence[str] = (),
    order: str = "auto",
    choices: Choices | None = None,
    caching: str = "cache_all",
) -> int:
    """Rewrite every sum over edges in its cheapest order; returns how many were rewritten.

    Args:
        sizes: Rows of every row space of the graph that the program is compiled for.
        rates: What the machine does in a second.
        wrt: Inputs that gradients will be generated for; their programs are part of the price.
        order: "transform_first" or "aggregate_first" wherever that is possible, whatever it costs.
        choices: Decides on the sums that its plan knows.
        caching: With "recompute_all" the backward computes again what others save, at its price.
    """
    listing = Listing.of(sdfg)
    best, taken = cheapest_order(listing, sizes, rates, wrt, order, choices, caching)
    if taken:
        best.write(sdfg)
    return taken


def cheapest_order(
    listing: Listing,
    sizes: Mapping[str, int],
    rates: Rates,
    wrt: Sequence[str] = (),
    order: str = "auto",
    choices: Choices | None = None,
    caching: str = "cache_all",
) -> tuple[Listing, int]:
    """The cheapest combination of orders, and the number of statements that it rewrites."""

    def price(found: Listing) -> float:
        asked_for = penalty(found, order)
        if not wrt:
            return listing_seconds(found, sizes, rates) + asked_for
        gradient = derive(found, wrt)
        compact(gradient.backward)
        if caching == "recompute_all":
            again = replace(gradient.forward.copy(), outputs=tuple(gradient.saved))
            again.drop_unused()
            parts = (found, again, gradient.backward)
        else:
            parts = (gradient.forward, gradient.backward)
            asked_for += HANDED_ON * len(gradient.saved)
        return asked_for + sum(listing_seconds(part, sizes, rates) for part in parts)

    total = 0
    parted, doubt = has_parts(sizes), DOUBT if order == "auto" else 0.0
    for asked in (choices or Choices()).rounds():  # a sum that is transformed afterwards may go through pairs
        listing, taken = choose(listing, asked.open(_sites(listing, parted)), sizes, rates, price, asked, doubt)
        if not taken:
            break
        total += taken
    return listing, total


def _sites(listing: Listing, parted: bool) -> dict[str, list[Option]]:
    """For every sum over edges the ways to compute it besides the present one; by parts where both have edges."""
    sites: dict[str, list[Option]] = {}
    for statement in listing.statements:
        options = [*node_orders(listing, statement)]
        if kind(statement.space) == "E" and statement.op == "+=" and statement.target.path:
            options += [
                *_aggregate_first(listing, statement),
                *_transform_first(listing, statement),
                *_through_pairs(listing, statement),
                *(_by_relation(listing, statement) if parted else ()),
            ]
        if options:
            sites[statement.target.name] = options
    return sites


def _aggregate_first(listing: Listing, statement: Statement) -> list[Option]:
    """Multiply the sums in place of the rows of pairs that the statement gathers."""
    new = _product_of_sums(listing, statement)
    return [] if new is None else [Option("aggregate_first", lambda listing: listing.exchange(statement, new))]


def _product_of_sums(listing: Listing, statement: Statement) -> Statement | None:
    """A sum of rows of pairs that are products, as a product over edges."""
    scale, rows = _scaled(statement)
    side = _OPPOSITE.get(statement.target.path)
    producer = None if rows is None or rows.path != side else listing.producer(rows.name)
    gemm = None if producer is None or producer.op != "=" else match_gemm(producer)
    if rows is None or gemm is None or producer is None or gemm.kind != "linear" or gemm.w.path != "etype":
        return None
    if gemm.scale is not None:
        return None  # its rows are those of pairs, a product over edges takes the scale of the edge
    if scale is not None and size(listing.shape(scale)) == 1:
        scale = replace(scale, view=() if listing.shape(scale) else None)
    product = Op("linear", (_from_edge(gemm.x, rows.path), gemm.w))
    if scale is not None and listing.shape(scale) not in ((), listing.shape(gemm.x)[:-1]):
        return None  # heads that the product does not know
    if size(listing.shape(statement.target)) != size(listing.shape(rows)):
        return None
    new = replace(statement, expr=product if scale is None else Op("mul", (scale, product)))
    return None if match_gemm(new) is None else new


def _transform_first(listing: Listing, statement: Statement) -> list[Option]:
    """Gather rows of pairs that are multiplied once each, in place of multiplying the sums."""
    gemm, side = match_gemm(statement), _OPPOSITE.get(statement.target.path)
    if gemm is None or side is None or gemm.kind != "linear" or gemm.w.path != "etype":
        return []
    product = rebase(Op("linear", (gemm.x, gemm.w)), statement.space, side)
    if product is None:
        return []
    shape, pairs = listing.shape(statement.target), MAPS[statement.space, side]

    def apply(listing: Listing) -> None:
        rows = Ref(listing.add("rows", pairs, shape), side)
        expr = rows if gemm.scale is None else Op("mul", (gemm.scale, rows))
        listing.exchange(statement, Statement(pairs, Ref(rows.name), "=", product), replace(statement, expr=expr))

    return [Option("transform_first", apply)]


def _from_edge(ref: Ref, via: str) -> Ref:
    """A reference that rows of a pair make, as the edge makes it."""
    return replace(ref, path=ref.path or via)


def _scaled(statement: Statement) -> tuple[Ref | None, Ref | None]:
    """(s, x) of ``s * x`` or ``x``, s an own-row value."""
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
    """Sum inside each (end point, type) pair first, where the rest of the statement depends on the pair alone."""
    gemm = match_gemm(statement)
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
    gemm = match_gemm(statement)
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
    """Each part of the edges in the order in which its products have the fewest rows."""
    whole = statement if match_gemm(statement) is not None else _product_of_sums(listing, statement)
    gemm = None if whole is None else match_gemm(whole)
    target = statement.target
    if whole is None or gemm is None or statement.space != "E" or listing.space(target.name) != MAPS["E", target.path]:
        return []
    if any(not ref.path or along("Es", "edge", ref.path) is None for ref in (gemm.x, gemm.w, target)):
        return []  # values of edges and of pairs, which are others in a part
    orders = [_orders(listing, replace(whole, space="E" + suffix)) for suffix in PARTS]

    def apply(listing: Listing, choice: int) -> None:
        scales: list[Statement] = []
        sums: list[Statement] = []
        for suffix in PARTS:
            space, expr = "E" + suffix, Op(gemm.kind, (gemm.x, gemm.w))
            if gemm.scale is not None:
                scale = listing.add(gemm.scale.name, space, listing.arrays[gemm.scale.name].shape)
                scales.append(Statement(space, Ref(scale), "=", Ref(gemm.scale.name, "edge")))
                expr = Op("mul", (Ref(scale, view=gemm.scale.view), expr))
            rows = listing.arrays[target.name]
            name = listing.add(target.name, rows.space, rows.shape)
            sums.append(Statement(space, replace(target, name=name), "+=", expr))
        total = Op("add", tuple(Ref(s.target.name) for s in sums))
        listing.exchange(statement, *scales, *sums, Statement(MAPS["E", target.path], Ref(target.name), "=", total))
        for own in sums:
            _orders(listing, own)[choice].apply(listing)

    names = ("by_relation", "by_relation_through_pairs")
    return [Option(names[k], partial(apply, choice=k)) for k in range(min(map(len, orders)))]


def _orders(listing: Listing, statement: Statement) -> list[Option]:
    """Orders for a product over the edges of a part, with the fewest rows: sums of pairs in the kernel, or kept."""
    gemm, fewest = match_gemm(statement), f"{FEWER[part(statement.space)]}pair"
    first = _transform_first(listing, statement)
    through_pairs = _through_pairs(listing, statement, (fewest,))
    if gemm is None or gemm.kind == "outer_prod":
        return through_pairs * 2
    if not first or _OPPOSITE[statement.target.path] == fewest:
        return first * 2
    return [Option("in_kernel", lambda listing: None), *through_pairs]
