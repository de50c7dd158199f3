"""Builds the index structures of the plain-PyTorch layers, once for a problem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from benchmarks.relational.plain_matmul import Bucket, grouped_matmul, padded_matmul, typed_matmul
from benchmarks.relational.plain_ops import Adjacency, Coordinates, Pattern, aggregate
from benchmarks.relational.problem import Pairs, Problem

FILL = 0.75
"""A bucket of padded types takes smaller types down to this share of its row count."""
Products = Literal["typed", "padded", "grouped"]
"""A matmul for each type, a batched one for types of similar size, or torch's for groups of rows."""


@dataclass(frozen=True)
class PairRows:
    """Holds the rows of (node, edge type) pairs, grouped by type.

    Padding rows point to node 0; nothing reads their results, and their gradients are zero.
    """

    node: Tensor
    of_edge: Tensor
    of_pair: Tensor
    """Row of each pair."""
    type_sizes: list[int]
    order: Tensor | None = None
    """Types by falling size, where the rows are padded."""
    buckets: tuple[Bucket, ...] = ()
    ends: Tensor | None = None
    """int32: the end of each type's rows, if torch multiplies by groups."""

    def matmul(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Multiplies rows [n, k] by the weight [R, k, m] of each row's type -> [n, m]."""
        if self.ends is not None:
            return grouped_matmul(rows, weight, self.ends)
        if self.order is None:
            return typed_matmul(rows, weight, self.type_sizes)
        return padded_matmul(rows, weight.index_select(0, self.order), self.buckets)


def contiguous_rows(pairs: Pairs, *, grouped: bool = False) -> PairRows:
    """Makes one row per pair."""
    device = pairs.node.device
    sizes = torch.tensor(pairs.type_sizes)
    ends = sizes.cumsum(0).to(device, torch.int32) if grouped else None
    of_pair = torch.arange(len(pairs.node), device=device)
    return PairRows(pairs.node, pairs.of_edge, of_pair, pairs.type_sizes, ends=ends)


def padded_rows(pairs: Pairs) -> PairRows:
    """Sorts types by falling size and pads similar ones to the largest of them; leaves empty types out."""
    device = pairs.node.device
    sizes = torch.tensor(pairs.type_sizes)
    order = torch.argsort(sizes, descending=True, stable=True)[: int((sizes > 0).sum())]
    buckets: list[Bucket] = []
    start_of_type = torch.zeros(len(sizes), dtype=torch.int64)
    total = 0
    for etype in order.tolist():
        size = pairs.type_sizes[etype]
        if not buckets or size < FILL * buckets[-1].rows:
            buckets.append(Bucket(total, 0, size))
        last = buckets[-1]
        buckets[-1] = Bucket(last.start, last.types + 1, last.rows)
        start_of_type[etype] = total
        total += last.rows
    shift = (start_of_type - sizes.cumsum(0) + sizes).to(device)
    of_pair = torch.arange(len(pairs.node), device=device) + shift[pairs.etype]
    node = pairs.node.new_zeros(total).index_copy_(0, of_pair, pairs.node)
    return PairRows(node, of_pair[pairs.of_edge], of_pair, pairs.type_sizes, order.to(device), tuple(buckets))


class PlainLayout:
    """Holds what the forward functions need to know about a problem."""

    def __init__(self, problem: Problem, products: Products = "typed", *, scatter: bool = False) -> None:
        self.problem, self.products = problem, products
        self.src, self.dst, self.etype = problem.src, problem.dst, problem.etype
        self.n, self.r = problem.num_nodes, problem.num_etypes
        self.nodes, self.edges = list(problem.ntype_sizes), problem.etype_sizes
        self.mean = problem.mean_weight
        self.u_of_edge, self.v_of_edge = problem.src_pairs.of_edge, problem.dst_pairs.of_edge
        self._pattern = Coordinates if scatter else Adjacency.make

    def _rows(self, pairs: Pairs) -> PairRows:
        return (
            padded_rows(pairs)
            if self.products == "padded"
            else contiguous_rows(pairs, grouped=self.products == "grouped")
        )

    @cached_property
    def u(self) -> PairRows:
        return self._rows(self.problem.src_pairs)

    @cached_property
    def v(self) -> PairRows:
        return self._rows(self.problem.dst_pairs)

    @cached_property
    def node_from_u(self) -> Pattern:
        return self._pattern(self.dst, self.u.of_edge, (self.n, len(self.u.node)))

    @cached_property
    def v_from_node(self) -> Pattern:
        return self._pattern(self.v.of_edge, self.src, (len(self.v.node), self.n))

    @cached_property
    def node_from_v(self) -> Pattern:
        return self._pattern(self.problem.dst_pairs.node, self.v.of_pair, (self.n, len(self.v.node)))

    @cached_property
    def type_by_u(self) -> Pattern:
        return self._by_type(self.problem.src_pairs)

    @cached_property
    def type_by_v(self) -> Pattern:
        return self._by_type(self.problem.dst_pairs)

    @cached_property
    def v_ones(self) -> Tensor:
        return self.problem.x.new_ones(len(self.v.of_pair))

    def sum_pairs(self, rows: Tensor) -> Tensor:
        """Sums V rows to their destinations."""
        return aggregate(self.v_ones, rows, self.node_from_v)

    def sum_edges(self, rows: Tensor) -> Tensor:
        """Sums E rows to their destinations."""
        return rows.new_zeros(self.n, rows.shape[1]).index_add_(0, self.dst, rows)

    def _by_type(self, pairs: Pairs) -> Pattern:
        return self._pattern(pairs.etype, pairs.node, (self.r, self.n))
