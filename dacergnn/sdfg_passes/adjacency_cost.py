"""Seconds of a nest over groups of edges on each sparse format.

To the bytes that its statements move, the same on all formats but for columns, each adds those of its own encodings and
padding; all wait for the thread with the longest group that no other may help with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dace

from dacergnn.config import Rates
from dacergnn.cost import Cost, longest_undivided, statement_cost
from dacergnn.library_nodes.form import size
from dacergnn.library_nodes.node import row_shape, row_space
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.traversal.formats import edge_groups

THREADS = 8
"""Threads to choose for: a build is kept for any number of them."""
LINE = 64
"""Bytes of a cache line, of which a row of a matrix begins one of its own."""


def format_seconds(
    operator: Any, sdfg: dace.SDFG, sizes: Mapping[str, int], longest: Mapping[str, int], index: int, rates: Rates
) -> dict[str, float]:
    """Seconds on each sparse format of a traversal whose mapping is groups of edges (`edge_groups`).

    Args:
        longest: Edges of the longest group by path.
        index: Bytes of an index.
    """
    found = edge_groups(operator.space, operator.statements)
    assert found is not None
    outer, inner, path = found
    groups, edges = sizes[outer], max(sizes[inner], 1)
    cost, summed, gathered = Cost(), 0, 0
    for statement in operator.statements:
        item = sdfg.arrays[statement.target.name].dtype.bytes

        def shapes(ref: Any) -> tuple[int, ...]:
            return view_shape(ref, row_shape(sdfg.arrays[ref.name]))

        cost += statement_cost(
            statement, sizes, space=lambda name: row_space(sdfg.arrays[name]), shapes=shapes, item=item
        )
        if statement.space == inner:
            summed += item * size(shapes(statement.target)) if statement.target.path else 0
            gathered += item * sum(size(shapes(r)) for r in statement.reads if r.path not in ("", path))
    alone = longest.get(path, 0)
    if operator.split_hubs:
        alone = min(alone, longest_undivided(edges))
    waits = max(1.0, alone * THREADS / edges)
    lists = max(1, len({r.path for s in operator.statements if s.space == inner for r in s.reads} - {path}))
    extra = {
        "csr": Cost(streamed=groups * index),
        "coo": Cost(streamed=edges * index),
        "ell": Cost(streamed=groups * index, gathered=lists * groups * LINE),
        "hybrid": Cost(streamed=(groups + edges) * index),
        # Rows of the other end come in order, sums are read and written out of it; every thread sees all edges.
        "csc": Cost(streamed=(groups + THREADS * edges) * index, gathered=edges * (2 * summed - gathered)),
    }
    balance = {"coo": 1.0}
    return {name: (cost + own).seconds(rates) * balance.get(name, waits) for name, own in extra.items()}
