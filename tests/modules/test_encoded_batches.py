"""Batches that workers of a loader have encoded: nothing is left to encode, and all values are the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.errors import ArrayError
from dacergnn.graph.packed import PackedGraphs
from dacergnn.loader import Encoded
from dacergnn.modules.arrivals import arrive, collecting
from tests.support.encodings import assert_same_step, count_encodings
from tests.support.random_graphs import joined_graph

pytest.importorskip("torch_geometric")
import torch_geometric.nn as pyg
from torch_geometric.data import Data, HeteroData

K, SEEN, LEARNED = 6, 3, 7
KEYS = (("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a"))


class OneType(nn.Module):
    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor, edge_index: Tensor, *types: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index, *types).relu()
        return x


class SeveralTypes(nn.Module):
    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> Tensor:
        for conv in self.convs:
            x = {name: rows.relu() for name, rows in conv(x, edges).items()}
        return torch.cat([*x.values()])


def typed(batch: Any) -> tuple[Any, ...]:
    return batch.x, batch.edge_index, batch.edge_type


def one_type(batch: Any) -> tuple[Any, ...]:
    return batch.x, batch.edge_index


def several_types(batch: Any) -> tuple[Any, ...]:
    return batch.x_dict, batch.edge_index_dict


MODELS: dict[str, Any] = {
    "SAGEConv": (lambda: OneType(pyg.SAGEConv(K, K), pyg.SAGEConv(K, K)), one_type),
    "GATConv": (lambda: OneType(pyg.GATConv(K, K)), one_type),
    "ResGatedGraphConv": (lambda: OneType(pyg.ResGatedGraphConv(K, K)), one_type),
    "RGCNConv": (lambda: OneType(pyg.RGCNConv(K, K, 3)), typed),
    "RGATConv": (lambda: OneType(pyg.RGATConv(K, K, 3)), typed),
    "HGTConv": (lambda: SeveralTypes(pyg.HGTConv(K, K, (["a", "b"], list(KEYS)), heads=2)), several_types),
    "HeteroConv": (
        lambda: SeveralTypes(pyg.HeteroConv({key: pyg.SAGEConv(K, K) for key in KEYS})),
        several_types,
    ),
}


class Batches(torch.utils.data.Dataset[Any]):
    """Graphs of different sizes, each the same whenever it is asked for."""

    def __init__(self, several: bool, transform: Any) -> None:
        self.several, self.transform = several, transform

    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> Any:
        generator = torch.Generator().manual_seed(number)
        sizes = {"a": 20 + number, "b": 11 + 2 * number}

        def edges(source: str, destination: str) -> Tensor:
            count = 50 + 3 * number
            ends = [torch.randint(sizes[end], (count,), generator=generator) for end in (source, destination)]
            return torch.stack(ends)

        def features(name: str) -> Tensor:
            return torch.randn(sizes[name], K, generator=generator, dtype=torch.float64)

        if self.several:
            batch: Any = HeteroData()
            for name in sizes:
                batch[name].x = features(name)
            for key in KEYS:
                batch[key].edge_index = edges(key[0], key[2])
        else:
            batch = Data(x=features("a"), edge_index=edges("a", "a"))
            batch.edge_type = torch.randint(3, (batch.edge_index.size(1),), generator=generator)
        return self.transform(batch) if self.transform is not None else batch


def only(batch: list[Any]) -> Any:
    return batch[0]


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_to_encode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, arguments = MODELS[name]
    torch.manual_seed(0)
    original = make().double()
    model = dacergnn.optimize(make().double(), on_unsupported="error")
    model.load_state_dict(original.state_dict())
    encoder = Encoded(model, lambda model, batch: model(*arguments(batch)))
    warm = Batches(name in ("HGTConv", "HeteroConv"), None)
    for number in range(SEEN):  # so that it is compiled before there are workers
        model(*arguments(warm[number])).square().sum().backward()
    encoded = count_encodings(monkeypatch)
    loader = DataLoader(
        Batches(name in ("HGTConv", "HeteroConv"), encoder), batch_size=1, collate_fn=only, num_workers=1,
        prefetch_factor=1,
    )  # fmt: skip
    names: list[str] = []
    for number, batch in enumerate(loader):
        if number == LEARNED:
            encoded[0], names = 0, encoder.names()
        assert_same_step((model, original), [m(*arguments(batch)) for m in (model, original)])
    assert names
    assert encoder.names() == names
    assert encoded[0] == 0


def test_batches_that_are_written_to_after_they_have_arrived() -> None:
    original, batch = OneType(pyg.SAGEConv(K, K)).double(), Batches(False, None)[0]
    model = dacergnn.optimize(original, on_unsupported="error")
    with torch.no_grad(), collecting() as graphs:
        model(batch.x, batch.edge_index)
    arrive(graphs)
    batch.edge_index[0] = batch.edge_index[0].flip(0)
    torch.testing.assert_close(model(batch.x, batch.edge_index), original(batch.x, batch.edge_index))


def test_without_workers_nothing_is_done() -> None:
    model = dacergnn.optimize(OneType(pyg.SAGEConv(K, K)).double())
    batch = Batches(False, None)[0]
    assert Encoded(model)(batch) is batch
    assert "encoded" not in batch


def test_encoding_draws_no_random_numbers() -> None:
    """The model is called for it, and its dropout would take numbers of the batches that follow."""
    model = OneType(pyg.SAGEConv(K, K))
    model.convs[0].register_forward_pre_hook(lambda _, args: (nn.functional.dropout(args[0]), *args[1:]))
    fast, batch = dacergnn.optimize(model.double().train()), Batches(False, None)[0]
    state = torch.get_rng_state()
    Encoded(fast).encode(batch)
    assert torch.equal(torch.get_rng_state(), state)
    fast(batch.x, batch.edge_index)
    assert not torch.equal(torch.get_rng_state(), state)


def test_arguments() -> None:
    with pytest.raises(ArrayError, match="model is a str; pass the module"):
        Encoded("model")  # type: ignore[arg-type]
    with pytest.raises(ArrayError, match="call is a int; pass a function of the model and a batch"):
        Encoded(nn.Linear(1, 1), 3)  # type: ignore[arg-type]


def test_packed_graphs_are_the_same() -> None:
    import random

    graphs = [joined_graph(random.Random(seed), 20, 60, 3, 2).hetero() for seed in range(3)]
    names = ["ids_E_src", "ptr_E_src", "idx_U_src", "via_E_dst_src", "ids_E_etype_src", "idx_NS_ntype"]
    for graph in graphs[:2]:
        graph.build(names)
        graph.pair_mean_weights(torch.float64)
    for graph, found in zip(graphs, PackedGraphs.of(graphs).graphs(), strict=True):
        assert isinstance(found, HeteroGraph)
        assert repr(found) == repr(graph)
        assert found.encoding_bytes() == graph.encoding_bytes()
        for name in names:
            assert torch.equal(found.encoding(name), graph.encoding(name))
        assert (found.edge_perm is None) == (graph.edge_perm is None)
        assert found.sizes == graph.sizes
        assert torch.equal(found.pair_mean_weights(torch.float64), graph.pair_mean_weights(torch.float64))


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (lambda: pyg.GATConv(K, 4), {"return_attention_weights": True}),
        (lambda: pyg.GATv2Conv(K, 4), {"return_attention_weights": True}),
        (lambda: pyg.GINConv(nn.Sequential(nn.Linear(K, 4), nn.BatchNorm1d(4))), {}),
    ],
)
def test_results_that_only_the_layer_knows_have_their_form(layer: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    compiled, x, edge_index = dacergnn.optimize(layer()), torch.randn(7, K), torch.randint(7, (2, 12))
    with collecting() as found:
        collected = compiled(x, edge_index, **options)
    assert len(found) == 1
    called = compiled(x, edge_index, **options)
    shapes = [[tuple(t.shape) for t in tree_leaves(result)] for result in (collected, called)]
    assert shapes[0] == shapes[1]
