"""Tells whether torch computes more than values and gradients: tangents, batches, transforms, or records of itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dacergnn.errors import UnsupportedCallError

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_has_transforms = getattr(_C, "_are_functorch_transforms_active", lambda: False)
_dispatch_mode, _modes = _C._get_dispatch_mode, _C._TorchDispatchModeKey
_tracing_state = _C._get_tracing_state


def is_transformed() -> bool:
    """Tells whether a transform of `torch.func`, `vmap`, or forward-mode differentiation is active."""
    return _has_transforms() or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


def leave_transforms() -> None:
    """Leaves all transforms of `torch.func`: torch forgets to leave its own where it fails to capture code of them."""
    while _has_transforms():
        _C._functorch.pop_dynamic_layer_stack()


def is_recorded() -> bool:
    """Tells whether torch's operations are recorded, by `make_fx` or `torch.jit.trace`; they see no kernels of ours."""
    return _dispatch_mode(_modes.PROXY) is not None or _tracing_state() is not None


def is_fake() -> bool:
    """Tells whether torch only infers shapes (`FakeTensorMode`): its tensors hold no numbers."""
    return _dispatch_mode(_modes.FAKE) is not None


def needs_gradients(tensor: Tensor) -> bool:
    """Tells whether a tensor needs gradients within the innermost transform, or within one around it, or outside."""
    while not tensor.requires_grad:
        if not _C._functorch.is_functorch_wrapped_tensor(tensor):
            return False
        tensor = _C._functorch.get_unwrapped(tensor)
    return True


def with_plain_integers(value: Any) -> Any:
    """Returns ``value`` with the integers of its tensors, in dictionaries, lists and tuples, taken out of transforms.

    What a transformed function computes of edges or types holds no numbers by itself, and has no derivative.

    Raises:
        UnsupportedCallError: Items of a batch have different integers.
    """
    if not _has_transforms():
        return value
    if isinstance(value, Tensor) and not value.is_floating_point():
        while _C._functorch.is_gradtrackingtensor(value):
            value = _C._functorch.get_unwrapped(value)
        if _C._functorch.is_batchedtensor(value):
            raise UnsupportedCallError("items of the batch of a vmap have edges or types of their own.")
        return value
    if type(value) is dict:
        return {k: with_plain_integers(v) for k, v in value.items()}
    return type(value)([with_plain_integers(v) for v in value]) if type(value) in (tuple, list) else value
