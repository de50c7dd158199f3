"""Choices have the chances that their definitions give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations, product
from typing import Any

import pytest
import torch
from scipy import stats

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData

from dacergnn.sampler import HGTSampler, NeighborSampler
from tests.sampler.oracle import sample

TRIALS = 20000
LEAST = 1e-3
"""Random numbers are the same in every run, so that no run fails by chance."""


def star(count: int, **attributes: Any) -> Data:
    """Edges from nodes 1, 2, ... to node 0."""
    edge_index = torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.int64)])
    return Data(edge_index=edge_index, num_nodes=count + 1, **attributes)


def drawn(sampler: NeighborSampler, fanout: int, times: list[int] | None = None) -> list[tuple[int, ...]]:
    """The edges chosen for node 0, again and again: seeds that come twice have choices of their own."""
    torch.manual_seed(1)
    seeds = [0] * (TRIALS if times is None else len(times))
    return [tuple(edges) for edges in sample(sampler, seeds, times=times).edge.view(-1, fanout).tolist()]


def check(found: list[Any], chances: Mapping[Any, float]) -> None:
    counts = Counter(found)
    assert set(counts) <= set(chances)
    expected = [len(found) * chance for chance in chances.values()]
    assert stats.chisquare([counts[key] for key in chances], expected).pvalue > LEAST


@pytest.mark.parametrize(("count", "fanout"), [(3, 1), (5, 2), (6, 5), (7, 3)])
def test_without_replacement_all_sets_have_the_same_chance(count: int, fanout: int) -> None:
    sets = list(combinations(range(count), fanout))
    found = [tuple(sorted(edges)) for edges in drawn(NeighborSampler(star(count), [fanout]), fanout)]
    check(found, dict.fromkeys(sets, 1 / len(sets)))


@pytest.mark.parametrize(("count", "fanout"), [(130, 20), (130, 70), (130, 129)])
def test_without_replacement_all_edges_have_the_same_chance(count: int, fanout: int) -> None:
    trials, chance = 5000, fanout / count
    torch.manual_seed(1)
    edges = sample(NeighborSampler(star(count), [fanout]), [0] * trials).edge
    # Counts of a choice without replacement are not independent, which the factor makes up for.
    spread = trials * chance * (1 - chance) * count / (count - 1)
    distance = ((edges.bincount(minlength=count) - trials * chance) ** 2).sum() / spread
    assert LEAST < stats.chi2.sf(float(distance), count - 1) < 1 - LEAST


def test_with_replacement_all_tuples_have_the_same_chance() -> None:
    found = drawn(NeighborSampler(star(4), [2], replace=True), 2)
    check(found, dict.fromkeys(product(range(4), repeat=2), 1 / 16))


def test_weights_are_chances_with_replacement() -> None:
    weights = [1.0, 0.0, 2.5, 4.0, 0.5]
    sampler = NeighborSampler(star(5, w=torch.tensor(weights)), [2], replace=True, weight_attr="w")
    pairs = {(i, j): weights[i] * weights[j] / 64 for i, j in product((0, 2, 3, 4), repeat=2)}
    check(drawn(sampler, 2), pairs)


def test_weights_are_chances_without_replacement() -> None:
    weights, total = [1, 0, 3, 4, 2], 10
    sampler = NeighborSampler(star(5, w=torch.tensor(weights)), [2], weight_attr="w")
    chances = {
        (i, j): weights[i] * weights[j] / total * (1 / (total - weights[i]) + 1 / (total - weights[j]))
        for i, j in combinations((0, 2, 3, 4), 2)
    }
    check([tuple(sorted(edges)) for edges in drawn(sampler, 2)], chances)


@pytest.mark.parametrize(("fanout", "expected"), [(-1, [0, 2]), (2, [0, 2]), (3, [0, 2])])
def test_edges_of_weight_0_are_not_sampled(fanout: int, expected: list[int]) -> None:
    sampler = NeighborSampler(star(3, w=torch.tensor([1.0, 0.0, 1e-9])), [fanout], weight_attr="w")
    assert sorted(sample(sampler, [0]).edge.tolist()) == expected


def test_weights_go_with_their_edges() -> None:
    """Also where edges do not stand by destination."""
    data = Data(edge_index=torch.tensor([[1, 2, 3, 4], [5, 0, 5, 0]]), w=torch.tensor([0, 1, 1, 0]), num_nodes=6)
    output = sample(NeighborSampler(data, [2], weight_attr="w"), [0, 5])
    assert output.edge.tolist() == [1, 2]


def test_a_node_whose_weights_are_all_0_has_no_neighbours() -> None:
    for replace in (False, True):
        sampler = NeighborSampler(star(3, w=torch.zeros(3)), [2], replace=replace, weight_attr="w")
        assert sample(sampler, [0]).edge.tolist() == []


def test_only_earlier_neighbours_have_a_chance() -> None:
    times = torch.tensor([0, 5, 3, 9, 1, 3])  # of nodes; node 0 is the destination
    sampler = NeighborSampler(star(5, t=times), [2], time_attr="t")
    for seed_time, earlier in ((3, (1, 3, 4)), (5, (0, 1, 3, 4)), (9, (0, 1, 2, 3, 4))):
        found = [tuple(sorted(edges)) for edges in drawn(sampler, 2, [seed_time] * TRIALS)]
        sets = list(combinations(earlier, 2))
        check(found, dict.fromkeys(sets, 1 / len(sets)))


def test_choices_of_different_seeds_are_independent() -> None:
    found = [edges[0] for edges in drawn(NeighborSampler(star(5), [1]), 1)]
    check(list(zip(found[::2], found[1::2], strict=True)), dict.fromkeys(product(range(5), repeat=2), 1 / 25))


def test_choices_of_different_relations_are_independent() -> None:
    data = HeteroData()
    data["a"].num_nodes = 5
    for name in ("one", "other"):
        data["a", name, "a"].edge_index = star(4).edge_index
    torch.manual_seed(1)
    edges = sample(NeighborSampler(data, [1]), [0] * TRIALS, "a").edge
    pairs = zip(*(edges["a", name, "a"].tolist() for name in ("one", "other")), strict=True)
    check(list(pairs), dict.fromkeys(product(range(4), repeat=2), 1 / 16))


def test_choices_of_different_calls_are_independent() -> None:
    torch.manual_seed(1)
    sampler = NeighborSampler(star(4), [1])
    found = [int(sample(sampler, [0]).edge) for _ in range(2000)]
    check(list(zip(found[::2], found[1::2], strict=True)), dict.fromkeys(product(range(4), repeat=2), 1 / 16))


def test_hgt_chooses_by_squares_of_scores() -> None:
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 4, 2
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 1, 2, 3], [0, 0, 1, 1, 1]])
    sampler = HGTSampler(data, {"a": [1], "b": [0]})
    torch.manual_seed(1)
    found = [int(sample(sampler, [0, 1, 0], "b").node["a"]) for _ in range(3000)]
    scores = [1 / 2, 1 / 2 + 1 / 3, 1 / 3, 1 / 3]
    squares = [score**2 for score in scores]
    check(found, {node: square / sum(squares) for node, square in enumerate(squares)})
