"""Finds the part of a captured graph that computes integers and sizes from nothing else: it comes first, and once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.modules.capture.uses import CALLS, name_of, writes


class Integers:
    """Holds the nodes that depend on integers and sizes alone, and for each the first one that computes the same."""

    def __init__(self, graph: fx.Graph) -> None:
        self.nodes: dict[fx.Node, fx.Node] = {}
        written = _written(graph)
        known: dict[object, fx.Node] = {}
        for node in graph.nodes:
            if node in written or not _integers(node.meta.get("example_value")):
                continue
            if node.op == "placeholder":
                self.nodes[node] = node
            elif node.op in CALLS and self._pure(node):
                is_result = any(user.op == "output" for user in node.users)  # users may write to one of several
                self.nodes[node] = node if is_result else known.setdefault(self._key(node), node)

    def same(self, node: fx.Node) -> fx.Node:
        """Returns one node for all that hold the same."""
        return self.nodes.get(node, node)

    def _pure(self, node: fx.Node) -> bool:
        name, inputs = name_of(node), {*node.all_input_nodes}
        if name.startswith("sym_size") and all(given.op == "placeholder" for given in inputs):
            return True
        if not inputs <= self.nodes.keys():
            return False
        if name == "item":  # of an argument, it is a number that networks are told apart by
            return node.all_input_nodes[0].op != "placeholder"
        return not name.endswith("_") and name not in ("bincount", "getattr") and "rand" not in name

    def _key(self, node: fx.Node) -> object:
        try:
            return (node.op, node.target, _hashable(self.same, node.args), _hashable(self.same, node.kwargs))
        except TypeError:
            return node


def _integers(value: Any) -> bool:
    """Returns whether a value is a size, or tensors of integers or truth values."""
    if isinstance(value, tuple | list):
        return bool(value) and all(map(_integers, value))
    if isinstance(value, Tensor):
        return not (value.is_floating_point() or value.is_complex()) and value.layout is torch.strided
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


def _written(graph: fx.Graph) -> set[fx.Node]:
    """Returns the nodes whose memory some node writes to, or shares with such a one."""
    written: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op not in CALLS or not node.args:
            continue
        shares = node in written and _integers(node.meta.get("example_value"))  # views are of the first argument
        if shares or writes(node):
            written.update(n for n in _nodes(node.args[0]) if isinstance(n, fx.Node))
        written.update(n for n in _nodes(node.kwargs.get("out")) if isinstance(n, fx.Node))
    return written


def _nodes(tree: Any) -> tuple[Any, ...]:
    return tuple(tree) if isinstance(tree, tuple | list) else (tree,)


def _hashable(same: Any, tree: Any) -> object:
    if isinstance(tree, fx.Node):
        return same(tree)
    if isinstance(tree, tuple | list):
        return tuple([_hashable(same, item) for item in tree])
    if isinstance(tree, dict):
        return tuple([(key, _hashable(same, value)) for key, value in tree.items()])
    if isinstance(tree, slice):
        return "slice", *[_hashable(same, part) for part in (tree.start, tree.stop, tree.step)]
    hash(tree)
    return type(tree), tree
