"""Counts that the host needs of a graph, computed on the device of its edges and read at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dacergnn.graph.spaces import PARTED, PARTS

_PATHS = ("src", "dst", "srcpair", "dstpair")
_MIXED = ("srctype", "dsttype")


@dataclass(frozen=True)
class Counts:
    """Holds numbers that do not follow from the shapes of the user's arrays."""

    sizes: Mapping[str, int]
    """Number of rows of U and V, and of E, U and V in each part."""
    longest: Mapping[str, int]
    """Number of edges in the largest group, by the path whose target groups them; empty without edges."""
    mixed: Mapping[str, int]
    """By path, the first edge type with end points of several types; the number of edge types where there is none."""

    @classmethod
    def of(cls, counts: Sequence[int], *, has_edges: bool, has_node_types: bool) -> Counts:
        """Makes counts of the fields of `EdgeCounts` in ``edge_counts.h``."""
        names = [*PARTED[1:], *(f"{space}{part}" for part in PARTS for space in PARTED)]
        by_name = dict(zip((*names, *_PATHS, *_MIXED), counts, strict=True))
        longest, mixed = _PATHS if has_edges else (), _MIXED if has_edges and has_node_types else ()
        return cls(*({name: by_name[name] for name in group} for group in (names, longest, mixed)))

    @classmethod
    def read(cls, *groups: Mapping[str, Tensor]) -> Counts:
        """Makes counts of scalars on one device, which come in the order of the fields."""
        told = iter(torch.stack([number.long() for group in groups for number in group.values()]).tolist())
        return cls(*({key: next(told) for key in group} for group in groups))
