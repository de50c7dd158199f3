"""Finds what programs do not follow in a captured graph: hooks, writes that autograd does not see, other functions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator

from dacergnn.frontends.symbolic.table import IN_PLACE as WRITING
from dacergnn.frontends.symbolic.table import RULES
from dacergnn.modules.capture.ends import gather_of, reduction_of
from dacergnn.modules.capture.sources import place_of
from dacergnn.modules.capture.uses import OPERATORS, is_written, name_of

_OF_GRADIENTS = frozenset(("register_hook", "retain_grad", "register_post_accumulate_grad_hook", "backward"))
_DIFFERENTIATES = (torch.autograd.grad, torch.autograd.backward)
_FUNCTION = "autograd_function_apply"
"""The name of the operator for subclasses of `torch.autograd.Function` in graphs."""
_DATA = "_get_data_attr"
"""The name of torch's function for ``.data`` in graphs."""
_WRITES_TO_ARRAYS = {f"wrapped_{function.__name__}" for function in OPERATORS}
"""The names by which torch calls operators that write to arrays of NumPy, of whose writes autograd knows nothing."""


def shortfall(graph: fx.Graph, *, layered: bool) -> str | None:
    """Returns why a forward can do more than what torch has captured of it, or faster with its compiled layers."""
    for node in graph.nodes:
        if name_of(node) == _FUNCTION:
            return f"of a torch.autograd.Function, torch captures first derivatives only ({place_of(node)})."
        if layered and isinstance(node.target, HigherOrderOperator):
            return f"torch runs all layers within a {node.target} ({place_of(node)})."
    return None


def refusal(graph: fx.Graph) -> str | None:
    """Returns why a graph has to run as it is; None if it need not."""
    for node in graph.nodes:
        name = name_of(node)
        if name in _OF_GRADIENTS or node.target in _DIFFERENTIATES:
            return f"{name} is called for a tensor within the forward ({place_of(node)})."
        if name == _DATA and _is_read(node) and is_written(node):
            return f"a tensor is written to by way of .data ({place_of(node)})."
        if name in _WRITES_TO_ARRAYS:
            return f"it writes to an array of NumPy in place ({place_of(node)})."
    return None


def obstacle(graph: fx.Graph) -> str | None:
    """Returns which function of values per edge has no form in a program: the first; None if there is none."""
    of_edges: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("example_value")
        if not isinstance(value, Tensor) or not value.is_floating_point():
            if not of_edges.isdisjoint(node.all_input_nodes) and isinstance(value, tuple | list):
                return _formless(node)
            continue
        if gather_of(node) is not None:
            of_edges.add(node)
        elif not of_edges.isdisjoint(node.all_input_nodes) and reduction_of(node) is None:
            function = getattr(Tensor, node.target, None) if isinstance(node.target, str) else node.target
            known = function in RULES or function in WRITING or getattr(function, "__module__", "") == "_operator"
            if not known and not name_of(node).startswith("new_"):
                return _formless(node)
            of_edges.add(node)
    return None


def failure(error: Exception) -> str:
    """Returns what torch says of a call that it cannot capture, and where in the user's code."""
    inner = re.search(r"""got \w+\(["'](.*)["']\)""", str(error))  # of a function that torch tries on shapes alone
    text = str(error).partition("\n")[0] if inner is None else inner[1]
    stack: Any = getattr(error, "real_stack", None)
    if not stack:
        return text
    last = stack[-1]
    return f"{text} ({Path(last.filename).name}, line {last.lineno}, in {last.name})."


def public_name(function: Any) -> str:
    """Returns the name of a function in a graph as users know it."""
    name = getattr(function, "__name__", str(function))
    return f"NumPy's {name.removeprefix('wrapped_')}" if name.startswith("wrapped_") else name.removeprefix("_enter_")


def _formless(node: fx.Node) -> str:
    return f"torch.{name_of(node)} of a value per edge has no form in a program ({place_of(node)})."


def _is_read(node: fx.Node) -> bool:
    """Returns whether others read the tensor itself."""
    return any(len(other.users) > 1 for other in node.all_input_nodes)
