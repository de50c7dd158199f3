"""Counts pairs, parts and types of the edges of a graph, and tells where the edges of each pair and type begin."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.counts import Counts
from dacergnn.graph.edge_list import EdgeList
from dacergnn.graph.sorting import group_starts, longest_group
from dacergnn.graph.spaces import PARTS

PAIRS = {"U": "srcpair", "V": "dstpair"}
"""Spaces of pairs, and the paths that lead from edges to them."""
COUNTED = frozenset(("ids_E_etype_src", "ptr_E_srcpair", "ptr_E_dstpair"))
"""Encodings that are made when pairs are counted."""
BY_SOURCE = frozenset(("ids_E_srcpair", "ids_E_typedsrc", "ids_E_etype_srcpair", "ids_E_etype_typedsrc"))
"""Encodings that share the memory of ``ids_E_etype_src``."""


def count(
    edges: EdgeList, order: Tensor | None, empty: Callable[[int], Tensor] | None = None
) -> tuple[Counts, list[Tensor]]:
    """Returns the counts, and where the edges of each pair of U and of V begin: more entries than pairs at the most.

    Args:
        order: The edges in the order (etype, src); None for their present order.
        empty: Returns a vector of a length for the starts; None for vectors in memory.
    """
    if sorting.at_hand(edges.src):
        counted = native_sorting.count_edges(
            (edges.src, edges.dst),
            (edges.edge_type if edges.num_edge_types > 1 else None, edges.num_edge_types),
            (edges.num_src, edges.num_dst),
            order,
            (edges.src_type, edges.dst_type),
            empty,
        )
        if counted is not None:
            numbers, starts = counted
            has_edges, has_node_types = edges.src.numel() > 0, edges.num_node_types > 1
            return Counts.of(numbers, has_edges=has_edges, has_node_types=has_node_types), [*starts]
    return _count_by_torch(edges, order)


def _count_by_torch(edges: EdgeList, order: Tensor | None) -> tuple[Counts, list[Tensor]]:
    rows = len(edges.src)
    starts = {space: pair_starts(edges, path, rows + 1, order) for space, path in PAIRS.items()}
    bounds = type_bounds(edges)
    # All pairs of a type start at edges of that type.
    typed = {"E": bounds.diff()} | {s: torch.searchsorted(first, bounds).diff() for s, first in starts.items()}
    in_parts = {name: in_part(name, typed["U"], typed["V"]) for name in PARTS}
    sizes = {space: typed[space].sum() for space in starts}
    sizes |= {f"{space}{name}": (typed[space] * own).sum() for space in typed for name, own in in_parts.items()}
    longest: dict[str, Tensor] = {}
    if rows:
        longest = {"src": longest_group(edges.src, edges.num_src)}
        longest["dst"] = longest_group(edges.dst, edges.num_dst)
        longest |= {path: starts[space].diff().max() for space, path in PAIRS.items()}
    mixed: dict[str, Tensor] = {}
    if rows and edges.num_node_types > 1:
        ends = {"srctype": (edges.src_type, edges.src), "dsttype": (edges.dst_type, edges.dst)}
        mixed = {path: _first_mixed(edges, types, own) for path, (types, own) in ends.items()}
    return Counts.read(sizes, longest, mixed), [*starts.values()]


def pair_starts(edges: EdgeList, path: str, rows: int, order: Tensor | None) -> Tensor:
    """Returns int64[rows]: the starts of pairs in the order (etype, end); after the last, the number of edges.

    Args:
        path: "srcpair" or "dstpair".
        order: As for `count`.
    """
    ends = edges.dst
    if path == "srcpair":
        ends = edges.src if order is None else edges.src.index_select(0, order)
    return group_starts(edges.edge_type, ends, rows=rows)


def type_bounds(edges: EdgeList) -> Tensor:
    """Returns [groups + 1]: the first edge of each type that occurs, then the number of edges, perhaps repeated.

    Types without edges have no entry, since a graph may have many of them.
    """
    return group_starts(edges.edge_type, rows=min(edges.num_edge_types, len(edges.src)) + 1)


def of_types(edges: EdgeList, values: Tensor, bounds: Tensor) -> Tensor:
    """Returns [E] the value of each edge's type; ``values`` belong to the types that ``bounds`` delimit."""
    return values.repeat_interleave(bounds.diff(), output_size=len(edges.src))


def in_part(name: str, sources: Tensor, destinations: Tensor) -> Tensor:
    """Tells for each edge type whether its edges belong to a part, by its numbers of pairs."""
    return sources <= destinations if name == "s" else sources > destinations


def _first_mixed(edges: EdgeList, node_types: Tensor | None, ends: Tensor) -> Tensor:
    """Returns the first edge type with end points of several types, the number of edge types if there is none."""
    types = torch.zeros_like(ends) if node_types is None else node_types.index_select(0, ends)
    bounds = type_bounds(edges)
    firsts = types.index_select(0, bounds[:-1].clamp(max=len(types) - 1))
    wrong = of_types(edges, firsts, bounds) != types
    return torch.where(wrong, edges.edge_type, edges.num_edge_types).min()
