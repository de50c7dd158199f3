"""Sorts and counts edges that do not fit into memory, in temporary files (an external distribution sort)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from dacergnn.graph import counting
from dacergnn.graph.canonical import index_dtype
from dacergnn.graph.counting import PAIRS
from dacergnn.graph.counts import Counts
from dacergnn.graph.edge_list import EdgeList, all_zero
from dacergnn.graph.sorting import stable_order
from dacergnn.scratch import zeros_in_file

_BLOCKS = 1 << 20
"""The most groups of successive keys that are counted before edges are distributed."""
_EDGE_BYTES = 128
"""Memory that sorting takes for each edge of a part: keys, orders and vectors, before and after."""
_LEAST = 1 << 16
"""The edges that are always sorted at a time."""
Read = Callable[[int, int], tuple[Tensor, list[Tensor]]]
"""Returns the keys, int64 [n], and the vectors of the rows from a first to a last one."""


def encoded(edges: EdgeList, scratch: str, memory: float) -> tuple[EdgeList, Tensor | None, dict[str, Tensor], Counts]:
    """Returns edges in canonical order, the old position of each (None if nothing moved), encodings and counts.

    All of these vectors lie in files. Node types, and a number for each node, are in memory.

    Args:
        edges: Checked edges in any order, which may be mapped from files.
        scratch: A folder for the files, which vanish with their tensors.
        memory: The bytes that sorting may take.
    """
    sorter = _Sorter(edges.src.numel(), scratch, max(int(memory / _EDGE_BYTES), _LEAST), index_dtype(edges))
    typed = edges.num_edge_types > 1

    def by_destination(start: int, stop: int) -> tuple[Tensor, list[Tensor]]:
        vectors = [edges.src, edges.dst, *([edges.edge_type] if typed else [])]
        taken = [sorter.positions(start, stop), *(vector[start:stop] for vector in vectors)]
        return _keys(taken[3] if typed else None, taken[2], edges.num_dst), taken

    perm, src, dst, *types = sorter.sorted(edges.num_edge_types * edges.num_dst, by_destination)
    node_types = [None if own is None else own.to(sorter.dtype) for own in (edges.src_type, edges.dst_type)]
    ordered = edges._replace(
        src=src, dst=dst, edge_type=types[0] if typed else all_zero(src), src_type=node_types[0],
        dst_type=node_types[1], in_order=True,
    )  # fmt: skip

    def by_source(start: int, stop: int) -> tuple[Tensor, list[Tensor]]:
        sources = src[start:stop]
        keys = _keys(types[0][start:stop] if typed else None, sources, edges.num_src)
        return keys, [sorter.positions(start, stop), sources]

    ids, sources = sorter.sorted(edges.num_edge_types * edges.num_src, by_source)
    # Counting reads sources in this order anyway; from the sorted ones it reads them one after the other.
    counts, starts = counting.count(ordered._replace(src=sources), None, sorter.empty)
    pairs = {
        f"ptr_E_{path}": own[: counts.sizes[space] + 1].to(sorter.dtype)
        for (space, path), own in zip(PAIRS.items(), starts, strict=True)
    }
    return ordered, None if sorter.ascends(perm) else perm, {"ids_E_etype_src": ids, **pairs}, counts


def _keys(types: Tensor | None, ends: Tensor, count: int) -> Tensor:
    """Returns int64 keys in the order (type, end)."""
    return ends.long() if types is None else types.long() * count + ends


class _Sorter:
    """Sorts rows of one number.

    Args:
        length: The number of rows.
        scratch: A folder for temporary files.
        rows: The rows that are in memory at a time.
        dtype: The type of the vectors that are returned.
    """

    def __init__(self, length: int, scratch: str, rows: int, dtype: torch.dtype) -> None:
        self.length, self.scratch, self.rows, self.dtype = length, scratch, rows, dtype

    def empty(self, count: int) -> Tensor:
        """Returns a vector in a file."""
        return zeros_in_file(self.scratch, (count,), self.dtype)

    def positions(self, start: int, stop: int) -> Tensor:
        """Returns the numbers of successive rows."""
        return torch.arange(start, stop, dtype=self.dtype)

    def ascends(self, vector: Tensor) -> bool:
        """Tells whether the entries of a vector ascend."""
        return all(bool((vector[a + 1 : b + 1] > vector[a:b][: self.length - a - 1]).all()) for a, b in self._chunks())

    def sorted(self, bound: int, read: Read) -> list[Tensor]:
        """Returns the vectors of all rows, stably sorted by their keys.

        Args:
            bound: The first number that is no key.
            read: Reads rows.
        """
        width = -(-bound // min(max(bound, 1), _BLOCKS)) or 1
        counts = torch.zeros(-(-bound // width), dtype=torch.int64)
        for start, stop in self._chunks():
            counts += torch.bincount(read(start, stop)[0] // width, minlength=len(counts))
        ends = counts.cumsum(0)
        # A bucket takes successive blocks of keys, which have about as many rows as fit into memory.
        _, buckets, blocks = torch.unique_consecutive(
            (ends - counts) // self.rows, return_inverse=True, return_counts=True
        )
        bounds: list[int] = [0, *ends[blocks.cumsum(0) - 1].tolist()]
        keys, vectors = self._distributed(lambda own: buckets[own // width], bounds, read)
        for start, stop in pairwise(bounds):
            order = stable_order([(keys[start:stop], bound)])
            if order is not None:
                for vector in vectors:
                    vector[start:stop] = vector[start:stop].index_select(0, order)
        return vectors

    def _distributed(
        self, bucket_of: Callable[[Tensor], Tensor], bounds: list[int], read: Read
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the keys and vectors of all rows bucket by bucket, in the present order within each bucket.

        Args:
            bucket_of: Returns the buckets of keys.
            bounds: The first row of each bucket, then the number of rows.
        """
        keys = zeros_in_file(self.scratch, (self.length,), torch.int64)
        vectors = [self.empty(self.length) for _ in read(0, 0)[1]]
        filled = bounds[:-1]
        for start, stop in self._chunks():
            own_keys, own = read(start, stop)
            buckets = bucket_of(own_keys)
            order = buckets.sort(stable=True).indices
            parts = [part.index_select(0, order) for part in (own_keys, *own)]
            done = 0
            for bucket, count in zip(*(c.tolist() for c in buckets.unique(return_counts=True)), strict=True):
                place = filled[bucket]
                for whole, part in zip((keys, *vectors), parts, strict=True):
                    whole[place : place + count] = part[done : done + count]
                filled[bucket], done = place + count, done + count
        return keys, vectors

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """Yields the first row of each part that fits into memory, and the row after its last one."""
        for start in range(0, self.length, self.rows):
            yield start, min(start + self.rows, self.length)
