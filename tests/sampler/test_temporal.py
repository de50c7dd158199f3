"""No sample holds an edge or a node that is later than its seed, and none leaves out what it should hold."""

from __future__ import annotations

import random

import hypothesis
import pytest
import torch
from hypothesis import strategies

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data

from dacergnn.sampler import NeighborSampler
from tests.sampler.oracle import RELATIONS, TYPES, as_typed, edges_of, heterogeneous, homogeneous, sample

seeds_of_examples = strategies.integers(0, 2**32)
choices = strategies.sampled_from(["uniform", "last"])


def check(data: object, output: object, seed_times: list[int], fanouts: list[int], times: dict, latest: bool) -> None:
    """Compares the times of the edges into each node with those that its seed's time allows."""
    out = as_typed(output)
    for key, edge_index in edges_of(data).items():
        row, col, edge = (vector[key].tolist() for vector in (out.row, out.col, out.edge))
        hops = [hop for hop, count in enumerate(out.num_sampled_edges[key]) for _ in range(count)]
        found = dict[tuple[int, int], list[int]]()
        for e, r, c, hop in zip(edge, row, col, hops, strict=True):
            assert int(out.batch[key[0]][r]) == int(out.batch[key[2]][c])
            assert (int(out.node[key[0]][r]), int(out.node[key[2]][c])) == tuple(edge_index[:, e].tolist())
            found.setdefault((hop, c), []).append(e)
        place = 0
        for hop, count in enumerate(out.num_sampled_nodes[key[2]][:-1]):
            for c in range(place, place + count):
                limit = seed_times[int(out.batch[key[2]][c])]
                into = (edge_index[1] == out.node[key[2]][c]).nonzero().flatten().tolist()
                early = sorted(int(times[key][e]) for e in into if times[key][e] <= limit)
                chosen = sorted(int(times[key][e]) for e in found.get((hop, c), []))
                assert all(time <= limit for time in chosen)
                fanout = fanouts[hop]
                assert len(chosen) == (len(early) if fanout < 0 else min(fanout, len(early)))
                assert not latest or chosen == early[len(early) - len(chosen) :]
            place += count


@hypothesis.settings(max_examples=60)
@hypothesis.given(seeds_of_examples, choices, strategies.booleans(), strategies.booleans())
def test_graphs_of_one_type(seed: int, strategy: str, of_nodes: bool, given: bool) -> None:
    rng = random.Random(seed)
    data = homogeneous(rng, nodes=15, edges=rng.choice([0, 60]))
    data.t = torch.tensor(rng.choices(range(-3, 9), k=15 if of_nodes else data.num_edges), dtype=torch.int64)
    hypothesis.assume(data.num_edges != 15)
    hypothesis.assume(of_nodes or data.num_edges > 0)
    fanouts, seeds = [rng.choice([-1, 1, 2, 4]) for _ in range(2)], rng.choices(range(15), k=6)
    given = given or not of_nodes
    seed_times = rng.choices(range(-4, 10), k=6) if given else data.t[seeds].tolist()
    sampler = NeighborSampler(data, fanouts, temporal_strategy=strategy, time_attr="t")
    output = sample(sampler, seeds, times=seed_times if given else None)
    times = data.t[data.edge_index[0]] if of_nodes else data.t
    check(data, output, seed_times, fanouts, {("n", "e", "n"): times}, strategy == "last")
    if of_nodes:
        found = data.t[output.node[len(seeds) :]]
        assert bool((found <= torch.tensor(seed_times)[output.batch[len(seeds) :]]).all())


@hypothesis.settings(max_examples=40)
@hypothesis.given(seeds_of_examples, choices, strategies.booleans(), strategies.sampled_from(["a", "b", "alone"]))
def test_graphs_of_several_types(seed: int, strategy: str, of_nodes: bool, node_type: str) -> None:
    rng = random.Random(seed)
    data = heterogeneous(rng)
    times = dict[tuple[str, str, str], torch.Tensor]()
    for key, count in TYPES.items():
        if of_nodes:
            data[key].t = torch.tensor(rng.choices(range(9), k=count))
    for key in RELATIONS:
        count = data[key].num_edges
        if not of_nodes:
            data[key].t = torch.tensor(rng.choices(range(9), k=count), dtype=torch.int64)
        times[key] = data[key[0]].t[data[key].edge_index[0]] if of_nodes else data[key].t
    fanouts, seeds = [rng.choice([-1, 1, 2, 4]) for _ in range(2)], rng.choices(range(TYPES[node_type]), k=6)
    seed_times = rng.choices(range(-1, 10), k=6)
    sampler = NeighborSampler(data, fanouts, temporal_strategy=strategy, time_attr="t")
    output = sample(sampler, seeds, node_type, seed_times)
    check(data, output, seed_times, fanouts, times, strategy == "last")


def test_sources_without_times_are_always_candidates() -> None:
    data = heterogeneous(random.Random(3))
    data["b"].t = torch.full((TYPES["b"],), 9)
    sampler = NeighborSampler(data, [-1], time_attr="t")
    into = {key: int((data[key].edge_index[1] == 1).sum()) for key in RELATIONS}
    output = sample(sampler, [1], "a", [0])
    assert len(output.row["b", "back", "a"]) == 0
    assert len(output.row["a", "self", "a"]) == into["a", "self", "a"]


def test_latest_with_weights_and_with_replacement() -> None:
    """Of the latest neighbours some are drawn, by weight where there are weights."""
    data = Data(edge_index=torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]]), num_nodes=5)
    data.t, data.w = torch.tensor([4, 3, 9, 1]), torch.tensor([1.0, 0.0, 1.0, 1.0])
    sampler = NeighborSampler(data, [2], temporal_strategy="last", time_attr="t", weight_attr="w", replace=True)
    assert sample(sampler, [0] * 20, times=[5] * 20).edge.unique().tolist() == [0]
