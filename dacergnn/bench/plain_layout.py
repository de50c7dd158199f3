"""Index structures of the plain-PyTorch layers, built once for a problem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dacergnn.bench.plain_matmul import Bucket, padded_matmul, typed_matmul
from dacergnn.bench.plain_ops import Adjacency, aggregate
from dacergnn.bench.problem import Pairs, Problem

FILL = 0.75
"""A bucket of padded types takes smaller types down to this share of its row count."""


@dataclass(frozen=True)
class PairRows:
    """Rows of (node, edge type) pairs, grouped by type.

    Padding rows point to node 0; nothing reads what is computed in them, and their gradients are zero.
    """

    node: Tensor
    of_edge: Tensor
    of_pair: Tensor
    """Row of each pair."""
    type_sizes: list[int]
    order: Tensor | None = None
    """Types by falling size, where the rows are padded."""
    buckets: tuple[Bucket, ...] = ()

    def matmul(self, rows: Tensor, weight: Tensor) -> Tensor:
        """rows [n, k] times weight [R, k, m] of each row's type -> [n, m]."""
        if self.order is None:
            return typed_matmul(rows, weight, self.type_sizes)
        return padded_matmul(rows, weight.index_select(0, self.order), self.buckets)


def contiguous_rows(pairs: Pairs) -> PairRows:
    """One row a pair."""
    return PairRows(pairs.node, pairs.of_edge, torch.arange(len(pairs.node)), pairs.type_sizes)


def padded_rows(pairs: Pairs) -> PairRows:
    """Types by falling size, similar ones padded to the largest of them; empty types left out."""
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
    within = torch.arange(len(pairs.node)) - (sizes.cumsum(0) - sizes)[pairs.etype]
    of_pair = start_of_type[pairs.etype] + within
    node = torch.zeros(total, dtype=torch.int64).index_copy_(0, of_pair, pairs.node)
    return PairRows(node, of_pair[pairs.of_edge], of_pair, pairs.type_sizes, order, tuple(buckets))


class Layout:
    """What the forward functions need to know of a problem."""

    def __init__(self, problem: Problem, padded: bool = False) -> None:
        self.problem = problem
        self.src, self.dst, self.etype = problem.src, problem.dst, problem.etype
        self.n, self.r = problem.num_nodes, problem.num_etypes
        self.nodes, self.edges = list(problem.ntype_sizes), problem.etype_sizes
        self.mean = problem.mean_weight
        self.u_of_edge, self.v_of_edge = problem.src_pairs.of_edge, problem.dst_pairs.of_edge
        self._rows = padded_rows if padded else contiguous_rows

    @cached_property
    def u(self) -> PairRows:
        return self._rows(self.problem.src_pairs)

    @cached_property
    def v(self) -> PairRows:
        return self._rows(self.problem.dst_pairs)

    @cached_property
    def node_from_u(self) -> Adjacency:
        return Adjacency.make(self.dst, self.u.of_edge, (self.n, len(self.u.node)))

    @cached_property
    def v_from_node(self) -> Adjacency:
        return Adjacency.make(self.v.of_edge, self.src, (len(self.v.node), self.n))

    @cached_property
    def node_from_v(self) -> Adjacency:
        return Adjacency.make(self.problem.dst_pairs.node, self.v.of_pair, (self.n, len(self.v.node)))

    @cached_property
    def type_by_u(self) -> Adjacency:
        return _by_type(self.problem.src_pairs, (self.r, self.n))

    @cached_property
    def type_by_v(self) -> Adjacency:
        return _by_type(self.problem.dst_pairs, (self.r, self.n))

    @cached_property
    def v_ones(self) -> Tensor:
        return torch.ones(len(self.v.of_pair))

    def sum_pairs(self, rows: Tensor) -> Tensor:
        """Sum V rows to their destinations."""
        return aggregate(self.v_ones, rows, self.node_from_v)

    def sum_edges(self, rows: Tensor) -> Tensor:
        """Sum E rows to their destinations."""
        return rows.new_zeros(self.n, rows.shape[1]).index_add_(0, self.dst, rows)


def _by_type(pairs: Pairs, shape: tuple[int, int]) -> Adjacency:
    return Adjacency.make(pairs.etype, pairs.node, shape)
