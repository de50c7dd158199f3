"""Yields the graphs of training steps: a new random graph for each, a whole graph, or sampled batches of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import torch
from torch import Tensor

from benchmarks.networks.layers import SIZE, Graph, Kind, keys_of
from benchmarks.networks.loading import RELATIONAL, TYPED, batches
from benchmarks.networks.steps import Stream, repeated
from benchmarks.relational.problem import Problem, make_problem

DEGREE = 8
"""Edges for each node of a random graph."""
ENDS = ((0, 1), (1, 2), (2, 0))
"""Node types that the relations of a random graph join; each relation has a reverse one."""


def random_problem(edges: int, seed: int) -> Problem:
    """Returns a random graph of three node types, whose edges go both ways; none comes twice, and none is a loop."""
    draw, pairs, size = np.random.default_rng(seed), max(edges // (2 * len(ENDS)), 1), max(edges // DEGREE // 3, 4)
    places = [map(torch.from_numpy, divmod(draw.choice(size * size, pairs, replace=False), size)) for _ in ENDS]
    ends = [(one + s * size, other + d * size) for (s, d), (one, other) in zip(ENDS, places, strict=True)]
    src, dst = map(torch.cat, zip(*ends, strict=True))
    etype = torch.arange(len(ENDS)).repeat_interleave(pairs)
    everything = torch.cat([src, dst]), torch.cat([dst, src]), torch.cat([etype, etype + len(ENDS)])
    return make_problem("random", *everything, [size] * 3, 2 * len(ENDS), SIZE, seed)


def whole(kind: Kind, problem: Problem, target: int) -> tuple[Graph, Tensor]:
    """Returns a whole graph, which no candidate has seen before, and the labels of the nodes with a result."""
    sizes = list(problem.ntype_sizes)
    if kind.form in TYPED:
        x = {f"t{place}": rows for place, rows in enumerate(problem.x.split(sizes))}
        edges = {key: problem.edges_of(etype) for etype, key in enumerate(keys_of(problem))}
        return Graph(x, (edges,), problem.num_etypes), problem.labels.split(sizes)[target]
    types = (problem.etype,) if kind.form in RELATIONAL else ()
    return Graph(problem.x, (torch.stack([problem.src, problem.dst]), *types), problem.num_etypes), problem.labels


def ever_new(kind: Kind, edges: int, target: int, device: str) -> Stream:
    """Yields random graphs that no candidate has seen; each stream has the same ones."""
    return (whole(kind, random_problem(edges, seed).to(device), target) for seed in count(1))


def sampled(kind: Kind, problem: Problem, target: int) -> Callable[[], Stream]:
    """Returns a function that goes through batches of a graph, the same ones each time."""
    seeds, fanouts = (16, [1, 1, 1]) if kind.form in TYPED else (96, [5, 4, 4])  # typed ones are for each relation
    source = batches(kind.form, problem, target, seeds, fanouts)
    alike = (
        (Graph(x, tuple(edges), problem.num_etypes), batch.labels) for batch in source for x, *edges in [batch.inputs]
    )
    return repeated(alike)
