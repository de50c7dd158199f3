"""Describes sparse formats of the edges of a traversal, and the nests that they fit (Cached Operator Reordering, D).

- "csr": compressed rows: pointers to the edges of each row of the mapping.
- "csc": compressed columns: the same sums, over edges in the order of their other end point.
- "coo": a list of edges in the order of rows, with the row of each edge.
- "ell": a matrix in which each row is padded to the length of the longest.
- "hybrid": the first edges of each row as "csr", and behind them all others as "coo".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dacergnn.graph.spaces import kind
from dacergnn.library_nodes.form import Statement
from dacergnn.library_nodes.traversal.nest import Levels, reached


@dataclass(frozen=True)
class Format:
    """Describes how a nest finds its rows in a format.

    Args:
        pointers: Kind of the pointers to the edges of a group (`places.Pointers`).
        lists: Kind of the encodings that have rows for every place; "" for those of compressed rows.
        splits: Whether the edges of a group stand in two parts.
        flattens: Whether loops may run over all rows of a tile, whatever their group (`nest.loops`).
        shares_rows: Whether threads get equally many edges, so that they may share the edges of a group.
        questions: Properties of the schedule that a nest of several levels depends on.
    """

    pointers: Literal["list", "starts", "slots"] = "list"
    lists: str = ""
    splits: bool = False
    flattens: bool = True
    shares_rows: bool = False
    questions: tuple[str, ...] = ("tile_rows", "chunks")


FORMATS = {
    "csr": Format(questions=("schedule_by", "split_hubs", "tile_rows", "chunks")),
    "csc": Format(flattens=False, questions=()),
    "coo": Format("starts", shares_rows=True, questions=("schedule_by", "tile_rows", "hub_rows")),
    "ell": Format("slots", "ell", flattens=False),
    "hybrid": Format("list", "hyb", splits=True, flattens=False),
}
GROUPED = ("dst", "src", "dstpair", "srcpair")
OTHER_END = {"dst": "src", "src": "dst"}


def edge_groups(mapping: str, statements: Sequence[Statement]) -> tuple[str, str, str] | None:
    """Returns the row spaces of groups and edges, and the path between, of a nest of just these two; else None."""
    levels = Levels.of(mapping, statements)
    if len(levels.spaces) != 2:
        return None
    outer, inner = levels.spaces
    path = levels.up(inner, outer)
    return (outer, inner, path) if kind(inner) == "E" and path in GROUPED else None


def misfit(adjacency: str, mapping: str, statements: Sequence[Statement], *, hubs: bool) -> str | None:
    """Returns why a nest cannot run on a format; None if it can.

    Args:
        hubs: Whether threads share the rows of long groups.
    """
    if adjacency == "csr":
        return None
    groups = edge_groups(mapping, statements)
    if groups is None:
        return "its loops are not over groups of edges"
    if hubs and adjacency in ("csc", "hybrid"):
        return "threads share its longest groups"
    outer, inner, path = groups
    if adjacency != "csc":
        return None
    if path not in OTHER_END:
        return "its groups are no nodes"
    written = {s.target.name for s in statements if reached(s.space, s.target.path) == outer}
    edges = [s for s in statements if s.space == inner]
    if any(r.name in written for s in edges for r in s.reads):
        return "its edges read what it computes for nodes"
    if any(s.target.path and s.op != "+=" for s in edges):
        return "it takes maxima or minima"
    return None
