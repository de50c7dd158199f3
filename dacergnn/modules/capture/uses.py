"""Tells which nodes of a captured graph are used, and until when."""

from __future__ import annotations

from torch import fx


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
