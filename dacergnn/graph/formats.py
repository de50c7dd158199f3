"""Sparse formats other than compressed rows: ELLPACK, and the hybrid of CSR and COO (Cached Operator Reordering, D).

``starts`` are the pointers [groups + 1] to the rows of each group; ``rows`` [starts[-1]] has one entry for every row,
group by group.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from dacergnn.errors import EncodingError


def largest_array() -> int:
    """Returns the bytes that one array may take: half of the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def lengths(starts: Tensor) -> Tensor:
    """Returns [groups + 1]: the number of rows of each group, then their maximum, the width of the matrix."""
    counts = starts.diff()
    width = counts.max() if len(counts) else torch.zeros((), dtype=starts.dtype, device=starts.device)
    return torch.cat((counts, width.reshape(1)))


def padded(rows: Tensor, starts: Tensor) -> Tensor:
    """Returns [groups * width]: for each group its rows, then zeros.

    Raises:
        EncodingError: The matrix would take more than half of the machine's memory.
    """
    counts = starts.diff()
    width = int(counts.max()) if len(counts) else 0
    size = len(counts) * width * rows.element_size()
    if size > largest_array():
        raise EncodingError(
            f"ELLPACK of {len(counts):,} groups, the longest of {width:,} edges, takes {size / 2**30:.1f} GiB, "
            'more than half of the memory of this machine; compile with Config(adjacency="csr") or "hybrid".'
        )
    matrix = torch.zeros(len(counts) * width, dtype=rows.dtype, device=rows.device)
    return matrix.index_copy_(0, _groups(starts) * width + _ranks(starts), rows)


def regular_width(starts: Tensor) -> int:
    """Returns how many rows of a group the regular part of the hybrid holds: twice the mean."""
    return max(1, -(-2 * int(starts[-1]) // max(len(starts) - 1, 1)))


def regular_pointers(starts: Tensor) -> Tensor:
    """Returns [groups + 1]: pointers to the rows of each group in the regular part."""
    counts = starts.diff().clamp(max=regular_width(starts))
    return torch.cat((starts[:1], counts.cumsum(0, dtype=starts.dtype)))


def hybrid(rows: Tensor, starts: Tensor) -> Tensor:
    """Returns [rows]: the first rows of each group, group by group, then all others."""
    late = _ranks(starts) >= regular_width(starts)
    return torch.cat((rows[~late], rows[late]))


def _groups(starts: Tensor) -> Tensor:
    """Returns int64[rows]: the group of each row."""
    groups = torch.arange(len(starts) - 1, device=starts.device)
    return groups.repeat_interleave(starts.diff().long())


def _ranks(starts: Tensor) -> Tensor:
    """Returns int64[rows]: the position of each row in its group."""
    return torch.arange(int(starts[-1]), device=starts.device) - starts.long().index_select(0, _groups(starts))
