"""Rows of nodes that programs compute without edges, in one pass in place of several passes of torch."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.edges import Form, GraphFinder
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.frontends.symbolic.table import VIEWS
from dacergnn.frontends.symbolic.tape import Tape
from dacergnn.frontends.symbolic.value import Node, held_in
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lifetime import lasting
from dacergnn.library_nodes.form import GEMM_OPERATORS

_FEW = 3
MANY_ROWS = 1000
"""Numbers of passes of torch, and of rows, that a program is made for; with fewer it saves less than its call takes.

A call takes as long as ten passes over some 64,000 numbers, forward and backward.
"""


class RowsForm(NamedTuple):
    """Describes rows that no edges connect, as a graph without edges.

    Args:
        rows: The number of rows.
    """

    rows: int
    device: torch.device
    tensors: tuple[Tensor, ...] = ()

    def find(self, graphs: GraphFinder, own: bool) -> HeteroGraph:
        """Returns a graph without edges; equal forms share it."""
        return _without_edges(number(self.rows), self.device)


@lru_cache(maxsize=16)
def _without_edges(count: int, device: torch.device) -> HeteroGraph:
    none = torch.empty((2, 0), dtype=torch.int64, device=device)
    with lasting():
        return HeteroGraph.from_arrays(none, None, num_nodes=(count, count), num_edge_types=1, bipartite=False)


class RowSet:
    """Holds rows that are computed without edges, with what a trace asks of an `EdgeSet`."""

    bipartite = False
    unwritten = True
    replayed = True

    tensors: tuple[Tensor, ...] = ()
    """No tensors tell what it consists of."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.rows, self.device = rows, device

    def form(self) -> Form:
        """Describes the rows."""
        return RowsForm(self.rows, self.device)

    def find(self, graphs: GraphFinder, argument_ids: set[int]) -> HeteroGraph:
        """Returns a graph without edges."""
        return self.form().find(graphs, True)


class RowSets:
    """Holds the sets of rows of a call, by their sizes."""

    def __init__(self) -> None:
        self._known: dict[object, RowSet] = {}

    def find(self, node: Node, device: torch.device, tape: Tape | None) -> RowSet | None:
        """Returns the rows of a value that depends on no edges; None if torch computes it as fast as a program.

        The number of rows decides, so that it has to be known before all steps.
        """
        if node.expr.uniform or len(_passes(node)) < _FEW:
            return None
        rows = node.shape[0]
        if tape is None or not tape.is_known_early(rows) or rows < MANY_ROWS:
            return None
        key = getattr(rows, "role", None), number(rows)  # equal numbers may be those of other nodes in other calls
        return self._known.setdefault(key, RowSet(rows, device))


def _passes(node: Node) -> list[Node]:
    """Returns the values that torch would compute for a value, each in a pass over its rows; products are more."""
    seen: dict[Node, None] = {}
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if item.real is None and item not in seen:
            seen[item] = None
            waiting += held_in(item.call[1:3], Node)
    return [n for n in seen if n.expr.op not in GEMM_OPERATORS and n.call and n.call[0] not in VIEWS]
