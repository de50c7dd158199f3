"""Rewrites a captured graph so that each node depends on nothing but the values of its arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.errors import UnsupportedCallError
from dacergnn.modules.capture.ends import reduction_of
from dacergnn.modules.capture.sources import place_of
from dacergnn.modules.capture.uses import CALLS, name_of, writes

_MAKES: dict[Any, Callable[..., Tensor]] = {
    "new_zeros": torch.zeros, "new_ones": torch.ones, "new_full": torch.full, "new_empty": torch.empty,
}  # fmt: skip


def assigned(target: Tensor, index: Any, value: Any) -> Tensor:
    """Returns a tensor in which ``target[index]`` is the value."""
    target[index] = value
    return target


def make_functional(module: fx.GraphModule, who: str) -> None:
    """Has later nodes use the result of a node that writes, and has it write to memory that no other node uses.

    A new tensor of the type of another one no longer depends on that one.

    Raises:
        UnsupportedCallError: An argument of the model is written to, or what is written is read by another view.
    """
    graph = module.graph
    places = {node: i for i, node in enumerate(graph.nodes)}
    for node in [*graph.nodes]:
        make = _MAKES.get(node.target) if node.op == "call_method" else None
        if make is not None:
            _detach_creation(node, make)
        if not (writes(node) or _is_told_to_write(node)):
            continue
        target = node.args[0] if node.args else None
        known = [o for o in _same_memory(graph, target) if places[o] < places[node]] if _is_node(target) else []
        later = [o for o in known if o is not target and any(places[u] > places[node] for u in o.users)]
        if not known or later or any(o.op in ("placeholder", "get_attr") for o in known):
            raise UnsupportedCallError(
                f"{who} cannot be computed range by range: {name_of(node)} at {place_of(node)} writes to memory that "
                "is read by another name. Write the result to a new tensor."
            )
        assert isinstance(target, fx.Node)
        target.replace_all_uses_with(node, lambda user, node=node: places.get(user, -1) > places[node])
        if node.target is operator.setitem:
            node.target = assigned
            node.meta["example_value"] = target.meta["example_value"]
        if len(target.users) > 1 or len(known) > 1:
            with graph.inserting_before(node):
                copy = graph.call_function(torch.clone, (target,))
            copy.meta = dict(target.meta)
            places[copy] = places[node]
            node.replace_input_with(target, copy)


def drop_empty(graph: fx.Graph) -> None:
    """Makes tensors that have no elements whatever the graph constants, and leaves out reductions of such."""
    for node in [*graph.nodes]:
        reduction = reduction_of(node)
        if reduction is not None and is_empty(reduction[1]):
            node.replace_all_uses_with(reduction[0])
        elif node.op in CALLS and is_empty(node) and not _is_result(node):
            made = node.meta["example_value"]
            node.op, node.target = "call_function", torch.zeros
            node.args, node.kwargs = (tuple(made.shape),), {"dtype": made.dtype, "device": made.device}


def _is_result(node: fx.Node) -> bool:
    return any(user.op == "output" for user in node.users)


def is_empty(node: fx.Node) -> bool:
    """Returns whether a node is a tensor without elements whatever the graph."""
    value = node.meta.get("example_value")
    return isinstance(value, Tensor) and any(type(size) is int and size == 0 for size in value.shape)


def _detach_creation(node: fx.Node, make: Callable[..., Tensor]) -> None:
    """Makes a node of ``tensor.new_zeros(...)`` one of ``torch.zeros(...)``."""
    made = node.meta["example_value"]
    node.op, node.target, node.args = "call_function", make, node.args[1:]
    node.kwargs = {**node.kwargs, "dtype": made.dtype, "device": made.device}


def _is_told_to_write(node: fx.Node) -> bool:
    """Returns whether an argument ``inplace`` is true."""
    code = getattr(node.target, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount]
    return bool((dict(zip(names, node.args, strict=False)) | node.kwargs).get("inplace"))


def _is_node(argument: object) -> bool:
    return isinstance(argument, fx.Node)


def _same_memory(graph: fx.Graph, target: Any) -> list[fx.Node]:
    """Returns the nodes whose tensors share the memory of a node's tensor, with itself."""
    own = _memory(target)
    return [node for node in graph.nodes if node is target or (own is not None and _memory(node) == own)]


def _memory(node: fx.Node) -> int | None:
    value = node.meta.get("example_value")
    storage: Any = value.untyped_storage() if isinstance(value, Tensor) else None
    return None if storage is None else storage._cdata
