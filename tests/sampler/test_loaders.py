"""PyG's loaders take the samplers: batches train models with trimmed layers, in this process and in workers."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import trim_to_layer

from dacergnn.sampler import NeighborSampler, hgt_loader, link_neighbor_loader, neighbor_loader
from tests.sampler.oracle import RELATIONS, TYPES, check_batch, global_ends, heterogeneous, homogeneous


class Trimmed(nn.Module):
    """Two layers, each on the part of the batch that its results depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SAGEConv(1, 8), SAGEConv(8, 3)])

    def forward(self, batch: Data, trim: bool) -> Tensor:
        x, edge_index = batch.x, batch.edge_index
        for place, layer in enumerate(self.layers):
            if trim:
                counts = (batch.num_sampled_nodes, batch.num_sampled_edges)
                x, edge_index, _ = trim_to_layer(place, *counts, x, edge_index)
            x = layer(x.relu(), edge_index)
        return x[: batch.batch_size]


def test_batches_of_one_type_train_trimmed_layers() -> None:
    torch.manual_seed(0)
    data = homogeneous(random.Random(0))
    data.y = torch.randint(0, 3, (data.num_nodes,))
    data.x = data.y[:, None].float()
    model = Trimmed()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = list[float]()
    for _ in range(10):
        for batch in neighbor_loader(data, [4, 4], batch_size=10, shuffle=True):
            found = model(batch, trim=True)
            assert torch.allclose(found, model(batch, trim=False), atol=1e-6)
            assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
            loss = nn.functional.cross_entropy(found, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < sum(losses[:5])


def test_batches_of_several_types_pass_trimmed_layers() -> None:
    data = heterogeneous(random.Random(0))
    layers = [HeteroConv({key: SAGEConv((-1, -1), 4) for key in RELATIONS}) for _ in range(2)]
    for batch in neighbor_loader(data, [3, 3], ("a", torch.arange(20)), batch_size=8):
        results = list[Tensor]()
        for trim in (False, True):
            x, edges = batch.x_dict, batch.edge_index_dict
            for place, layer in enumerate(layers):
                if trim:
                    counts = (batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict)
                    x, edges, _ = trim_to_layer(place, *counts, x, edges)
                x = {**{key: torch.zeros(len(v), 4) for key, v in x.items()}, **layer(x, edges)}
            results.append(x["a"][: batch["a"].batch_size])
        assert torch.allclose(*results, atol=1e-6)
        check_batch(data, batch)


def test_loaders_take_the_sampler_itself() -> None:
    data = heterogeneous(random.Random(0))
    sampler = NeighborSampler(data, [2, 2])
    for batch in NodeLoader(data, sampler, "b", batch_size=5):
        assert torch.equal(batch["b"].x.flatten().long(), batch["b"].n_id)
    key = RELATIONS[0]
    for batch in LinkLoader(data, sampler, key, batch_size=30):
        found = global_ends(batch, key, batch[key].edge_label_index)
        assert torch.equal(found, data[key].edge_index[:, batch[key].input_id])


def test_stores() -> None:
    """A pair of stores is sampled like the data that they hold."""
    data = heterogeneous(random.Random(0))
    features, graph = MyFeatureStore(), MyGraphStore()
    for key in TYPES:
        features.put_tensor(data[key].x, group_name=key, attr_name="x", index=None)
    for key in RELATIONS:
        graph.put_edge_index(data[key].edge_index, edge_type=key, layout="coo", size=(TYPES[key[0]], TYPES[key[2]]))
    for found, expected in zip(
        neighbor_loader((features, graph), [-1, -1], "b", batch_size=4),
        neighbor_loader(data, [-1, -1], "b", batch_size=4),
        strict=True,
    ):
        for key in TYPES:
            assert torch.equal(found[key].x, expected[key].x)
        for key in RELATIONS:
            assert torch.equal(found[key].edge_index, expected[key].edge_index)
            assert torch.equal(found[key].e_id, expected[key].e_id)


def test_stores_of_one_type() -> None:
    data = homogeneous(random.Random(0))
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    graph.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(25, 25))
    batch = next(iter(neighbor_loader((features, graph), [-1], torch.arange(5), batch_size=5)))
    assert torch.equal(batch.x[batch.edge_index][..., 0].long(), data.edge_index[:, batch.e_id])


def test_hgt_batches() -> None:
    data = heterogeneous(random.Random(0))
    loaders = [
        (few, hgt_loader(data, {"a": [few, few], "b": [few, few]}, ("b", torch.arange(8)), batch_size=4))
        for few in (2, 30)
    ]
    for few, batch in ((few, batch) for few, loader in loaders for batch in loader):
        seeds = batch["b"].batch_size
        assert torch.equal(batch["b"].n_id[:seeds], batch["b"].input_id)
        for key, most in (("a", 2 * few), ("b", seeds + 2 * few), ("c", 0), ("alone", 0)):
            nodes = batch[key].n_id
            assert len(nodes) <= most
            assert len(nodes.unique()) == len(nodes)
        for key in RELATIONS:
            edge_index = data[key].edge_index
            inside = torch.isin(edge_index[0], batch[key[0]].n_id) & torch.isin(edge_index[1], batch[key[2]].n_id)
            assert sorted(batch[key].e_id.tolist()) == inside.nonzero().flatten().tolist()


def loader(kind: str, workers: int, method: str | None) -> Any:
    data = heterogeneous(random.Random(0))
    options = {"batch_size": 6, "num_workers": workers, "multiprocessing_context": method}
    if kind == "links":
        return link_neighbor_loader(data, [2, 2], RELATIONS[0], neg_sampling="binary", **options)
    if kind == "hgt":
        return hgt_loader(data, [3, 3], "a", **options)
    return neighbor_loader(data, [2, 2], "a", **options)


def batches(kind: str, workers: int = 0, method: str | None = None) -> list[HeteroData]:
    torch.manual_seed(3)
    return list(loader(kind, workers, method))


def same(a: list[HeteroData], b: list[HeteroData]) -> bool:
    """Whether batches hold the same nodes and edges."""
    ids = [[[*batch.n_id_dict.values(), *batch.e_id_dict.values()] for batch in found] for found in (a, b)]
    return all(torch.equal(x, y) for batch in zip(*ids, strict=True) for x, y in zip(*batch, strict=True))


@pytest.mark.parametrize("kind", ["nodes", "links", "hgt"])
def test_seeds_of_torch_repeat_batches(kind: str) -> None:
    first = batches(kind)
    assert same(first, batches(kind))
    assert not same(first, list(loader(kind, 0, None)))


def test_workers_repeat_batches() -> None:
    """Each worker has random numbers of its own, which follow from torch's seed."""
    first = batches("nodes", 2)
    assert same(first, batches("nodes", 2))
    assert not same(first, list(loader("nodes", 2, None)))


@pytest.mark.check
def test_workers_that_are_spawned_make_the_same_batches() -> None:
    found = batches("links", 2, "spawn")
    assert same(found, batches("links", 2, "fork"))
    for batch in found:
        check_batch(heterogeneous(random.Random(0)), batch)


def test_workers_differ() -> None:
    data = Data(edge_index=torch.stack([torch.arange(1000), torch.zeros(1000, dtype=torch.int64)]), num_nodes=1000)
    found = list(neighbor_loader(data, [20], torch.zeros(2, dtype=torch.int64), batch_size=1, num_workers=2))
    assert set(found[0].e_id.tolist()) != set(found[1].e_id.tolist())


def test_inference_of_pyg_takes_the_loader() -> None:
    torch.manual_seed(0)
    model = GraphSAGE(4, 8, 2).eval()
    data = Data(x=torch.randn(12, 4), edge_index=torch.randint(0, 12, (2, 40)))
    with torch.no_grad():
        found = model.inference(neighbor_loader(data, [-1], batch_size=5))
        torch.testing.assert_close(found, model(data.x, data.edge_index))
