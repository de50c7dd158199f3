"""Features of nodes as programs take them: dense rows, or sparse ones as they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.runtime.typed_rows import join_rows

SPARSE = (torch.sparse_csr, torch.sparse_coo)
"""Layouts of sparse features."""


def is_sparse(x: Tensor) -> bool:
    """Returns whether features are sparse."""
    return x.layout is not torch.strided


def is_sparse_matrix(x: Tensor) -> bool:
    """Returns whether programs may take a tensor as sparse features."""
    return x.layout in SPARSE and x.dim() == 2 and x.sparse_dim() == 2


def contiguous(x: Tensor) -> Tensor:
    """Returns features, with their rows one after the other if they are dense."""
    return x if is_sparse(x) else x.contiguous()


def drops(dropout: nn.Module) -> bool:
    """Returns whether a dropout changes anything in its own mode, whatever the mode of its layer is.

    Raises:
        UnsupportedCallError: Another module, which may do anything, is in its place.
    """
    if type(dropout) is nn.Dropout:
        return dropout.training and dropout.p > 0
    if type(dropout) is nn.Identity:
        return False
    kind = type(dropout).__name__
    raise UnsupportedCallError(f"{kind} stands in place of a dropout; compiled layers take nn.Dropout or nn.Identity.")


def dropped(dropout: nn.Module, x: Tensor) -> Tensor:
    """Returns features after a dropout, contiguous if they are dense."""
    if not is_sparse(x):
        return dropout(x).contiguous()
    if not dropout.training:
        return x
    if x.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(x._indices(), dropout(x._values()), x.shape, check_invariants=False)
    starts, columns = x.crow_indices(), x.col_indices()
    return torch.sparse_csr_tensor(starts, columns, dropout(x.values()), x.shape, check_invariants=False)


def first_rows(x: Tensor, count: int) -> Tensor:
    """Returns the first ``count`` rows; raises UnsupportedCallError for sparse features with more rows."""
    if is_sparse(x) and count < x.size(0):
        raise UnsupportedCallError("features are sparse, and destinations, which are some of them, have values apart.")
    return x if is_sparse(x) else x[:count]


def joined(parts: Sequence[Tensor], width: int) -> Tensor:
    """Joins the rows of tensors: sparse with ``width`` columns if one of them is sparse, else dense of equal widths."""
    if not any(map(is_sparse, parts)):
        return join_rows(parts)
    entries = [part if part.layout is torch.sparse_coo else part.to_sparse_coo() for part in parts]
    starts = accumulate([part.size(0) for part in parts], initial=0)
    shifts = [entries[0]._indices().new_tensor([[start], [0]]) for start in starts]
    indices = [part._indices() + shift for part, shift in zip(entries, shifts, strict=False)]
    size = (sum(part.size(0) for part in parts), width)
    values = torch.cat([part._values() for part in entries])
    return torch.sparse_coo_tensor(torch.cat(indices, dim=1), values, size, check_invariants=False)
