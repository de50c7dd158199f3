"""Lets sums read values that are in memory anyway.

Before, in a backward whose gather or product needs grad_y as an array::

    n["grad_y"] = n["grad_out"] * (n["out"] > 0.0)
    n["grad_x"] += e.dst["grad_y"]
    grad_bias += n["grad_out"] * (n["out"] > 0.0)

After::

    grad_bias += n["grad_y"]

Saves: reading the rows of all operands but one, and keeping operands that nothing else reads.
"""

from __future__ import annotations

from dataclasses import replace

from dacergnn.graph.spaces import TYPE_PATHS
from dacergnn.library_nodes.form import Expr, Op, Ref, Statement
from dacergnn.program.listing import Listing


def read_held_values(listing: Listing) -> list[Statement]:
    """Returns the statements in order; sums over types of equal values read the array that holds these values."""
    held: dict[tuple[str, Expr], str] = {}
    statements: list[Statement] = []
    for statement in listing.statements:
        name, key = statement.target.name, (statement.space, statement.expr)
        other = held.get(key)
        sums = statement.op == "+=" and statement.target.path in TYPE_PATHS
        if sums and other is not None and listing.arrays[other].shape == listing.arrays[name].shape:
            statement = replace(statement, expr=Ref(other))
        elif statement.op == "=" and statement.target == Ref(name) and _is_held(listing, name):
            held.setdefault(key, name)
        statements.append(statement)
    return statements


def _is_held(listing: Listing, name: str) -> bool:
    """Returns whether fusion leaves an array in memory: a product reads it, or other statements gather its rows."""
    made = listing.producer(name)
    computed = made is not None and isinstance(made.expr, Op) and not made.is_gemm
    return computed and any(
        reader.is_gemm or any(r.name == name and r.path for r in reader.reads) for reader in listing.consumers(name)
    )
