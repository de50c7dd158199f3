"""Joins the functions of torch that give a graph self loops to one call of C++.

A layer removes the self loops that edges have, and adds one at each node: eight functions, which take longer than all
else that is done for a small graph once.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.frontends.pyg.self_loops import with_loops
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.modules.capture.uses import erase_unused

_ALL = slice(None, None, None)


def with_self_loops(edge_index: Tensor, count: int) -> Tensor:
    """Returns the edges between different nodes, [2, E'], then a self loop at each of ``count`` nodes, in their order.

    Args:
        edge_index: [2, E] integers, in any dtype.
    """
    return with_loops(edge_index, number(count))


def join_self_loops(module: fx.GraphModule) -> None:
    """Has a captured graph call `with_self_loops` where it does the same step by step."""
    found = [(node, parts) for node in module.graph.nodes if (parts := _parts(node)) is not None]
    for node, (others, edge_index, count) in found:
        with module.graph.inserting_after(others):
            made = module.graph.call_function(with_self_loops, (edge_index, count))
        made.meta = node.meta
        for size in [user for user in others.users if user is not node]:
            with module.graph.inserting_before(size):
                whole = module.graph.call_function(torch.ops.aten.sym_size.int, (made, 1))
            whole.meta["example_value"] = node.meta["example_value"].shape[1]
            size.target, size.args = operator.sub, (whole, count)
        node.replace_all_uses_with(made)
        erase_unused(node)
    if found:
        module.recompile()


def _parts(node: fx.Node) -> tuple[fx.Node, fx.Node, Any] | None:
    """Returns the edges between different nodes that a node joins with loops, all edges, and how many nodes there are.

    Returns None for a node that does anything else.
    """
    if node.target is not torch.cat or not node.args or node.kwargs.get("dim", (*node.args, None)[1]) not in (1, -1):
        return None
    joined: Any = node.args[0]
    if len(joined) != 2:
        return None
    others, loops = joined
    edge_index, count = _without_loops(others), _count_of_loops(loops)
    if edge_index is None or count is None or others.meta["example_value"].dtype is not torch.int64:
        return None
    sizes = [user for user in others.users if user is not node]
    before = {*others.graph.find_nodes(op="placeholder")}
    known = not isinstance(count, fx.Node) or count in before
    return (others, edge_index, count) if known and all(map(_is_count, sizes)) else None


def _without_loops(node: Any) -> fx.Node | None:
    """Returns the edges of which a node holds those between different nodes, ``e[:, e[0] != e[1]]``."""
    if not isinstance(node, fx.Node) or node.target is not operator.getitem:
        return None
    edge_index, index = node.args
    if not isinstance(edge_index, fx.Node) or not isinstance(index, tuple) or len(index) != 2 or index[0] != _ALL:
        return None
    mask = index[1]
    if not isinstance(mask, fx.Node) or mask.target not in (operator.ne, torch.ne, "ne"):
        return None
    rows = [row.args if isinstance(row, fx.Node) and row.target is operator.getitem else None for row in mask.args]
    return edge_index if rows in ([(edge_index, 0), (edge_index, 1)], [(edge_index, 1), (edge_index, 0)]) else None


def _count_of_loops(node: Any) -> Any:
    """Returns n for ``arange(n).view(1, -1).repeat(2, 1)`` of 64 bits; None for anything else."""
    if not isinstance(node, fx.Node) or (node.target, node.args[1:]) != ("repeat", (2, 1)):
        return None
    row: Any = node.args[0]
    if (row.target, row.args[1:]) not in (("view", (1, -1)), ("unsqueeze", (0,))):
        return None
    numbers: Any = row.args[0]
    plain = numbers.target is torch.arange and {*numbers.kwargs} <= {"device"}
    if not plain or numbers.meta["example_value"].dtype is not torch.int64:
        return None
    return numbers.args[-1] if numbers.args[:-1] in ((), (0,)) else None


def _is_count(node: fx.Node) -> bool:
    return node.target is torch.ops.aten.sym_size.int and node.args[1:] == (1,)
