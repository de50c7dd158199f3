"""Parts of a program over several types keep the gradient None if a backward reaches none of their results."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dacergnn.frontends.missing_gradients import Reached, Results


@pytest.mark.parametrize(
    ("asked", "with_gradient"), [((0,), [0, 1]), ((1,), [0, 2]), ((0, 1), [0, 1, 2])], ids=["first", "second", "both"]
)
def test_parts_that_lead_to_several_results(asked: tuple[int, ...], with_gradient: list[int]) -> None:
    """The first part leads to both results, the others to one each, and the last one to none."""
    parts = [torch.ones(1, requires_grad=True) for _ in range(4)]
    reached = Reached(Results(2, [(0, 1), (0,), (1,), ()]))
    made = torch.stack(parts)
    reached.gate(made, range(4))
    results: list[Tensor] = [*reached.split(made[:2] * made.sum(), [1, 1])]
    sum(results[i].sum() for i in asked).backward()  # pyright: ignore[reportAttributeAccessIssue]
    assert [i for i, part in enumerate(parts) if part.grad is not None] == with_gradient
