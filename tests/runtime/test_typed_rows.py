"""Rows that are put together and divided as torch does it, in memory of the pool."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dacergnn.runtime.pool import POOL, SMALL
from dacergnn.runtime.typed_rows import join_rows, split_rows

SIZES = [3000, 0, 5000]
"""Rows of 64 doubles, four megabytes in all."""


def parts(grad: bool = True, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 64, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad) for n in SIZES]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_and_gradients_are_those_of_torch(dtype: torch.dtype) -> None:
    ours, theirs = parts(dtype=dtype), parts(dtype=dtype)
    weights = torch.randn(sum(SIZES), 64, dtype=torch.float64).to(dtype)
    for own, together, divided in (
        (ours, join_rows(ours), split_rows),
        (theirs, torch.cat(theirs), lambda rows, sizes: rows.split(sizes)),
    ):
        assert torch.equal(together, torch.cat(parts(dtype=dtype)))
        pieces = divided(together * weights, SIZES)
        assert [len(piece) for piece in pieces] == SIZES
        (pieces[0].sin().sum() + pieces[2].square().sum()).backward()  # the second has no gradient
        assert own[1].grad is not None
    for one, other in zip(ours, theirs, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_large_rows_and_gradients_lie_in_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = POOL.take
    monkeypatch.setattr(POOL, "take", lambda size, **options: (taken.append(size), take(size, **options))[1])
    rows = join_rows(parts())
    size = sum(SIZES) * 64 * 8
    assert size >= SMALL
    assert taken == [size]
    torch.autograd.backward(split_rows(rows, SIZES), parts(grad=False))
    assert taken == [size, size]


def test_small_rows_are_left_to_torch() -> None:
    few = [torch.ones(2, 3, requires_grad=True), torch.ones(1, 3)]
    assert type(join_rows(few).grad_fn).__name__ == "CatBackward0"
    assert type(split_rows(join_rows(few), [1, 2])[0].grad_fn).__name__ == "UnsafeSplitWithSizesBackward0"


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("width", [1, 64])
def test_parts_can_be_written_to(width: int, grad: bool) -> None:
    given = [part[:, :width] for part in parts(grad=grad)]
    pieces = split_rows(join_rows(given), SIZES)
    pieces[0].zero_()
    pieces[2].mul_(3)
    assert not pieces[0].any()
    assert torch.equal(pieces[2], 3 * given[2])
    if grad:
        found = torch.autograd.grad(pieces[0].sum() + pieces[2].sum(), given)
        assert [gradient.unique().tolist() for gradient in found] == [[0.0], [], [3.0]]


def test_parts_of_several_types_are_promoted() -> None:
    one, _, other = parts()
    assert join_rows([one.float(), other]).dtype == torch.float64


def test_tensors_without_memory_stay_so() -> None:
    with FakeTensorMode():
        fakes = [torch.empty(n, 64, dtype=torch.float64, requires_grad=True) for n in SIZES]
        assert [tuple(piece.shape) for piece in split_rows(join_rows(fakes), SIZES)] == [(n, 64) for n in SIZES]


def test_gradients_of_joined_rows_have_gradients() -> None:
    own = parts()
    (gradient,) = torch.autograd.grad(join_rows(own).pow(3).sum(), own[0], create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), own[0])
    assert torch.allclose(second, 6 * own[0])
