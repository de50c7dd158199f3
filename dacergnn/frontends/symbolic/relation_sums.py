"""Sums of values over several sets of edges, rewritten as values of one graph in which the sets are relations.

A layer of a model over relations sums up each relation by itself, and adds the results: `W_r sum(x_src)` with a matrix
and edges for each relation r. Over the edges of all relations, that is one sum, `sum(W[etype] x_src)`, of a program
that needs one pass. Terms are alike if they differ in edges, parameters and sources alone. Products of rows of
destinations, and rows that are added to all, are added up before they are applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.edges import EdgeSet, PairedEdges
from dacergnn.frontends.symbolic.expr import (
    Expr,
    Several,
    Untranslatable,
    apply,
    check_unwritten,
    const,
    is_over_several,
    reached,
)
from dacergnn.frontends.symbolic.names import Names
from dacergnn.frontends.symbolic.notes import Notes
from dacergnn.frontends.symbolic.relations import Relations
from dacergnn.frontends.symbolic.value import Node, held_in
from dacergnn.library_nodes.form import Shape

_ALIKE = ("reshape", "sum_heads", "detach")
"""Functions of a sum that are that of its terms: the same for all of them, without parameters."""
_NOT_ROWWISE = ("aggregate", "degree", "pair_mean", "join")
Parts = tuple[Expr, ...]
"""An expression of each relation, all of one form."""


def summed_over_relations(
    trace: Notes, names: Names, exprs: Sequence[Expr], used: AbstractSet[int]
) -> tuple[Relations, list[Expr]]:
    """Returns the graph of all relations, and in terms of it values of nodes that sums over relations lead to.

    Args:
        trace: Takes functions of torch that join the parameters, and the sources, of all relations.
        names: Takes the names of what is joined.
        exprs: The values.
        used: The serials of values that are needed by themselves, too, and would be computed twice.

    Raises:
        Untranslatable: Not all that depends on edges is a sum of terms that are alike.
    """
    sums = _Sums(trace, names, used, _shared(exprs))
    rewritten = [sums.of_nodes(expr) for expr in exprs]
    return sums.relations(), rewritten


def parts_by_edges(nodes: Sequence[Node]) -> list[Node]:
    """Returns the values over one set of edges each that values over several are computed from."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        if node.real is None and node not in seen and is_over_several(node.expr):
            waiting += held_in(node.call, Node)
        elif node.real is None and node.expr.edges is not None:
            found[node] = None
        seen.add(node)
    return [*found]


class _Sums:
    """Rewrites values whose sums are over the same relations."""

    def __init__(self, trace: Notes, names: Names, used: AbstractSet[int], shared: AbstractSet[int]) -> None:
        self.trace, self.names, self.used, self.shared = trace, names, used, shared
        self.sets: list[EdgeSet] = []
        """The edges of the relations."""
        self._rows: dict[int, Expr] = {}
        """Values of nodes that are rewritten, by those that they come from."""
        self._forms: dict[object, int] = {}
        self._form_of: dict[int, int] = {}
        self._made: dict[tuple[object, ...], Expr] = {}
        """Holds what expressions of each relation have become, by where they are used."""
        self._sources: list[tuple[Expr, Parts]] = []
        """Rows of all sources, each with those of each relation; they are joined when all are known."""

    def relations(self) -> Relations:
        """Returns the graph, and joins the rows of its sources: each block of them once."""
        blocks: dict[tuple[int, ...], int] = {}
        of_relation: list[int] = []
        for relation in range(len(self.sets)):
            rows = tuple([id(parts[relation].tensor) for _, parts in self._sources]) or (relation,)
            of_relation.append(blocks.setdefault(rows, len(blocks)))
        first = [of_relation.index(block) for block in range(len(blocks))]
        for joined, parts in self._sources:
            joined.becomes_leaf(self._joined([parts[relation] for relation in first], in_blocks, joined.shape))
        return Relations(self.sets, of_relation, [self.sets[relation].sizes[0] for relation in first])

    def of_nodes(self, expr: Expr) -> Expr:
        """Returns a value of nodes in terms of the graph of all relations."""
        if expr.edges is None:
            return expr
        made = self._rows.get(expr.serial)
        if made is None:
            if not isinstance(expr.edges, Several):
                raise Untranslatable  # a relation of its own
            made = self._sum(expr) if expr.op in ("add", "sub") else self._rowwise(expr)
            made.caller = made.caller or expr.caller
            self._rows[expr.serial] = made
        return made

    def _rowwise(self, expr: Expr) -> Expr:
        if expr.op in _NOT_ROWWISE or expr.op == "gather":
            raise Untranslatable
        return Expr(expr.op, tuple([self.of_nodes(a) for a in expr.args]), expr.data, expr.shape)

    def _sum(self, expr: Expr) -> Expr:
        """Returns a sum whose terms depend on different edges."""
        terms: list[Expr] = []
        self._collect(expr.args[0], terms, lambda term: term)
        self._collect(expr.args[1], terms, _negative if expr.op == "sub" else lambda term: term)
        over_edges = [t for t in terms if isinstance(t.edges, EdgeSet)]
        others = [self.of_nodes(t) for t in terms if isinstance(t.edges, Several)]
        total = None if not over_edges else self._over_relations(over_edges)
        for term in [*self._added([t for t in terms if t.edges is None]), *others]:
            total = term if total is None else apply("add", total, term)
        assert total is not None
        if total.shape == expr.shape:
            return total
        return Expr("expand", (total,), expr.shape[len(total.shape) :], expr.shape)

    def _collect(self, expr: Expr, terms: list[Expr], wrap: Callable[[Expr], Expr]) -> None:
        """Adds the terms of an operand of a sum, and of sums that are scaled in it, to ``terms``."""
        if isinstance(expr.edges, Several) and expr.serial in self.shared:  # it is computed once
            terms.append(wrap(expr))
            return
        if expr.op in ("add", "sub"):
            self._collect(expr.args[0], terms, wrap)
            self._collect(expr.args[1], terms, wrap if expr.op == "add" else lambda t: wrap(_negative(t)))
            return
        factors = [a for a in expr.args if a.uniform]
        if expr.op in ("mul", "div") and len(factors) == 1 and not (expr.op == "div" and expr.args[0].uniform):
            (scaled,) = [a for a in expr.args if not a.uniform]
            self._collect(scaled, terms, lambda t: wrap(_scaled(expr.op, t, factors[0])))
        else:
            terms.append(wrap(expr))

    def _added(self, terms: Sequence[Expr]) -> list[Expr]:
        """Returns terms that depend on no edges; products of the same rows become one, and so do constant rows."""
        groups: dict[object, list[Expr]] = {}
        for term in terms:
            key: object = term.serial
            if _is_parameter(term):
                key = term.shape
            elif term.op == "linear" and _is_parameter(term.args[1]):
                key = term.args[0].serial, term.data, term.shape, term.args[1].shape
            groups.setdefault(key, []).append(term)
        return [terms[0] if len(terms) == 1 else self._total(terms) for terms in groups.values()]

    def _total(self, terms: Sequence[Expr]) -> Expr:
        """Returns the sum of constant rows, or of products of the same rows."""
        first = terms[0]
        if not first.args:
            return _leaf("one", first.shape, self._joined(terms, total, first.shape))
        rows, matrix = first.args
        matrices = self._joined([t.args[1] for t in terms], total, matrix.shape)
        return Expr("linear", (rows, _leaf("one", matrix.shape, matrices)), first.data, first.shape)

    def _over_relations(self, terms: Sequence[Expr]) -> Expr:
        """Returns the sum of terms that depend on the edges of a relation each."""
        sets = [t.edges for t in terms if isinstance(t.edges, EdgeSet)]
        if len(terms) < 2 or len({*map(self._form, terms)}) > 1 or len({*map(id, sets)}) < len(sets):
            raise Untranslatable
        if not self.used.isdisjoint(t.serial for t in terms):
            raise Untranslatable
        if not self.sets:
            if any(type(edges) not in (EdgeSet, PairedEdges) or edges.types for edges in sets):
                raise Untranslatable
            self.sets = sets
        if [*map(id, sets)] != [*map(id, self.sets)]:
            raise Untranslatable
        return self._outer(tuple(terms))

    def _form(self, expr: Expr) -> int:
        """Returns a number that is equal for expressions which are alike."""
        known = self._form_of.get(expr.serial)
        if known is None:
            data = repr(expr.data) if expr.op == "const" else expr.data  # which tells the two zeros apart
            key = expr.op, data, expr.shape, tuple([self._form(a) for a in expr.args])
            known = self._form_of[expr.serial] = self._forms.setdefault(key, len(self._forms))
        return known

    def _outer(self, terms: Parts) -> Expr:
        """Returns the sum of the terms of all relations: functions that are the same for all are applied to it."""
        first = terms[0]
        scaled = first.op in ("mul", "div") and first.args[1].op == "const"
        if first.op in _ALIKE or scaled:
            inner = self._outer(_operands(terms, 0))
            return Expr(first.op, (inner, *first.args[1:]), first.data, first.shape)
        return self._reduced(terms)

    def _reduced(self, terms: Parts) -> Expr:
        """Returns the sum of reductions that are scaled or multiplied by parameters of their relations."""
        rows, space, shares = self._rows_to_add(terms)
        for share in shares:
            rows = apply("mul", share, rows)
        return Expr("aggregate", (rows,), ("dst", "+=") if space == "E" else ("dst", "+=", space), rows.shape)

    def _rows_to_add(self, terms: Parts) -> tuple[Expr, str, list[Expr]]:
        """Returns rows whose sum over destinations is that of the terms, and what they are still to be scaled by.

        They are rows of edges ("E"), or of the pairs of a destination and a relation ("V"). A product of a sum is the
        sum of the products.
        """
        first = terms[0]
        if first.op == "aggregate":
            reduction = first.data[1]
            if first.data[0] != "dst":
                raise Untranslatable
            rows = self._on_edges(_operands(terms, 0))
            if reduction == "+=":
                return rows, "E", []
            return Expr("aggregate", (rows,), ("dstpair", reduction), rows.shape), "V", []
        if first.op == "div" and first.args[1].edges is not None:
            rows, space, shares = self._rows_to_add(_operands(terms, 0))
            if space != "E":
                raise Untranslatable
            return rows, space, [*shares, _share_of_mean(first.args[1])]
        places = [place for place, operand in enumerate(first.args) if operand.edges is not None]
        if (
            first.op not in ("linear", "mul")
            or len(places) > 1
            or not all(a.uniform for a in first.args if a.edges is None)
        ):
            raise Untranslatable
        rows, space, shares = self._rows_to_add(_operands(terms, places[0]))
        operands = [self._on_edges(_operands(terms, place)) for place in range(2) if place != places[0]]
        operands.insert(places[0], rows)
        return Expr(first.op, tuple(operands), first.data, first.shape), space, shares

    # Values of edges

    def _on_edges(self, parts: Parts) -> Expr:
        """Returns values of the edges of all relations."""
        first = parts[0]
        if first.op == "gather":
            return self._at_end(first.data[0], _operands(parts, 0))
        if first.op == "leaf" and not first.uniform:
            return self._once(
                "edges", parts, lambda: _leaf("row", first.shape, self._joined(parts, in_blocks, first.shape))
            )
        return self._by_rows("edges", parts, self._on_edges)

    def _at_end(self, side: str, parts: Parts) -> Expr:
        """Returns the values of nodes at one end of the edges of all relations."""
        first = parts[0]
        if first.op == "aggregate" and side == "dst" and first.data[0] == "dst":
            return self._once("pairs", parts, lambda: self._pairs(parts))
        if first.op == "leaf" and not first.uniform:
            if side not in ("src", "dst"):
                raise Untranslatable
            return self._once(side, parts, lambda: Expr("gather", (self._nodes(side, parts),), (side,), first.shape))
        return self._by_rows(side, parts, lambda inner: self._at_end(side, inner))

    def _by_rows(self, place: str, parts: Parts, inner: Callable[[Parts], Expr]) -> Expr:
        """Returns a function of rows of all relations; parameters are chosen by the relation."""
        first = parts[0]
        if first.op in _NOT_ROWWISE or first.op == "gather":
            raise Untranslatable
        if first.op == "const":
            return first
        if first.op == "leaf":
            return self._chosen(parts)

        def make() -> Expr:
            args = [inner(_operands(parts, i)) for i in range(len(first.args))]
            made = Expr(first.op, tuple(args), first.data, first.shape)
            made.caller = first.caller
            return made

        return self._once(place, parts, make)

    def _pairs(self, parts: Parts) -> Expr:
        """Returns a reduction of the edges of a relation into a node, at each of these edges."""
        messages = self._on_edges(_operands(parts, 0))
        pairs = Expr("aggregate", (messages,), ("dstpair", parts[0].data[1]), messages.shape)
        return Expr("gather", (pairs,), ("dstpair",), pairs.shape)

    def _nodes(self, side: str, parts: Parts) -> Expr:
        """Returns the leaf of the rows of all sources, or of the destinations, which all relations have to share."""
        if side == "dst":
            if len({id(p.tensor) for p in parts}) > 1:
                raise Untranslatable
            return parts[0]
        rows = _leaf("row", parts[0].shape, None)
        self._sources.append((rows, parts))
        return rows

    def _chosen(self, parts: Parts) -> Expr:
        """Returns the parameter of the relation of each edge."""
        if any(not _is_parameter(p) for p in parts):
            raise Untranslatable
        if len({id(p.tensor) for p in parts}) == 1:
            return parts[0]

        def make() -> Expr:
            shape = parts[0].shape
            return Expr("gather", (_leaf("row", shape, self._joined(parts, stacked, shape)),), ("etype",), shape)

        return self._once("types", parts, make)

    def _joined(self, leaves: Sequence[Expr], function: Callable[..., Tensor], *options: Any) -> Tensor:
        """Returns what a function makes of the tensors of leaves."""
        tensors = [self._tensor(leaf) for leaf in leaves]
        made = self.trace.torch(function, tensors, *options)
        self.names.follow(made, tensors[0])
        return made

    def _tensor(self, leaf: Expr) -> Tensor:
        tensor = leaf.tensor
        assert tensor is not None
        check_unwritten(tensor, leaf.version)
        return tensor

    def _once(self, place: str, parts: Parts, make: Callable[[], Expr]) -> Expr:
        key = (place, *[p.serial for p in parts])
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def stacked(tensors: Sequence[Tensor], shape: Shape) -> Tensor:
    """Returns tensors of the same size as rows of a shape, [R, *shape]."""
    return torch.stack([*tensors]).view(len(tensors), *shape)


def in_blocks(tensors: Sequence[Tensor], shape: Shape) -> Tensor:
    """Returns rows of a shape, one behind the other: another tensor than a single one, which may be rows elsewhere."""
    rows = [t.view_as(t) if t.shape[1:] == shape else t.reshape(t.size(0), *shape) for t in tensors]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def total(tensors: Sequence[Tensor], shape: Shape) -> Tensor:
    """Returns the sum of tensors of the same size, in a shape.

    Sums over a stack would give all tensors parts of one gradient's memory.
    """
    return reduce(torch.add, [t if t.shape == shape else t.reshape(shape) for t in tensors])


def _leaf(kind: str, shape: Shape, tensor: Tensor | None) -> Expr:
    return Expr("leaf", (), (kind,), shape, tensor)


def _share_of_mean(bounded: Expr) -> Expr:
    """Returns 1 over the number of edges from a relation into a node, for that number where there are edges, else 1."""
    if bounded.op != "clamp_min" or bounded.args[0].op != "degree" or bounded.args[1].data != (1.0,):
        raise Untranslatable
    degree = bounded.args[0].data
    if degree[0] != "dst":
        raise Untranslatable
    return Expr("pair_mean", (), degree[1:])


def _shared(exprs: Sequence[Expr]) -> set[int]:
    """Returns the serials of expressions that are wanted or read more than once."""
    times = Counter(e.serial for e in exprs)
    times.update(a.serial for e in reached(exprs) for a in e.args)
    return {serial for serial, count in times.items() if count > 1}


def _negative(term: Expr) -> Expr:
    return _scaled("mul", term, const(-1.0))


def _scaled(op: str, term: Expr, factor: Expr) -> Expr:
    """Returns a term multiplied, or divided, by a number or a constant row; products in one order, to be alike."""
    return apply(op, term, factor) if op == "div" or factor.op == "const" else apply(op, factor, term)


def _operands(parts: Parts, place: int) -> Parts:
    return tuple([p.args[place] for p in parts])


def _is_parameter(expr: Expr) -> bool:
    return expr.op == "leaf" and expr.data == ("one",)
