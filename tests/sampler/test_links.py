"""Samples around edges, with negative examples: indices lead to the ends of the edges, and none is from the future."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData

from dacergnn.sampler import link_neighbor_loader
from tests.sampler.oracle import heterogeneous, homogeneous

KEY = ("a", "to", "b")


@pytest.mark.parametrize("disjoint", [False, True])
def test_binary_negatives(disjoint: bool) -> None:
    data = homogeneous(random.Random(0))
    labels = torch.arange(data.num_edges)
    loader = link_neighbor_loader(
        data, [3, 2], data.edge_index, labels, disjoint=disjoint, neg_sampling="binary", batch_size=8
    )
    for batch in loader:
        count = len(batch.input_id)
        assert batch.edge_label.tolist() == [*(batch.input_id + 1).tolist(), *[0] * count]
        ends = batch.n_id[batch.edge_label_index]
        assert torch.equal(ends[:, :count], data.edge_index[:, batch.input_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert disjoint == (batch.batch is not None)
        if disjoint:
            assert torch.equal(batch.batch[batch.edge_label_index], torch.arange(count).repeat(2, 2))


@pytest.mark.parametrize("disjoint", [False, True])
def test_triplets(disjoint: bool) -> None:
    data = heterogeneous(random.Random(0))
    loader = link_neighbor_loader(
        data, [3, 2], KEY, disjoint=disjoint, neg_sampling={"mode": "triplet", "amount": 2}, batch_size=8
    )
    for batch in loader:
        source, destination = batch["a"], batch["b"]
        ends = data[KEY].edge_index[:, batch[KEY].input_id]
        assert torch.equal(source.n_id[source.src_index], ends[0])
        assert torch.equal(destination.n_id[destination.dst_pos_index], ends[1])
        assert destination.dst_neg_index.shape == (len(ends[0]), 2)
        if disjoint:
            own = torch.arange(len(ends[0]))
            assert torch.equal(source.batch[source.src_index], own)
            assert torch.equal(destination.batch[destination.dst_pos_index], own)
            assert torch.equal(destination.batch[destination.dst_neg_index], own[:, None].repeat(1, 2))


def timed() -> HeteroData:
    """Nodes of each type at times 0, 1, ..., so that there is an early one for every edge."""
    data = heterogeneous(random.Random(0))
    for key in data.node_types:
        data[key].time = torch.arange(data[key].num_nodes)
    return data


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_nothing_is_from_the_future(mode: str) -> None:
    data = timed()
    times = data[KEY].edge_index.max(0).values
    loader = link_neighbor_loader(
        data, [3, 2], KEY, edge_label_time=times, time_attr="time", neg_sampling=mode, batch_size=8
    )
    for batch in loader:
        limits = times[batch[KEY].input_id]
        for key in ("a", "b", "c"):
            assert bool((batch[key].time <= limits[batch[key].batch]).all())


def test_times_of_edges() -> None:
    data = homogeneous(random.Random(0))
    data.when = torch.arange(data.num_edges)
    loader = link_neighbor_loader(
        data, [-1, -1], data.edge_index, edge_label_time=data.when, time_attr="when", batch_size=16
    )
    for batch in loader:
        assert bool((batch.when <= data.when[batch.input_id][batch.batch[batch.edge_index[0]]]).all())
        into = data.edge_index[1, batch.input_id[:1]]
        early = (data.edge_index[1] == into) & (data.when <= data.when[batch.input_id[0]])
        place = batch.edge_label_index[1, 0]
        assert int((batch.edge_index[1] == place).sum()) == int(early.sum())


def test_data_alone_is_its_own_seed_edges() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
    batch = next(iter(link_neighbor_loader(data, [1], batch_size=3)))
    assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index)
