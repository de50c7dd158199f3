"""Tells whether torch computes more than values and gradients: tangents, batches, or transforms of `torch.func`."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

_C: object = torch._C  # pyright: ignore[reportPrivateUsage]
_has_transforms = getattr(_C, "_are_functorch_transforms_active", lambda: False)


def is_transformed() -> bool:
    """Tells whether a transform of `torch.func`, `vmap`, or forward-mode differentiation is active."""
    return _has_transforms() or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]
