"""Tells where in the user's code and modules the nodes and inputs of a captured graph come from."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, fx


def is_number(node: fx.Node) -> bool:
    """Returns whether an input is a number in the form of a tensor."""
    value = node.meta.get("example_value")
    return isinstance(value, Tensor) and not value.dim() and any(user.target == "item" for user in node.users)


def reads_number(node: fx.Node) -> bool:
    """Returns whether a node reads a number or a truth value, but no integer, of a tensor that is no input."""
    if node.target != "item" or not isinstance(node.args[0], fx.Node) or node.args[0].op == "placeholder":
        return False
    value = node.args[0].meta.get("example_value")
    return isinstance(value, Tensor) and (value.is_floating_point() or value.dtype is torch.bool)


def place_of(node: fx.Node) -> str:
    """Returns the place in the user's code that a node comes from."""
    lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines()]
    places = [line for line in lines if line.startswith("File ")]
    return re.sub(r".*[/\\]", "", places[-1].replace('"', "")) if places else "unknown place"


def _source(node: fx.Node) -> str:
    """Returns where torch has found an input."""
    argument = node.meta.get("grapharg")
    source: Any = None if argument is None else argument.source.name
    return str(source() if callable(source) else source)  # a method in some releases of torch


def label(node: fx.Node) -> str:
    """Returns the name of an argument of the call, or of a size."""
    argument = re.fullmatch(r"L\['(\w+)'\](?:\.size\(\)\[(\d+)\])?", _source(node))
    if argument is None:
        return str(node.target)
    return argument[1] if argument[2] is None else f"{argument[1]}.size({argument[2]})"


def own_path(node: fx.Node) -> str | None:
    """Returns the path of the parameter or buffer that an input is; None for an argument of the call."""
    name = _source(node)
    found = re.findall(r"_(modules|parameters|buffers)(?:'\])?\['([^']+)'\]", name)  # also in the __dict__ of a module
    return ".".join([key for _, key in found]) if found and found[-1][0] != "modules" else None
