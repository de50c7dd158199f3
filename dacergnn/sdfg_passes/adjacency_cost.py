"""Estimates the seconds that a nest over groups of edges takes on each sparse format.

Compressed rows, COO, ELLPACK and the hybrid visit edges group by group. They differ in the bytes of their encodings and
padding, and in whether threads wait for the thread with the longest group. Columns read the rows of the other end point
in order, but read and write sums out of order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dace

from dacergnn.config import Rates
from dacergnn.cost import LINE, Cost, gather_cost, longest_undivided
from dacergnn.library_nodes.access import is_few, order_name
from dacergnn.library_nodes.form import size
from dacergnn.library_nodes.node import row_shape, row_space
from dacergnn.library_nodes.traversal.formats import OTHER_END, edge_groups

THREADS = 8
"""Number of threads that choices assume, since a build serves any number."""
ADDED = 1.5
"""Time of adding to a row out of order, relative to reading it."""


def format_seconds(
    operator: Any, sdfg: dace.SDFG, sizes: Mapping[str, int], longest: Mapping[str, int], index: int, rates: Rates
) -> dict[str, float]:
    """Returns the seconds of a traversal over groups of edges (`edge_groups`) on each sparse format, by its name.

    Args:
        longest: Edges of the longest group by path.
        index: Bytes of an index.
    """
    grouping = edge_groups(operator.space, operator.statements)
    assert grouping is not None
    outer, inner, path = grouping
    groups, edges = sizes[outer], max(sizes[inner], 1)
    alone = longest.get(path, 0)
    if operator.split_hubs:
        alone = min(alone, longest_undivided(edges))
    waits = max(1.0, alone * THREADS / edges)
    rows = _moved(operator, sdfg, sizes, inner, path)
    costs = {
        "csr": rows + Cost(streamed=groups * index),
        "coo": rows + Cost(streamed=edges * index),
        "ell": rows + Cost(streamed=(1 + longest.get(path, 0) * _lists(operator, inner, path)) * groups * index),
        "hybrid": rows + Cost(streamed=(groups + edges) * index),
    }
    seconds = {name: cost.seconds(rates) * (1.0 if name == "coo" else waits) for name, cost in costs.items()}
    other = OTHER_END.get(path)
    if other is not None:
        columns = _moved(operator, sdfg, sizes, inner, other) + Cost(streamed=THREADS * edges * index)
        seconds["csc"] = columns.seconds(rates) * waits
    return seconds


def _lists(operator: Any, inner: str, path: str) -> int:
    """Counts the paths from edges to the rows that a nest reads or writes, other than the path to their groups."""
    refs = [r for s in operator.statements if s.space == inner for r in (*s.reads, s.target)]
    return len({r.path for r in refs if r.name not in operator.locals} - {path})


def _moved(operator: Any, sdfg: dace.SDFG, sizes: Mapping[str, int], inner: str, order: str) -> Cost:
    """Returns the bytes that statements over edges move when they visit edges by ``order``; accesses count once."""
    # Edges are sorted by type, then by destination.
    in_order = order_name(inner, order) is None or (order == "dst" and sizes["R"] == 1)
    edges, total = sizes[inner], Cost()
    statements = [s for s in operator.statements if s.space == inner]
    local = {s.target.name for s in statements if not s.target.path}.intersection(operator.locals)
    for ref in dict.fromkeys(r for s in statements for r in (*s.reads, s.target) if r.name not in local):
        desc = sdfg.arrays[ref.name]
        width = size(row_shape(desc)) * desc.dtype.bytes
        if ref.path in ("", order) and (ref.path or in_order):
            total += Cost(streamed=sizes[row_space(desc)] * width)
        elif not is_few(ref.path):
            passes = ADDED if any(s.target == ref and ref.path for s in statements) else 1
            total += gather_cost(int(passes * edges), max(width, LINE), sizes[row_space(desc)])
    return total
