"""Activations of programs and of their networks, by the modules and functions of torch that compute them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dacergnn.library_nodes.operators import OPERATORS, Operator
from dacergnn.program.flatten import Activation

_MODULES: dict[type[nn.Module], str] = {
    getattr(nn, operator.torch.module): name for name, operator in OPERATORS.items() if operator.torch.module
}


def _functions() -> dict[Any, Activation]:
    """Returns the activations of the functions of torch that are called with one tensor and no option."""
    activations: dict[Any, Activation] = {}
    for name, operator in OPERATORS.items():
        constants = [value for value in operator.constants if value is not None]
        if operator.is_activation and len(constants) == len(operator.constants):
            spelled = [getattr(owner, f, None) for owner in (torch, F) for f in operator.torch.functions]
            activations |= {f: Activation(name, tuple(constants)) for f in spelled if f is not None}
    return activations


_FUNCTIONS = _functions()


def activation_of(function: object) -> Activation | None:
    """Returns the activation that a module or function of torch is; None for others, and for modules with hooks."""
    if isinstance(function, nn.Module):
        own = vars(function)
        hooks = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
        return None if hooks or "forward" in own else activation_in(function)
    try:
        return _FUNCTIONS.get(function)
    except TypeError:  # not hashable
        return None


def activation_in(module: nn.Module) -> Activation | None:
    """Returns the activation that a module of torch computes, whatever hooks it has; None for other modules."""
    name = _MODULES.get(type(module))
    return None if name is None else _with_options(module, name, OPERATORS[name])


def _with_options(module: Any, name: str, operator: Operator) -> Activation | None:
    meaning = operator.torch
    if any(getattr(module, option) != value for option, value in meaning.fixed.items()):
        return None
    return Activation(name, tuple([float(getattr(module, option)) for option in meaning.options]))
