"""Turns products of sparse rows with weights into sums over the nonzeros.

Precondition: an inter-operator SDFG as it was parsed, one statement in each operator; some inputs are sparse.

Before::

    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["sum"] += e["norm"] * e.src["x"]
    for n in g.dst_nodes():
        n["y"] = linear(n["sum"], W)

After: products move in front of linear statements, and the product of x itself is a sum of rows of W, one for each
nonzero of x. The input x now holds the values of the nonzeros, and W is an array over the columns of x::

    for z in g.src_nonzeros():
        z.row["x_W"] += z["x"] * z.column["W"]
    for n in g.dst_nodes(): for e in n.incoming_edges():
        n["y"] += e["norm"] * e.src["x_W"]

Weights chosen by node type have a row for each (node type, column). If edge types choose the weights, products belong
to pairs of an end point and a type, and the loop runs over the nonzeros of all pairs. Gradients follow: the gradient of
W is a sum over the nonzeros of a column.

Saves, for Z nonzeros in N rows of K values: (N K - Z) values of memory, 2 (N K - Z) M FLOPs. Products come first,
since sums of sparse rows, which `aggregation_order` might prefer, are denser than the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dace

from dacergnn.errors import UnsupportedCallError
from dacergnn.graph.spaces import NODE_SIDES
from dacergnn.program.listing import Listing, map_refs
from dacergnn.sdfg_passes.sparse_products import SparseProducts, WeightRows

_SIDES = {nodes: side for side, nodes in NODE_SIDES.items()}


@dataclass(frozen=True)
class SparseProgram:
    """Holds the result of `sparse_features`: the program, and what its inputs are made of.

    ``arrays`` tells the original input of each input, or the rows of weights to make of one. Sparse arrays come as the
    values of their nonzeros; ``sparse`` tells whether they belong to sources ("S") or destinations ("D").
    """

    sdfg: dace.SDFG
    arrays: dict[str, str | WeightRows]
    sparse: dict[str, str]


def sparse_features(sdfg: dace.SDFG, sparse: Sequence[str]) -> SparseProgram:
    """Returns the program for inputs of which ``sparse`` are sparse matrices; ``sdfg`` stays as it is.

    Raises:
        UnsupportedCallError: A sparse input is used other than in products with weights; names it and its use.
    """
    listing = Listing.of(sdfg)
    inputs, sides = listing.inputs, _sides(listing, sparse)
    values = {name: listing.add(name, f"Z{side}", ()) for name, side in sides.items()}
    products = SparseProducts(listing, sides, values)
    for statement in list(listing.statements):
        products.rewrite(statement)
    listing.inputs = (*inputs, *values.values(), *products.weights.values())
    listing.drop_unused()
    read = {r.name: s for s in listing.statements for r in s.reads}
    for name in sides.keys() & read.keys():
        products.refuse(read[name].expr, read[name], "only products with weights take it")
    arrays: dict[str, str | WeightRows] = {}
    for old in inputs:
        rows = {array: made for (made, _), array in products.weights.items() if made.source == old}
        arrays |= rows
        if old in sides or old in read or not rows:
            arrays[values.get(old, old)] = old
    names = _names(arrays)
    _rename(listing, names)
    listing.inputs = tuple(names.values())
    result = listing.build(sdfg.name, next(iter(sdfg.arrays.values())).dtype)
    return SparseProgram(result, {names[array]: made for array, made in arrays.items()}, sides)


def _sides(listing: Listing, sparse: Sequence[str]) -> dict[str, str]:
    """Returns the nodes, sources ("S") or destinations ("D"), that each sparse array belongs to."""
    sides: dict[str, str] = {}
    for name in sparse:
        rows = listing.arrays[name]
        side = _SIDES.get(rows.space)
        if side is None or len(rows.shape) != 1:
            problem = f"has rows {rows.space}{list(rows.shape)}; sparse features are NS[K] or ND[K]"
            raise UnsupportedCallError(f"{name} is sparse, but {problem}; pass {name}.to_dense().")
        if side in sides.values():
            problem = f"is the second sparse array of {rows.space} rows; pass it as {name}.to_dense(), or join them"
            raise UnsupportedCallError(f"{name} {problem} with torch.cat.")
        sides[name] = side
    return sides


def _names(arrays: dict[str, str | WeightRows]) -> dict[str, str]:
    """Returns names for inputs; the first input made of an array gets the name of that array."""
    names: dict[str, str] = {}
    for array, made in arrays.items():
        old = made if isinstance(made, str) else made.source
        names[array] = array if old in names.values() or (old != array and old in arrays) else old
    return names


def _rename(listing: Listing, names: dict[str, str]) -> None:
    listing.arrays |= {new: listing.arrays[old] for old, new in names.items()}
    listing.statements = [
        replace(s, expr=map_refs(s.expr, lambda r: replace(r, name=names.get(r.name, r.name))))
        for s in listing.statements
    ]
