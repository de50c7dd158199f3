"""Tensors that outlive the call in which they are made."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_has_transforms = getattr(_C, "_are_functorch_transforms_active", lambda: True)


@contextmanager
def lasting() -> Generator[None]:
    """Makes plain tensors, whatever the call is under: no inference mode, no gradients, no transform of `torch.func`.

    Tensors made in inference mode could take no part in training later, and those of a transform end with it.
    """
    if not (torch.is_grad_enabled() or torch.is_inference_mode_enabled() or _has_transforms()):
        yield
        return
    with torch.inference_mode(False), torch.no_grad(), _C._DisableFuncTorch():
        yield
