"""Messages along several relations of a heterograph as one typed program.

Every relation is recorded for itself. If all do the same with weights of their own, the result is one expression over
the edges of all relations, in which weights are chosen by relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dacergnn.frontends.dgl.all_edges import ENDS, AllEdges
from dacergnn.frontends.dgl.edges import GraphEdges
from dacergnn.frontends.symbolic.expr import Expr
from dacergnn.frontends.symbolic.value import Node, Value

if TYPE_CHECKING:
    from dacergnn.frontends.symbolic.trace import Trace


class Differs(Exception):
    """Signals that relations do different things."""


class Together:
    """Joins expressions of several relations, one for each of ``edges.parts``, to expressions over all their edges."""

    def __init__(self, trace: Trace, edges: AllEdges) -> None:
        self.trace, self.edges = trace, edges
        self._made: dict[tuple[object, ...], Expr] = {}
        self._keys: dict[int, object] = {}
        self._stacks: dict[tuple[object, ...], Expr] = {}
        self._held: list[Sequence[Expr]] = []  # so that ids stay their own

    def sum(self, messages: Sequence[Expr], means: torch.dtype | None) -> Expr:
        """Sums messages at their destinations, or their means along each relation, if ``means`` is their type."""
        message = self._edge(messages)
        if means is not None:
            share = Expr("pair_mean", (), (means,))
            share.edges, share.on_edges = self.edges, True
            message = Expr("mul", (share, message), (), message.shape)
        if message.uniform:
            raise Differs
        return self._on_nodes(Expr("aggregate", (message,), ("dst", "+="), message.shape))

    def _edge(self, exprs: Sequence[Expr]) -> Expr:
        """Joins expressions with rows of edges."""
        return self._once("edge", exprs, self._make_edge)

    def _make_edge(self, exprs: Sequence[Expr]) -> Expr:
        first = _alike(exprs)
        if first.op == "gather" and first.data[0] in ENDS:
            return self._at([e.args[0] for e in exprs], first.data[0])
        if first.op == "leaf":
            if first.data == ("one",):
                return self._parameter(exprs, "etype", [e.tensor for e in exprs])
            return self._leaf(torch.cat([_rows(e) for e in exprs]), ("edges", *map(id, exprs)))
        return self._operator(first, [self._edge(args) for args in _arguments(exprs)])

    def _at(self, exprs: Sequence[Expr], side: str) -> Expr:
        """Joins expressions with rows of nodes, read at one end of the edges."""
        return self._once(side, exprs, lambda group: self._make_at(group, side))

    def _make_at(self, exprs: Sequence[Expr], side: str) -> Expr:
        first = _alike(exprs)
        if any(e.edges is not None for e in exprs):
            if side != "dst":
                raise Differs
            return self._on_edges(Expr("gather", (self._pair(exprs),), ("dstpair",), first.shape))
        if first.uniform:
            return self._edge(exprs)
        try:
            return self._on_edges(Expr("gather", (self._node(exprs, side),), (side,), first.shape))
        except Differs:
            if first.op == "leaf":
                raise
        return self._operator(first, [self._at(args, side) for args in _arguments(exprs)])

    def _pair(self, exprs: Sequence[Expr]) -> Expr:
        """Joins expressions of destinations along one relation each, to rows of (destination, relation) pairs."""
        return self._once("pair", exprs, self._make_pair)

    def _make_pair(self, exprs: Sequence[Expr]) -> Expr:
        first = _alike(exprs)
        if first.op == "aggregate" and first.data[:1] == ("dst",):
            message = self._edge([e.args[0] for e in exprs])
            return self._on_nodes(Expr("aggregate", (message,), ("dstpair", *first.data[1:]), first.shape))
        if first.op == "leaf":
            if any(e.tensor is not first.tensor or e.data != ("one",) for e in exprs):
                raise Differs
            return first
        return self._operator(first, [self._pair(args) for args in _arguments(exprs)])

    def _node(self, exprs: Sequence[Expr], side: str) -> Expr:
        """Joins rows of nodes of all types; relations with the same type at this end have to agree."""
        kinds: dict[str, Expr] = {}
        for part, expr in zip(self.edges.parts, exprs, strict=True):
            other = kinds.setdefault(part.relation[ENDS[side]], expr)
            if self._key(other) != self._key(expr):
                raise Differs
        return self._across(kinds, side)

    def _across(self, kinds: dict[str, Expr], side: str) -> Expr:
        """Returns one expression for nodes of all types; nodes of types that take no part hold zeros."""
        first = _alike(list(kinds.values()))
        names = self.edges.counts[side]
        if first.op == "leaf":
            leaves = [kinds.get(name) for name in names]
            if first.data == ("one",):
                return self._parameter(list(kinds.values()), "ntype", [e and e.tensor for e in leaves])
            tensors = [e and e.tensor for e in leaves]
            like = _rows(first)
            blocks = [
                like.new_zeros(count, *first.shape) if e is None else _rows(e)
                for e, count in zip(leaves, names.values(), strict=True)
            ]
            return self._leaf(torch.cat(blocks), ("nodes", *map(id, tensors)))
        args = [dict(zip(kinds, operands, strict=True)) for operands in _arguments(list(kinds.values()))]
        return self._operator(first, [self._across(a, side) for a in args])

    # Parts of expressions

    def _parameter(self, exprs: Sequence[Expr], path: str, tensors: Sequence[Tensor | None]) -> Expr:
        """Returns the tensors of the types, chosen by the type of a row; or the tensor itself if all types share it."""
        first = exprs[0]
        if all(e.tensor is first.tensor for e in exprs):
            return first
        assert first.tensor is not None
        empty = first.tensor.new_zeros(first.shape)
        stacked = [empty if t is None else t.reshape(first.shape) for t in tensors]
        leaf = self._leaf(torch.stack(stacked), (path, *map(id, tensors)))
        chosen = Expr("gather", (leaf,), (path,), first.shape)
        chosen.edges, chosen.on_edges = self.edges, path == "etype"
        return chosen

    def _leaf(self, tensor: Tensor, key: tuple[object, ...]) -> Expr:
        leaf = self._stacks.get(key)
        if leaf is None:
            leaf = self._stacks[key] = self.trace.leaf(tensor, "row", tensor.shape)
        return leaf

    def _operator(self, like: Expr, args: Sequence[Expr]) -> Expr:
        if like.op in ("gather", "aggregate", "degree", "pair_mean"):
            raise Differs
        return Expr(like.op, tuple(args), like.data, like.shape)

    def _on_edges(self, expr: Expr) -> Expr:
        expr.edges, expr.on_edges = self.edges, True
        return expr

    def _on_nodes(self, expr: Expr) -> Expr:
        expr.edges, expr.on_edges = self.edges, False
        return expr

    def _once(self, kind: str, exprs: Sequence[Expr], make: Callable[[Sequence[Expr]], Expr]) -> Expr:
        key = (kind, *map(id, exprs))
        expr = self._made.get(key)
        if expr is None:
            self._held.append(exprs)
            expr = self._made[key] = make(exprs)
        return expr

    def _key(self, expr: Expr) -> object:
        """Returns a key that is equal for expressions that compute the same."""
        key = self._keys.get(id(expr))
        if key is None:
            key = (expr.op, expr.data, expr.shape, id(expr.tensor), *[self._key(a) for a in expr.args])
            self._keys[id(expr)] = key
        return key


def _alike(exprs: Sequence[Expr]) -> Expr:
    """Returns the first of some expressions; raises Differs unless they only differ in operands and tensors."""
    first = exprs[0]
    same = (first.op, first.data, first.shape, len(first.args))
    if any((e.op, e.data, e.shape, len(e.args)) != same for e in exprs):
        raise Differs
    return first


def _arguments(exprs: Sequence[Expr]) -> list[Sequence[Expr]]:
    """Returns the first operands of all expressions, the second operands, ..."""
    return list(zip(*[e.args for e in exprs], strict=True))


def _rows(leaf: Expr) -> Tensor:
    assert leaf.tensor is not None
    return leaf.tensor.reshape(-1, *leaf.shape)


def summed(
    trace: Trace, graph: Any, parts: Sequence[GraphEdges], sums: Sequence[Mapping[str, Any]], means: bool, across: bool
) -> dict[str, dict[str, Tensor]] | None:
    """Adds up the sums of relations by name (or averages them ``across`` relations) for each type of destination.

    Returns None where relations do different things, so that each needs a program of its own.
    """
    edges = AllEdges(trace, graph, parts)
    together, nodes = Together(trace, edges), dict[str, Node]()
    names = list(sums[0])
    if any(list(s) != names for s in sums):
        return None
    try:
        for name in names:
            values = [s[name] for s in sums]
            exprs = [v.node.expr for v in values if type(v) is Value and v.dtype == values[0].dtype]
            if len(exprs) != len(parts) or any(e.op != "aggregate" or e.data != ("dst", "+=") for e in exprs):
                return None
            first: Any = values[0]
            expr = together.sum([e.args[0] for e in exprs], first.dtype if means else None)
            nodes[name] = Node(expr, torch.Size((edges.sizes[1], *first.shape[1:])), first.dtype)
    except Differs:
        return None
    trace.materialise(list(nodes.values()))
    reached = [p.relation[2] for p in parts]
    totals: dict[str, dict[str, Tensor]] = {}
    for name, node in nodes.items():
        assert node.real is not None
        # Nobody else reads them, so that users may write to a part.
        parts_of_rows = node.real.unsafe_split_with_sizes([*edges.counts["dst"].values()])
        for kind, rows in zip(edges.counts["dst"], parts_of_rows, strict=True):
            if kind in reached:
                count = reached.count(kind) if across else 1
                totals.setdefault(kind, {})[name] = rows if count == 1 else rows / count
    return totals
