"""Sparse tensors without torch's warnings, which come once in a process, and layers that they are given to."""

from __future__ import annotations

import random
import warnings

import torch
from torch import Tensor, nn

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


def thinned(x: Tensor) -> Tensor:
    """With three of four numbers 0, the first row and the last column among them."""
    kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.25
    kept[0], kept[:, -1] = False, False
    return x * kept


def assert_same(own: nn.Module, found: list[Tensor], layer: nn.Module, expected: list[Tensor]) -> None:
    """Results, and gradients of parameters."""
    torch.testing.assert_close(found, expected)
    pairs = ((own, found), (layer, expected))
    weights = [[p for p in module.parameters() if p.requires_grad] for module, _ in pairs]
    totals = [torch.stack([y.square().sum() for y in results]).sum() for _, results in pairs]
    a, b = (
        torch.autograd.grad(t, w, allow_unused=True, retain_graph=True) for t, w in zip(totals, weights, strict=True)
    )
    for one, other, weight in zip(a, b, weights[0], strict=True):
        nothing = torch.zeros_like(weight)
        torch.testing.assert_close(nothing if one is None else one, nothing if other is None else other)
