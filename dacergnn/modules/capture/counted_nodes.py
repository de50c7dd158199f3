"""Reduces to the rows of all nodes where a forward counts nodes by the largest index of the edges.

PyG's softmax over neighbours does so if nobody tells it how many nodes there are. Nobody reads rows behind those that
edges lead to, so that their number makes no difference, and all rows of nodes are alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.modules.capture.ends import gather_of, ids_of, reduction_of
from dacergnn.modules.capture.integers import Integers
from dacergnn.modules.capture.uses import erase_unused

_OF_ROWS = frozenset((
    operator.add, operator.sub, operator.mul, operator.truediv, "add", "sub", "mul", "div", "clamp", "clamp_min",
    "detach", "exp", "log", "sqrt", "neg", "reciprocal",
))  # fmt: skip
"""Functions that compute each row from the same row and from numbers."""
_Same = Callable[[fx.Node], fx.Node]


def count_nodes(module: fx.GraphModule) -> None:
    """Changes a captured graph so."""
    graph, same = module.graph, Integers(module.graph).same
    changed = False
    for zeros in [*graph.find_nodes(op="call_method", target="new_zeros")]:
        index = _index_of(zeros, same)
        rows = None if index is None else _rows_read_by(next(iter(zeros.users)), index, same)
        size = None if index is None or rows is None else _size_known_before(zeros, index, same)
        if rows is not None and size is not None:
            _resize(zeros, rows, size)
            changed = True
    if changed:
        module.recompile()


def _index_of(zeros: fx.Node, same: _Same) -> fx.Node | None:
    """Returns the ends of edges that rows are added to zeros by, if the zeros are as many as the largest of these."""
    reduction = reduction_of(next(iter(zeros.users))) if len(zeros.users) == 1 else None
    index = None if reduction is None or reduction[0] is not zeros else ids_of(reduction[1])
    if index is None:
        return None
    shape, edges = _shape(zeros), index.meta["example_value"].shape[0]
    if not shape:
        return None
    count = shape[0]
    is_largest = _is_next_to_largest(count, same(index), same) or (count == 0 and edges == 0)
    return same(index) if is_largest else None


def _is_next_to_largest(count: Any, index: fx.Node, same: _Same) -> bool:
    """Returns whether a number is the largest of some integers plus one."""
    if not isinstance(count, fx.Node) or count.target not in (torch.sym_sum, operator.add):
        return False
    terms: Any = count.args[0] if count.target is torch.sym_sum else count.args
    nodes = [term for term in terms if isinstance(term, fx.Node)]
    if len(terms) != 2 or len(nodes) != 1 or 1 not in terms or nodes[0].target != "item":
        return False
    largest: Any = nodes[0].args[0]
    return largest.target in ("max", torch.max) and len(largest.args) == 1 and same(largest.args[0]) is index


def _rows_read_by(node: fx.Node, index: fx.Node, same: _Same) -> list[fx.Node] | None:
    """Returns a node and those made of it row by row, if only edges with these ends read the rows in the end."""
    found = [node]
    for user in node.users:
        gather = gather_of(user)
        if gather is not None and gather[0] is node and (ids := ids_of(gather[1])) is not None and same(ids) is index:
            continue
        rows = _rows_read_by(user, index, same) if user.target in _OF_ROWS and user.all_input_nodes == [node] else None
        if rows is None:
            return None
        found += rows
    return found


def _size_known_before(zeros: fx.Node, index: fx.Node, same: _Same) -> fx.Node | None:
    """Returns a node for the number of nodes that edges with these ends lead to; None if it is not known by then."""
    before = True
    for node in zeros.graph.nodes:
        before = before and node is not zeros
        gather, reduction = gather_of(node), reduction_of(node)
        if before and gather is not None and (ids := ids_of(gather[1])) is not None and same(ids) is index:
            with zeros.graph.inserting_before(zeros):
                size = zeros.graph.call_function(torch.ops.aten.sym_size.int, (gather[0], 0))
            size.meta["example_value"] = gather[0].meta["example_value"].shape[0]
            return size
        if reduction is not None and reduction[0].target == "new_zeros" and same(ids_of(reduction[1]) or node) is index:
            count = _shape(reduction[0])[0]
            if isinstance(count, fx.Node) and count.op == "placeholder":
                return count
    return None


def _shape(zeros: fx.Node) -> Any:
    """Returns the sizes that a node asks zeros for."""
    given: Any = zeros.args[1:] or (zeros.kwargs["size"],)
    sizes: Any = given[0] if len(given) == 1 else given
    if isinstance(sizes, fx.Node) and sizes.target is torch.Size:
        (sizes,) = sizes.args
    return sizes if isinstance(sizes, tuple | list) else [sizes]


def _resize(zeros: fx.Node, rows: list[fx.Node], size: fx.Node) -> None:
    """Has zeros, and the rows that are made of them, be of another number."""
    with zeros.graph.inserting_before(zeros):
        shape = zeros.graph.call_function(torch.Size, ([size, *_shape(zeros)[1:]],))
    before = zeros.args[1:]
    zeros.args = (zeros.args[0], shape)
    zeros.kwargs = {name: value for name, value in zeros.kwargs.items() if name != "size"}
    for node in before:  # torch would take writes for unused, too
        if isinstance(node, fx.Node):
            erase_unused(node)
    count = size.meta["example_value"]
    for node in (zeros, *rows):
        value: Tensor = node.meta["example_value"]
        node.meta["example_value"] = value.new_empty((count, *value.shape[1:]))
