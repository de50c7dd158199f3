"""Tells which nodes of a captured graph are used, how, and until when."""

from __future__ import annotations

import operator

from torch import fx

from dacergnn.modules.capture.integers import IN_PLACE

_PARTS = (operator.getitem, "view", "reshape", "narrow", "select", "t", "transpose", "squeeze", "unsqueeze", "flatten")
"""Functions whose results may share memory with their first argument."""


def results_in_use(graph: fx.Graph) -> set[fx.Node]:
    """Returns the results of a graph that other nodes use as well."""
    (output,) = [node for node in graph.nodes if node.op == "output"]
    return {node for node in output.all_input_nodes if len(node.users) > 1}


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
        name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
        if user.target in IN_PLACE or (name.endswith("_") and not name.endswith("__")):
            return True
        if user.target in _PARTS and is_written(user):
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
