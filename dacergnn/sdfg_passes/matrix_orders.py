"""Orders a product with matrices of edges and a sum over edges: multiply each row, or sum outer products first.

A network computes a matrix for each edge, whose last layer is linear. Multiply first, with a matrix of K M values for
each edge::

    for e in g.edges():
        e["W"] = linear(e["h"], A.T) + b
    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["out"] += sum_heads(e.src["x"] * reshape(e["W"], K, M))

The messages are linear in the outer product of h and x, and so are their sums. Sum first, with no matrix of an edge::

    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["sums"] += outer_prod(e.src["x"], e["h"])
        n["sum"] += e.src["x"]
    for n in g.dst_nodes():
        n["out"] = linear(reshape(n["sums"], K * D), A') + linear(n["sum"], reshape(b, K, M))

where A' holds the values of A in the order of the outer product. A sum of ``e.src["x"] * reshape(e["W"], K, M)``, whose
rows nobody has added up yet, has this order, too. With weights of a type, pairs of end point and type take the place of
nodes.

Saves: E K M values of memory, and 2 (E - N) K M D FLOPs, where D is the number of values of h. This is an option for
`aggregation_order`, which prices it; `wide_rows` sees to it that no sums of outer products are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from dacergnn.graph.spaces import MAPS, through
from dacergnn.library_nodes.form import Expr, Op, Ref, Statement
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes.bias import without_bias
from dacergnn.sdfg_passes.cheapest import Option

_GROUPS = {"one": {"src": "src", "dst": "dst"}, "etype": {"src": "srcpair", "dst": "dstpair"}}
"""The rows that sum outer products, by the path to the weights and by that of the result."""
WIDEST, WIDEST_HELD = 1 << 14, 1 << 10
"""Most values of an outer product: threads hold a row of sums, and warps of devices hold it in registers."""


@dataclass(frozen=True)
class _MatrixProduct:
    """Describes a sum over edges of products of rows ``x`` with the matrices ``linear(h, w) + bias``.

    ``added`` tells whether the sum has row shape (M,); if not, it has (K, M), and something else adds up the rows.
    """

    statement: Statement
    x: Ref
    h: Ref
    w: Ref
    bias: Ref | None
    shape: tuple[int, int]
    added: bool


def matrix_orders(listing: Listing, statement: Statement, widest: int = WIDEST) -> Iterator[Option]:
    """Yields the option to sum outer products of at most ``widest`` values, in place of products with matrices."""
    found = _matrix_product(listing, statement)
    if found is not None and found.shape[0] * listing.shape(found.h)[0] <= widest:
        yield Option("sum_outer_products", partial(_sum_outer_products, found))


def _matrix_product(listing: Listing, statement: Statement) -> _MatrixProduct | None:
    target, expr = statement.target, statement.expr
    added = isinstance(expr, Op) and expr.name == "sum_heads"
    if isinstance(expr, Op) and added:
        expr = expr.args[0]
    if not isinstance(expr, Op) or expr.name != "mul" or target.view or target.path not in ("src", "dst"):
        return None
    if listing.space(target.name) != MAPS[statement.space, target.path]:
        return None
    for x, matrix in (expr.args, expr.args[::-1]):
        if not isinstance(x, Ref) or not isinstance(matrix, Ref) or matrix.path or x.transposed or matrix.transposed:
            continue
        rows, bias = without_bias(listing, Ref(matrix.name))
        made = listing.row_producer(rows.name)
        gemm = None if made is None or made.space != statement.space else made.gemm
        shape = listing.shape(matrix)
        if gemm is None or gemm.kind != "linear" or gemm.scale is not None or gemm.w.path not in _GROUPS:
            continue
        if len(shape) != 2 or listing.shape(x) != shape[:1] or len(listing.shape(gemm.x)) != 1:
            continue
        if (bias is not None and bias.path not in ("one", gemm.w.path)) or not (added or gemm.w.transposed):
            continue
        return _MatrixProduct(statement, x, gemm.x, gemm.w, bias, (shape[0], shape[1]), added)
    return None


def _sum_outer_products(product: _MatrixProduct, listing: Listing) -> None:
    statement, (k, m), depth = product.statement, product.shape, listing.shape(product.h)[0]
    target, edges, types = statement.target, statement.space, product.w.path
    via = _GROUPS[types][target.path]
    rows = MAPS[edges, via]
    path = through(edges, via, target.path) or ""
    made: list[Statement] = []

    def weight(source: Ref, shape: tuple[int, ...], view: tuple[int, ...], transposed: bool = False) -> Ref:
        """Returns weights in another shape, which products need to be declared."""
        space = MAPS[edges, source.path]
        copy = Ref(listing.add(source.name, space, shape))
        made.append(Statement(space, copy, "=", replace(source, path="", view=view, transposed=transposed)))
        return replace(copy, path=source.path)

    def sums(name: str, shape: tuple[int, ...], value: Expr) -> Ref:
        array = Ref(listing.add(name, rows, shape))
        made.append(Statement(edges, replace(array, path=via), "+=", value))
        return array

    source = replace(product.w, transposed=False)
    if product.w.transposed:
        weights = weight(source, (k, depth, m), (k, m, depth), True)
        outer, operands = (k, depth), (product.x, product.h)
    else:
        weights, outer, operands = source, (depth, k), (product.h, product.x)
    total = sums("sums", outer, Op("outer_prod", operands))
    if product.added:
        weights = weight(weights, (k * depth, m), (k * depth, m))
        total = replace(total, view=(k * depth,))
    terms: list[Expr] = [Op("linear", (total, weights))]
    if product.bias is not None:
        bias, row = weight(product.bias, (k, m), (k, m)), sums("sum", (k,), product.x)
        terms.append(Op("linear", (row, bias)) if product.added else Op("mul", (row, bias)))
    results = [Ref(target.name, path)]
    if len(terms) > 1:
        arrays = listing.arrays[target.name]
        results = [Ref(listing.add(target.name, *arrays), path) for _ in terms]
    made += [Statement(rows, result, "+=" if path else "=", term) for result, term in zip(results, terms, strict=True)]
    if len(terms) > 1:
        parts = tuple(Ref(result.name) for result in results)
        made.append(Statement(listing.space(target.name), Ref(target.name), "=", Op("add", parts)))
    listing.exchange(statement, *made)
