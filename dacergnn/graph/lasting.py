"""Tensors that outlive the call in which they are made."""

from __future__ import annotations

from contextlib import ContextDecorator, ExitStack
from typing import Any

import torch

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_has_transforms = getattr(_C, "_are_functorch_transforms_active", lambda: True)


class lasting(ContextDecorator):
    """A context that makes plain tensors, whatever the call is under.

    There is no inference mode in it, there are no gradients, and no transform of `torch.func`. Tensors made in
    inference mode could take no part in training later, and those of a transform end with it.
    """

    _within: ExitStack | None = None
    _grad = False

    def _recreate_cm(self) -> lasting:
        return lasting()  # each call of a function that this decorates has its own

    def __enter__(self) -> None:
        if torch.is_inference_mode_enabled() or _has_transforms():
            self._within = ExitStack()
            self._within.enter_context(torch.inference_mode(False))
            self._within.enter_context(_C._DisableFuncTorch())  # begins when it is made, so it is made here
        self._grad = torch.is_grad_enabled()
        if self._grad:  # the same as torch.no_grad, in less time
            _C._set_grad_enabled(False)

    def __exit__(self, *problem: Any) -> None:
        if self._grad:
            _C._set_grad_enabled(True)
        if self._within is not None:
            self._within.__exit__(*problem)
