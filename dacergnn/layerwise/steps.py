"""Splits a model into steps: graph layers, which take edges, and functions of rows, which take features alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from dacergnn.errors import ArrayError, UnsupportedLayerError
from dacergnn.frontends.linear import has_hooks

_SEQUENTIAL = "torch_geometric.nn.sequential.Sequential"


@dataclass(frozen=True)
class Step:
    """Describes a part of a model that is called once for each range.

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


@dataclass(frozen=True)
class Stage:
    """Describes a graph layer, or none, and the functions of rows that follow it."""

    layer: Step | None
    functions: tuple[Step, ...]

    @property
    def name(self) -> str:
        """Returns the name of the stage in messages."""
        return ", ".join(step.name for step in (self.layer, *self.functions) if step is not None)


def steps_of(model: object) -> list[Step]:
    """Returns the steps of a model: those of a container, which runs one after the other, or the model itself.

    Raises:
        UnsupportedLayerError: A part cannot be called, or is in training mode.
    """
    steps = _steps(model, _container)
    if not steps:
        raise UnsupportedLayerError("model", model, "give it one step at least")
    return steps


def in_a_row(steps: Iterable[Step]) -> Callable[..., Any]:
    """Returns the function that runs steps one after the other."""
    known = [(step.function, step.takes_edges, step.arrays) for step in steps]

    def run(x: Any, edges: Any, **arrays: Any) -> Any:
        for function, takes_edges, names in known:
            given = {name: array for name, array in arrays.items() if names is None or name in names}
            x = function(x, edges, **given) if takes_edges else function(x)
        return x

    return run


def stages_of(model: object) -> list[Stage]:
    """Returns the stages of a chain; each one but the first begins with a graph layer.

    Raises:
        UnsupportedLayerError: A part cannot be called, is in training mode, or is wired in another way than as a chain.
    """
    stages: list[Stage] = []
    for step in _steps(model, _chain):
        if step.takes_edges or not stages:
            stages.append(Stage(step, ()) if step.takes_edges else Stage(None, (step,)))
        else:
            stages[-1] = Stage(stages[-1].layer, (*stages[-1].functions, step))
    return stages


def modules_of(model: Any) -> list[nn.Module]:
    """Returns the modules that a model consists of."""
    if isinstance(model, nn.Module):
        return [*model.modules()]
    parts = cast("Iterable[Any]", model if isinstance(model, list | tuple) else ())
    return [module for part in parts for module in modules_of(part)]


def device_of(model: Any) -> torch.device | None:
    """Returns the device of a model's parameters; None if it has none."""
    return next((p.device for module in modules_of(model) for p in module.parameters()), None)


def _steps(model: Any, splitter: _Splitter) -> list[Step]:
    if isinstance(model, nn.Module) and any(part.training for part in model.modules()):
        remedy = "call eval() on the model before inference"
        raise UnsupportedLayerError("training", True, remedy, type(model).__name__)
    split = splitter(model)
    if split is not None:
        if isinstance(model, nn.Module) and has_hooks(model):
            remedy = "put hooks on its parts, which are called one by one"
            raise UnsupportedLayerError("hooks", True, remedy, type(model).__name__)
        return split(model)
    if not callable(model):
        raise UnsupportedLayerError("model", model, "give a layer, a function of rows, or a list of these")
    return [_step(model)]


_Splitter = Callable[[object], Callable[[Any], list[Step]] | None]


def _container(model: object) -> Callable[[Any], list[Step]] | None:
    """Returns the function that splits a container without a forward for graphs; None for other models."""
    if isinstance(model, list | tuple | nn.ModuleList):
        return _of_parts
    is_sequential = isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward
    return _of_parts if is_sequential else None


def _chain(model: object) -> Callable[[Any], list[Step]] | None:
    """Returns the function that splits a chain of layers; None if the model is one step."""
    classes = [f"{c.__module__}.{c.__qualname__}" for c in type(model).__mro__]
    return _of_sequential if _SEQUENTIAL in classes else _container(model)


def _of_parts(model: Iterable[Any]) -> list[Step]:
    return [step for part in model for step in _steps(part, _chain)]


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


def _of_sequential(model: Any) -> list[Step]:
    """Returns the steps of PyG's `Sequential`, each of which must take what the one before gives."""
    current, *arguments = model.signature.param_dict
    steps: list[Step] = []
    for child in model._children:
        first, *others = child.param_names
        wired = first == current and others[:1] in ([], arguments[:1]) and set(others[1:]) <= set(arguments[1:])
        if not wired or len(child.return_names) != 1 or child.return_names[0] in arguments:
            wiring = f"{', '.join(child.param_names)} -> {', '.join(child.return_names)}"
            remedy = "give a chain, in which each step takes what the one before gives"
            raise UnsupportedLayerError(child.name, wiring, remedy, "Sequential")
        part = getattr(model, child.name)
        steps += [_by_position(part, others[1:])] if others else _steps(part, _chain)
        current = child.return_names[0]
    return steps


def _by_position(layer: Callable[..., Any], names: list[str]) -> Step:
    """Returns the step of a graph layer that takes the edge arrays of these names in this order."""

    def call(x: Any, edges: Any, **arrays: Any) -> Any:
        for name in names:
            if name not in arrays:
                raise ArrayError(name, f"is missing, which {type(layer).__name__} takes; give it by this name")
        return layer(x, edges, *(arrays[name] for name in names))

    return Step(call, type(layer).__name__, takes_edges=True, arrays=frozenset(names))
