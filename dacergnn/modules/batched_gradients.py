"""Runs backwards for a batch of gradients at once, as `torch.autograd.grad` asks with ``is_grads_batched=True``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_torch: Any = torch
Backward = Callable[[Sequence[Tensor]], Sequence[Tensor | None]]


def batch_level() -> int:
    """Returns how many batches of torch's first `vmap`, which still serves autograd, contain this call; 0 for none."""
    level = _C._vmapmode_increment_nesting() - 1
    _C._vmapmode_decrement_nesting()
    return level


def for_each_item(backward: Backward, gradients: Sequence[Tensor]) -> list[Tensor | None]:
    """Returns the results of ``backward`` for all items of the batch, as batches again."""
    level = batch_level()
    batched = [not _C._has_storage(g) for g in gradients]
    plain = [_torch._remove_batch_dim(g, level, 0, 0) if b else g for g, b in zip(gradients, batched, strict=True)]
    count = next((len(g) for g, b in zip(plain, batched, strict=True) if b), None)
    if count is None:
        return list(backward(gradients))
    items = [backward([g[i] if b else g for g, b in zip(plain, batched, strict=True)]) for i in range(count)]
    batches: list[Tensor | None] = []
    for values in zip(*items, strict=True):
        tensors = [v for v in values if v is not None]
        batches.append(_torch._add_batch_dim(torch.stack(tensors), 0, level) if tensors else None)
    return batches
