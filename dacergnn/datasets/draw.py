"""Draws the edges of synthetic graphs, all relations at once.

Distinct random rows are drawn without rejection: `d` positions out of `n` are the ascending values
`n * ((i + random) / d) ** skew`, pushed apart where they collide. The exponent makes low positions popular,
so that degrees follow a power law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Ints = npt.NDArray[np.int64]

SKEW = 2.0


@dataclass(frozen=True)
class Relations:
    """Holds for each relation its edges, the types of its sources and destinations, and how many of these occur.

    `skew` is the exponent for all: with 1 all nodes of a type have similar degrees, more makes hubs.
    """

    edges: Ints
    src_type: Ints
    dst_type: Ints
    sources: Ints
    destinations: Ints
    skew: float = SKEW


def power_law_parts(total: int, parts: int, exponent: float) -> Ints:
    """Divides `total` into `parts` that fall as rank ** -exponent, each at least one if the total suffices."""
    least = 1 if total >= parts else 0
    weights = np.arange(1, parts + 1, dtype=np.float64) ** -exponent
    shares = weights / weights.sum() * (total - least * parts)
    cut = np.floor(shares).astype(np.int64)
    rest = total - least * parts - int(cut.sum())
    cut[np.argsort(cut - shares, kind="stable")[:rest]] += 1
    return cut + least


def occurrence_limits(edges: Ints, num_nodes: Ints, num_opposite: Ints) -> tuple[Ints, Ints]:
    """Returns the least and largest number of different end points that the `edges` of each relation can have."""
    high = np.minimum(edges, num_nodes)
    return np.minimum(-(-edges // np.maximum(num_opposite, 1)), high), high


def occurrences(edges: Ints, num_nodes: Ints, num_opposite: Ints, wanted: int) -> Ints:
    """Returns how many different end points each relation has: an equal share of its edges, within limits.

    The sum is `wanted`. If the limits do not allow it, it is the nearest possible sum.
    """
    low, high = occurrence_limits(edges, num_nodes, num_opposite)
    least, most = 0.0, 1.0
    for _ in range(60):
        share = (least + most) / 2
        if np.clip(share * edges, low, high).sum() < wanted:
            least = share
        else:
            most = share
    counts = np.clip(np.floor(most * edges).astype(np.int64), low, high)
    missing = wanted - int(counts.sum())
    # Rounding left a few over: give one each to the relations with room, round after round.
    while missing > 0 and (room := np.flatnonzero(counts < high)).size:
        counts[room[:missing]] += 1
        missing -= min(missing, room.size)
    return counts


def draw_edges(relations: Relations, type_counts: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Returns (src, dst) of all edges as ids within their types, relation after relation, distinct in each."""
    src_pool = distinct_positions(relations.sources, type_counts[relations.src_type], rng, relations.skew)
    dst_pool = distinct_positions(relations.destinations, type_counts[relations.dst_type], rng, relations.skew)
    # If there are more edges than pairs of nodes, a source may have a destination several times.
    pairs = relations.sources * relations.destinations
    copies = np.maximum(-(-relations.edges // np.maximum(pairs, 1)), 1)
    limits = np.repeat(relations.destinations * copies, relations.sources)
    degrees = _out_degrees(relations, limits, rng)
    of_edge = np.repeat(np.arange(len(copies)), relations.edges)
    src_ids = _shuffled(src_pool, np.repeat(relations.src_type, relations.sources), type_counts, rng)
    dst_ids = _shuffled(dst_pool, np.repeat(relations.dst_type, relations.destinations), type_counts, rng)

    starts = np.cumsum(relations.destinations) - relations.destinations
    slots = distinct_positions(degrees, limits, rng, relations.skew) // copies[of_edge] + starts[of_edge]
    return np.repeat(src_ids, degrees), dst_ids[_covering(slots, relations)]


def _covering(slots: Ints, relations: Relations) -> Ints:
    """Returns `slots` of destination pools, changed so that every slot occurs.

    A missing slot takes an edge from a slot that has others; as no edge had the missing slot, none becomes a
    duplicate.
    """
    group = np.repeat(np.arange(len(relations.edges)), relations.destinations)
    missing = np.flatnonzero(np.bincount(slots, minlength=len(group)) == 0)
    ordered, order = torch.sort(torch.from_numpy(slots))
    spare = order[1:][ordered[1:] == ordered[:-1]].numpy()
    num_missing = np.bincount(group[missing], minlength=len(relations.edges))
    num_spare = relations.edges - (relations.destinations - num_missing)
    # Both lists run relation after relation; take spare edges at equal distances within each.
    of_missing = group[missing]
    within = np.arange(len(missing)) - (np.cumsum(num_missing) - num_missing)[of_missing]
    taken = within * num_spare[of_missing] // num_missing[of_missing]
    changed = slots.copy()
    changed[spare[(np.cumsum(num_spare) - num_spare)[of_missing] + taken]] = missing
    return changed


def distinct_positions(counts: Ints, limits: Ints, rng: np.random.Generator, skew: float = SKEW) -> Ints:
    """Returns for each group g `counts[g]` different positions below `limits[g]`, ascending, mostly low ones."""
    total = int(counts.sum())
    group = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    size, limit = counts[group], limits[group]
    spread = limit * ((within + rng.random(total)) / size) ** skew
    # Distinct ascending positions minus their ordinals only have to ascend: a running maximum of each group.
    slack = np.minimum(spread.astype(np.int64) - within, limit - size)
    offset = group * (int(limits.max(initial=0)) + int(counts.max(initial=0)) + 1)
    return np.maximum.accumulate(np.maximum(slack, 0) + offset) - offset + within


def _out_degrees(relations: Relations, limits: Ints, rng: np.random.Generator) -> Ints:
    """Returns the number of edges of each distinct source: at least one, more by a power law, none above its limit."""
    counts = relations.sources
    starts = np.cumsum(counts) - counts
    extra = relations.edges - counts
    of_extra = np.repeat(np.arange(len(counts)), extra)
    slots = starts[of_extra] + (counts[of_extra] * rng.random(len(of_extra)) ** relations.skew).astype(np.int64)
    degrees = 1 + np.bincount(slots, minlength=len(limits)).astype(np.int64)
    over = np.maximum(degrees - limits, 0)
    degrees -= over
    # Edges above a limit fill the free room of their relation from the first source on.
    group = np.repeat(np.arange(len(counts)), counts)
    spilled = np.bincount(group, over, minlength=len(counts)).astype(np.int64)
    free = limits - degrees
    before = np.cumsum(free) - free
    before -= before[starts[group]] if len(group) else 0
    return degrees + np.clip(spilled[group] - before, 0, free)


def _shuffled(ranks: Ints, types: Ints, type_counts: Ints, rng: np.random.Generator) -> Ints:
    """Converts popularity ranks to node ids by one random permutation of each type."""
    starts = np.cumsum(type_counts) - type_counts
    ids = np.concatenate([rng.permutation(count) for count in type_counts.tolist()])
    return ids[starts[types] + ranks]
