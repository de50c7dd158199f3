"""Tells which nodes of a captured graph are used, how, and until when, and which of them write."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from torch import fx

_PARTS = (operator.getitem, "view", "reshape", "narrow", "select", "t", "transpose", "squeeze", "unsqueeze", "flatten")
"""Functions whose results may share memory with their first argument."""


CALLS = ("call_function", "call_method")
OPERATORS = frozenset(
    [getattr(operator, n) for n in operator.__all__ if n[0] == "i" and hasattr(operator, f"__{n[1:]}__")]
)
"""Operators that write to their first argument, such as ``+=``."""


def name_of(node: fx.Node) -> str:
    """Returns the name of the function or method of a node."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def writes(node: fx.Node) -> bool:
    """Returns whether a node writes to its first argument, as its name says."""
    name = name_of(node)
    in_place = (name.endswith("_") and not name.endswith("__")) or node.target in (operator.setitem, *OPERATORS)
    return node.op in CALLS and in_place


def results_in_use(graph: fx.Graph) -> set[fx.Node]:
    """Returns the results of a graph that other nodes use as well."""
    (output,) = [node for node in graph.nodes if node.op == "output"]
    return {node for node in output.all_input_nodes if len(node.users) > 1}


def needed(graph: fx.Graph, nodes: Iterable[fx.Node], inputs: Callable[[fx.Node], Iterable[fx.Node]]) -> list[fx.Node]:
    """Returns nodes and all that they are computed from, in order; ``inputs`` tells what a node is computed from."""
    found = {*nodes}
    for node in reversed(graph.nodes):
        if node in found:
            found.update(inputs(node))
    return [node for node in graph.nodes if node in found]


def last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Returns the nodes that nobody uses after a node, by that node."""
    seen: set[fx.Node] = set()
    last: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(graph.nodes):
        for used in (node, *node.all_input_nodes):
            if used not in seen:
                seen.add(used)
                last.setdefault(node, []).append(used)
    return last


def is_written(node: fx.Node) -> bool:
    """Tells whether others write to the memory of a node."""
    for user in (user for user in node.users if user.args and user.args[0] is node):
        if writes(user) or (user.target in _PARTS and is_written(user)):
            return True
    return False


def erase_unused(node: fx.Node) -> None:
    """Erases a node that nobody uses, and what only it has used."""
    if node.users or node.op == "placeholder":
        return
    inputs = node.all_input_nodes
    node.graph.erase_node(node)
    for other in inputs:
        erase_unused(other)
