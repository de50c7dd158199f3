"""Sparse tensors without torch's warnings, which come once in a process."""

from __future__ import annotations

import random
import warnings

import torch
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.eye(1).to_sparse_csr()
    torch.sparse_coo_tensor([[0], [0]], [1.0], (1, 1))


def as_csr(x: Tensor) -> Tensor:
    """A dense matrix as a sparse one."""
    return x.to_sparse_csr()


def coo(rng: random.Random, rows: int, columns: int, count: int) -> Tensor:
    """Entries in any order, some in the same place."""
    count = count if rows else 0
    places = [[rng.randrange(rows) for _ in range(count)], [rng.randrange(columns) for _ in range(count)]]
    indices = torch.tensor(places, dtype=torch.int64).reshape(2, -1)
    return torch.sparse_coo_tensor(indices, torch.rand(count), (rows, columns))


def csr(starts: list[int], columns: list[int], size: tuple[int, int]) -> Tensor:
    """With the values 1, 2, ...; whether that is a matrix is not checked."""
    pointers, found = (torch.tensor(v, dtype=torch.int64) for v in (starts, columns))
    return torch.sparse_csr_tensor(pointers, found, torch.arange(1.0, len(columns) + 1), size)
