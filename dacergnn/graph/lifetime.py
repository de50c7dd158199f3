"""Makes tensors that outlive the call in which they are made."""

from __future__ import annotations

from contextlib import ContextDecorator, ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_has_transforms = getattr(_C, "_are_functorch_transforms_active", lambda: True)
_count_of_modes = _C._len_torch_dispatch_stack


class lasting(ContextDecorator):
    """Turns off inference mode, gradients, transforms of `torch.func` and FakeTensorMode, so that tensors are plain.

    Tensors made in inference mode could not be used in training later, tensors of a transform end with it, and those
    of FakeTensorMode, in which torch.compile asks for the shapes of results, hold no numbers. Nothing that torch.export
    traces outlives the call, and it would write these switches down.
    """

    _within: ExitStack | None = None
    _grad = False

    def _recreate_cm(self) -> lasting:
        return lasting()  # one for each call of a decorated function

    def __enter__(self) -> None:
        if torch.compiler.is_exporting():
            return
        if torch.is_inference_mode_enabled() or _has_transforms() or _count_of_modes():
            self._within = ExitStack()
            self._within.enter_context(_disable_current_modes())
            self._within.enter_context(torch.inference_mode(False))
            self._within.enter_context(_C._DisableFuncTorch())  # takes effect when it is made
        self._grad = torch.is_grad_enabled()
        if self._grad:  # like torch.no_grad, but faster
            _C._set_grad_enabled(False)

    def __exit__(self, *problem: Any) -> None:
        if self._grad:
            _C._set_grad_enabled(True)
        if self._within is not None:
            self._within.__exit__(*problem)
