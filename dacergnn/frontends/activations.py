"""Activations that a program can have behind it: which modules and functions of torch they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dacergnn.program.flatten import Activation

_MODULES: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.ReLU: lambda m: Activation("relu"),
    nn.LeakyReLU: lambda m: Activation("leakyrelu", (float(m.negative_slope),)),
    nn.ELU: lambda m: Activation("elu", (float(m.alpha),)),
    nn.Sigmoid: lambda m: Activation("sigmoid"),
    nn.Tanh: lambda m: Activation("tanh"),
}
_FUNCTIONS: dict[Any, Activation] = {
    F.relu: Activation("relu"),
    torch.relu: Activation("relu"),
    F.leaky_relu: Activation("leakyrelu", (0.01,)),
    F.elu: Activation("elu", (1.0,)),
    F.sigmoid: Activation("sigmoid"),
    torch.sigmoid: Activation("sigmoid"),
    F.tanh: Activation("tanh"),
    torch.tanh: Activation("tanh"),
}


def activation_of(function: object) -> Activation | None:
    """What a module or function of torch is in a program; None for others, and for modules with hooks."""
    if isinstance(function, nn.Module):
        make, own = _MODULES.get(type(function)), vars(function)
        hooks = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
        return None if make is None or hooks or "forward" in own else make(function)
    try:
        return _FUNCTIONS.get(function)
    except TypeError:  # not hashable
        return None
