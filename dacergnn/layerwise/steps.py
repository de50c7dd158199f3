"""Splits a model into steps: graph layers, which take edges, and functions of rows, which take features alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from dacergnn.errors import UnsupportedLayerError
from dacergnn.frontends.linear import has_hooks


@dataclass(frozen=True)
class Step:
    """Describes a step of a model.

    Args:
        function: The function, called as ``function(x, edges, **arrays)`` or ``function(x)``.
        name: The name of the step in messages.
        takes_edges: Whether it is a graph layer.
        takes_dict: Whether a function of rows takes a dictionary by node type.
        arrays: Names of the edge arrays that a graph layer takes; None if it takes any.
    """

    function: Callable[..., Any]
    name: str
    takes_edges: bool = False
    takes_dict: bool = False
    arrays: frozenset[str] | None = frozenset()

    def takes(self, array: str) -> bool:
        """Returns whether the step takes an edge array of this name."""
        return self.arrays is None or array in self.arrays


def steps_of(model: object) -> list[Step]:
    """Returns the steps of a model: those of a container, which runs one after the other, or the model itself.

    Raises:
        UnsupportedLayerError: A part cannot be called, or is in training mode.
    """
    steps = _steps(model)
    if not steps:
        raise UnsupportedLayerError("model", model, "give it one step at least")
    return steps


def in_words(steps: Iterable[Step]) -> str:
    """Returns the names of steps for messages."""
    return ", ".join(step.name for step in steps)


def in_a_row(steps: Sequence[Step], functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Returns the function that runs steps one after the other, with functions in place of their own."""
    known = [(f, step.takes_edges, step.takes_dict, step.arrays) for f, step in zip(functions, steps, strict=True)]

    def run(x: Any, edges: Any, **arrays: Any) -> Any:
        for function, takes_edges, takes_dict, names in known:
            if takes_edges:
                given = {name: array for name, array in arrays.items() if names is None or name in names}
                x = function(x, edges, **given)
            elif isinstance(x, dict) and not takes_dict:
                x = {kind: function(rows) for kind, rows in x.items()}
            else:
                x = function(x)
        return x

    return run


def modules_of(model: Any) -> list[nn.Module]:
    """Returns the modules that a model consists of."""
    if isinstance(model, nn.Module):
        return [*model.modules()]
    parts = cast("Iterable[Any]", model if isinstance(model, list | tuple) else ())
    return [module for part in parts for module in modules_of(part)]


def device_of(model: Any) -> torch.device | None:
    """Returns the device of a model's parameters; None if it has none."""
    return next((p.device for module in modules_of(model) for p in module.parameters()), None)


def _steps(model: Any) -> list[Step]:
    if isinstance(model, nn.Module) and any(part.training for part in model.modules()):
        remedy = "call eval() on the model before inference"
        raise UnsupportedLayerError("training", True, remedy, type(model).__name__)
    is_sequential = isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward
    if is_sequential or isinstance(model, list | tuple | nn.ModuleList):  # without a forward for graphs
        if isinstance(model, nn.Module) and has_hooks(model):
            remedy = "put hooks on its parts, which are called one by one"
            raise UnsupportedLayerError("hooks", True, remedy, type(model).__name__)
        return [step for part in cast("Iterable[Any]", model) for step in _steps(part)]
    if not callable(model):
        raise UnsupportedLayerError("model", model, "give a layer, a function of rows, or a list of these")
    return [_step(model)]


def _step(function: Any) -> Step:
    """Returns a layer or function as a step: a graph layer if it needs a second argument, or takes one of edges."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters
    except ValueError:  # for functions that are not written in Python, such as torch.relu
        return Step(function, name)
    kinds = {p.kind for p in parameters.values()}
    places = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    second = places[1] if len(places) > 1 else None
    asked = second is not None and (second.default is second.empty or second.name.startswith(("edge", "adj")))
    if asked or inspect.Parameter.VAR_POSITIONAL in kinds:
        others = None if inspect.Parameter.VAR_KEYWORD in kinds else frozenset([*parameters][2:])
        return Step(function, name, takes_edges=True, arrays=others)
    return Step(function, name, takes_dict=bool(places) and places[0].name.endswith("_dict"))
