"""Messages of edges joined with rows of nodes before their sum, as the boundary of a Bellman-Ford network.

`torch.cat([messages, rows])`, summed by `torch.cat([index, torch.arange(N)])`, is the sum of the messages plus the
rows. Until then, functions of what was joined are recorded like functions of other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.call import LayerCall
from dacergnn.frontends.symbolic.edges import SIDES, EndIndex, JoinedIndex, untracked
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, reached, squeezed
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.frontends.symbolic.value import Value

_NOT_ROWWISE = ("leaf", "gather", "aggregate", "degree", "pair_mean")


def join(c: LayerCall, tensors: Sequence[Any]) -> Expr:
    """Returns rows of edges followed by rows of nodes."""
    if len(tensors) != 2 or type(tensors[0]) is not Value or not tensors[0].node.expr.on_edges:
        raise Untranslatable
    shapes = [torch.Size(tensor.shape) for tensor in tensors]
    parts = [c.fitted(c.operand(tensor, own), own) for tensor, own in zip(tensors, shapes, strict=True)]
    if parts[1].on_edges or any(e.op == "join" for e in reached(parts)):
        raise Untranslatable
    return Expr("join", tuple(parts), (number(shapes[0][0]),), squeezed(c.shape))


def joined_ends(trace: Trace, ends: Any, nodes: Any) -> JoinedIndex | None:
    """Returns the ends of edges followed by all nodes once; None for other numbers."""
    if type(ends) is not EndIndex or ends.side not in SIDES or ends.dim() != 1:
        return None
    if type(nodes) is not Tensor or nodes.dim() != 1 or not torch.equal(nodes, torch.arange(len(nodes)).to(nodes)):
        return None
    trace.once("the numbers of an index are read")
    with untracked():
        plain = torch.cat([ends.plain, nodes])
    index = plain.as_subclass(JoinedIndex)
    index.edges, index.side, index.plain, index.axis, index.nodes = ends.edges, ends.side, plain, 0, len(nodes)
    return index


def split(expr: Expr, edges: int) -> tuple[Expr, Expr]:
    """Returns what an expression of joined rows is for the ``edges`` in front, and for the nodes behind them."""
    return _part(expr, 0, edges, {}), _part(expr, 1, edges, {})


def _part(expr: Expr, position: int, edges: int, known: dict[int, Expr]) -> Expr:
    if expr.uniform:
        return expr
    if expr.op == "join":
        if expr.data != (edges,):
            raise Untranslatable
        return expr.args[position]
    if expr.op in _NOT_ROWWISE:
        raise Untranslatable
    if expr.serial not in known:
        args = tuple([_part(a, position, edges, known) for a in expr.args])
        part = known[expr.serial] = Expr(expr.op, args, expr.data, expr.shape)
        part.caller = expr.caller
    return known[expr.serial]
