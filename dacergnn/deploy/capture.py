"""Traces a model with torch.export, whose sizes of nodes, edges and batches stay open."""

from __future__ import annotations

import copy
import warnings
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from dacergnn.errors import ArrayError, DacergnnError, UnsupportedCallError

_OPEN = torch.export.Dim.DYNAMIC


def dynamic_shapes(value: Any) -> Any:
    """Returns the open sizes of arguments, in their structure: those of edges [2, E], else of the first axis."""
    if isinstance(value, dict):
        return {key: dynamic_shapes(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple):
        return tuple([dynamic_shapes(item) for item in value])  # pyright: ignore[reportUnknownVariableType]
    node = pytree.SUPPORTED_NODES.get(type(value))  # torch takes a list for the tensors of a graph
    return _open(value) if node is None else [dynamic_shapes(item) for item in node.flatten_fn(value)[0]]


def _open(leaf: Any) -> dict[int, Any] | None:
    if not isinstance(leaf, Tensor) or not leaf.dim():
        return None
    edges = not leaf.is_floating_point() and leaf.dim() == 2 and leaf.size(0) in (2, 4)
    return {1: _OPEN} if edges else {0: _OPEN}


def _enlarged(leaf: Any) -> Any:
    """Returns an argument whose open size is 2 at least, since torch takes 0 and 1 for fixed; it reads no numbers."""
    for axis in _open(leaf) or ():
        if leaf.size(axis) < 2:
            return leaf.new_zeros(*[2 + size if i == axis else size for i, size in enumerate(leaf.shape)])
    return leaf


def capture(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, shapes: Any = None
) -> torch.export.ExportedProgram:
    """Returns the exported program of a model in eval mode, with operations that write to no argument.

    Args:
        args: An example of a call.
        kwargs: The keyword arguments of the example.
        shapes: ``dynamic_shapes`` of `torch.export.export`; None for `dynamic_shapes` of the arguments.

    Raises:
        ArrayError: The model is in training mode, or the example is none.
        UnsupportedCallError: torch cannot trace the model.
    """
    training = next((name or "the model" for name, module in model.named_modules() if module.training), None)
    if training is not None:
        raise ArrayError("model", f"is in training mode ({training}); call model.eval() before it is exported")
    if not isinstance(args, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArrayError("example", f"is a {type(args).__name__}; pass a tuple of the arguments of a call")
    kwargs = kwargs or {}
    with torch.no_grad():
        model(*args, **kwargs)  # builds programs for graphs like those of the example
        if shapes is None:
            shapes = _by_parameter(model, args, kwargs)
            args, kwargs = pytree.tree_map(_enlarged, (args, kwargs))
        try:
            program = torch.export.export(_in_one_place(model), args, kwargs, dynamic_shapes=shapes, strict=False)
        except DacergnnError:
            raise
        except Exception as error:  # whatever code of the model and torch's tracer raise
            raise UnsupportedCallError(f"torch.export cannot trace the model: {error}") from error
    with warnings.catch_warnings():  # torch copies structures of its own in a way that it warns of
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        return program.run_decompositions({})


def _in_one_place(model: nn.Module) -> nn.Module:
    """Returns a model in which no module is in two places, as an activation that layers share.

    torch would give all of its modules other classes then, which those of compiled layers cannot have.
    """
    seen: set[nn.Module] = set()

    def apart(module: nn.Module) -> nn.Module:
        own: dict[str, nn.Module | None] = vars(module)["_modules"]
        children = {name: child and apart(child) for name, child in own.items()}
        if module not in seen and all(children[name] is child for name, child in own.items()):
            seen.add(module)
            return module
        made = copy.copy(module)
        made.__dict__["_modules"] = children
        return made

    return apart(model)


def _by_parameter(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    open_args = tuple([dynamic_shapes(arg) for arg in args])
    if not kwargs:
        return open_args
    named = dict(zip(signature(model.forward).parameters, open_args, strict=False))
    return named | {name: dynamic_shapes(value) for name, value in kwargs.items()}
