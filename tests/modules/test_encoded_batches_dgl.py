"""Batches of DGL that workers of a loader have encoded: nothing is left to encode, and all values are the same."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
import dacergnn.loader as loader_module
from dacergnn.errors import ArrayError
from dacergnn.loader import Encoded
from dacergnn.modules import arrivals
from dacergnn.modules.arrivals import _numbered, collecting
from dacergnn.modules.layer import core_of
from tests.support.encodings import assert_same_step, count_encodings

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
dglnn: Any = pytest.importorskip("dgl.nn")

K, R, T, N, E = 6, 3, 2, 60, 240
SEEN, LEARNED, BATCHES = 3, 8, 14
KEYS = (("a", "ahead", "b"), ("b", "back", "a"), ("a", "self", "a"))

pytestmark = pytest.mark.filterwarnings("ignore:.*[Cc][Pp][Uu] affinity")


class OneType(nn.Module):
    """Layers on the blocks of a batch; ``types`` names the columns of types, those of nodes with "src." before them."""

    def __init__(self, convs: list[nn.Module], *types: str) -> None:
        super().__init__()
        self.convs, self.types = nn.ModuleList(convs), types

    def forward(self, blocks: list[Any], x: Tensor) -> Tensor:
        for conv, block in zip(self.convs, blocks, strict=True):
            types = [block.srcdata[n[4:]] if n.startswith("src.") else block.edata[n] for n in self.types]
            x = conv(block, x, *types).flatten(1).relu()
        return x


class SeveralTypes(nn.Module):
    """Layers on the blocks of a batch with several types of nodes."""

    def __init__(self, convs: list[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, blocks: list[Any], x: dict[str, Tensor]) -> Tensor:
        for conv, block in zip(self.convs, blocks, strict=True):
            x = {name: rows.flatten(1).relu() for name, rows in conv(block, x).items()}
        return torch.cat([*x.values()])


def twice(make: Callable[[], nn.Module], *types: str) -> nn.Module:
    return OneType([make(), make()], *types)


def relations() -> nn.Module:
    convs = {
        "ahead": dglnn.SAGEConv((K, K), K, "mean"),
        "back": dglnn.GINConv(nn.Linear(K, K), "mean"),
        "self": dglnn.GraphConv(K, K, norm="right", allow_zero_in_degree=True),
    }
    return dglnn.HeteroGraphConv(convs, aggregate="sum")


MODELS: dict[str, Callable[[], nn.Module]] = {
    "RelGraphConv": lambda: twice(lambda: dglnn.RelGraphConv(K, K, R, regularizer="basis", num_bases=2), "type"),
    "HGTConv": lambda: twice(lambda: dglnn.HGTConv(K, 3, 2, T, R, dropout=0.0), "src.kind", "type"),
    "GATConv": lambda: twice(lambda: dglnn.GATConv(K, 3, 2, allow_zero_in_degree=True)),
    "SAGEConv": lambda: twice(lambda: dglnn.SAGEConv(K, K, "mean")),
    "HeteroGraphConv": lambda: SeveralTypes([relations(), relations()]),
}


def graph(*, several: bool = False) -> Any:
    """A graph with features ``x``, types of nodes ``kind`` and of edges ``type``, of one type or several."""
    generator = torch.Generator().manual_seed(0)

    def ends() -> tuple[Tensor, Tensor]:
        source, destination = torch.randint(N, (2, E), generator=generator)
        return source, destination

    nodes = dict.fromkeys(("a", "b"), N)
    found = dgl.heterograph({key: ends() for key in KEYS}, nodes) if several else dgl.graph(ends(), num_nodes=N)
    for kind in found.ntypes:
        found.nodes[kind].data["x"] = torch.randn(N, K, generator=generator, dtype=torch.float64)
        found.nodes[kind].data["kind"] = torch.randint(T, (N,), generator=generator)
    for key in found.canonical_etypes:
        found.edges[key].data["type"] = torch.randint(R, (E,), generator=generator)
    return found


def loader(g: Any, sampler: Any, *, workers: int = 2, batches: int = BATCHES, edges: bool = False) -> Any:
    seeds = torch.arange(4 * batches)
    return dgl.dataloading.DataLoader(
        g, seeds if edges or len(g.ntypes) == 1 else {"a": seeds}, sampler, batch_size=4, num_workers=workers,
        prefetch_factor=1 if workers else None,
    )  # fmt: skip


def call(model: nn.Module, batch: Any) -> Tensor:
    return model(batch[-1], batch[-1][0].srcdata["x"])


def check(model: nn.Module, original: nn.Module, batch: Any) -> None:
    """Compares results and gradients."""
    assert_same_step((model, original), [call(m, batch) for m in (model, original)])


def compiled(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    original = make().double()
    return dacergnn.optimize(copy.deepcopy(original), on_unsupported="error"), original


def check_that_nothing_is_left(
    model: nn.Module, original: nn.Module, g: Any, encoder: Encoded, sampler: Any, monkeypatch: pytest.MonkeyPatch,
    *, edges: bool = False,
) -> None:  # fmt: skip
    for batch in loader(g, sampler, workers=0, batches=SEEN, edges=edges):  # so that it is compiled before
        call(model, batch).square().sum().backward()
    encoded, names = count_encodings(monkeypatch), list[str]()
    for number, batch in enumerate(loader(g, encoder.sampler(sampler), edges=edges)):
        if number == LEARNED:
            encoded[0], names = 0, encoder.names()
        check(model, original, batch)
    assert names
    assert encoder.names() == names
    assert encoded[0] == 0


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_to_encode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g, sampler = graph(several=name == "HeteroGraphConv"), dgl.dataloading.NeighborSampler([4, 4])
    model, original = compiled(MODELS[name])
    check_that_nothing_is_left(model, original, g, Encoded(model, call), sampler, monkeypatch)


def test_edges_as_seeds_and_no_features_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first graph of a batch, that of the seeds, is none that layers read; features are not there in workers."""

    def blank(model: nn.Module, batch: Any) -> Tensor:
        _, _, blocks = batch
        return model(blocks, torch.zeros(blocks[0].num_src_nodes(), K, dtype=torch.float64))

    model, original = compiled(MODELS["SAGEConv"])
    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(2, prefetch_node_feats=["x"])
    sampler = dgl.dataloading.as_edge_prediction_sampler(sampler)
    check_that_nothing_is_left(model, original, graph(), Encoded(model, blank), sampler, monkeypatch, edges=True)


class Subgraphs:
    """Samples the edges that lead to some nodes, and gives a graph that is no block."""

    def sample(self, g: Any, indices: Tensor) -> list[Any]:
        return [[dgl.in_subgraph(g, indices)]]


def add(g: Any) -> None:
    g.add_edges(0, 1, {"type": torch.tensor([1])})


def exchange(g: Any) -> None:
    """Removes an edge and adds one, so that there are as many."""
    g.remove_edges(0)
    add(g)


def write(g: Any) -> None:
    source, _ = g.edges()
    source[0] = (source[0] + 1) % N


def write_types(g: Any) -> None:
    types = g.edata["type"]
    types[0] = (types[0] + 1) % R


def clone(g: Any) -> None:
    g.edata["type"] = g.edata["type"].clone()


CHANGES: dict[Callable[[Any], None], bool] = {add: True, exchange: True, write: True, write_types: True, clone: False}
"""Tells what is done to a graph, and whether it is another one then."""


@pytest.mark.parametrize("alike", [False, True], ids=["checksums", "equal-checksums"])
def test_graphs_that_have_changed_are_not_found(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if alike:
        monkeypatch.setattr(arrivals, "checksum", lambda vectors: 7)
    model, original = compiled(lambda: OneType([dglnn.RelGraphConv(K, K, R, regularizer="basis", num_bases=2)], "type"))
    sampler = Encoded(model, call).sampler(Subgraphs())
    graphs, found = core_of(model.convs[0]).graphs, dict[Any, bool]()  # type: ignore[index, arg-type]
    for change, batch in zip(CHANGES, loader(graph(), sampler, batches=len(CHANGES)), strict=True):
        change(batch[0][0])
        before = graphs.encoded
        check(model, original, batch)
        found[change] = graphs.encoded > before
    assert found == CHANGES


def test_graphs_that_arrive_go_with_their_batch() -> None:
    model = dacergnn.optimize(MODELS["SAGEConv"]().double())
    batch = dgl.dataloading.NeighborSampler([4, 4]).sample(graph(), torch.arange(4))
    batch[-1][0].encoded = Encoded(model, call).encode(batch)
    sent = pickle.dumps(batch)
    gc.collect()
    before = len(_numbered)
    received = pickle.loads(sent)
    assert len(_numbered) == before + 2
    del received
    assert len(_numbered) == before


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(K, K), nn.BatchNorm1d(K), nn.Linear(K, 4))


def types(g: Any, x: Tensor) -> tuple[Any, ...]:
    return g, x, g.edata["type"]


def plain(g: Any, x: Tensor) -> tuple[Any, ...]:
    return g, x


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Tensor], tuple[Any, ...]]]] = {
    "RelGraphConv": (lambda: dglnn.RelGraphConv(K, 4, R), types),
    "HGTConv": (
        lambda: dglnn.HGTConv(K, 2, 4, T, R),
        lambda g, x: (g, x, g.srcdata["kind"], g.edata["type"]),
    ),
    "GraphConv": (lambda: dglnn.GraphConv(K, 4, allow_zero_in_degree=True), plain),
    "GraphConv-weight": (
        lambda: dglnn.GraphConv(K, 4, weight=False, bias=False, allow_zero_in_degree=True),
        lambda g, x: (g, x, torch.ones(K, 4)),
    ),
    "GraphConv-no-weight": (
        lambda: dglnn.GraphConv(K, K, weight=False, bias=False, allow_zero_in_degree=True), plain,
    ),
    "SAGEConv": (lambda: dglnn.SAGEConv(K, 4, "gcn"), plain),
    "GINConv": (lambda: dglnn.GINConv(network(), "sum"), plain),
    "GINConv-alone": (lambda: dglnn.GINConv(None, "sum"), plain),
    "GATConv": (lambda: dglnn.GATConv(K, 4, 2, allow_zero_in_degree=True), plain),
    "GATConv-attention": (
        lambda: dglnn.GATConv(K, 4, 2, allow_zero_in_degree=True),
        lambda g, x: (g, x, None, True),
    ),
    "GATv2Conv": (lambda: dglnn.GATv2Conv(K, 4, 2, allow_zero_in_degree=True), plain),
    "EdgeConv": (lambda: dglnn.EdgeConv(K, 4, allow_zero_in_degree=True), plain),
    "GMMConv": (
        lambda: dglnn.GMMConv(K, 4, 2, 3, allow_zero_in_degree=True),
        lambda g, x: (g, x, torch.ones(g.num_edges(), 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_that_encode_give_zeros_of_the_shape_of_results(name: str) -> None:
    make, arguments = LAYERS[name]
    _, _, (block,) = dgl.dataloading.NeighborSampler([4]).sample(graph(), torch.arange(4))
    original = make()
    args = arguments(block, block.srcdata["x"].float())
    with collecting() as found:
        results = dacergnn.optimize(original, on_unsupported="error")(*args)
    expected = original(*args)
    pairs = [(results, expected)] if isinstance(expected, Tensor) else zip(results, expected, strict=True)
    for result, wanted in pairs:
        assert torch.equal(result, torch.zeros_like(wanted))
    assert len(found) == 1


def test_without_workers_nothing_is_done() -> None:
    model = dacergnn.optimize(MODELS["SAGEConv"]().double())
    g, inner = graph(), dgl.dataloading.NeighborSampler([4, 4])
    sampler = Encoded(model, call).sampler(inner)
    _, _, blocks = sampler.sample(g, torch.arange(4))
    assert not any(hasattr(block, "encoded") for block in blocks)


def test_samplers_have_the_attributes_of_those_that_they_are_made_of() -> None:
    sampler = Encoded(nn.Linear(1, 1), call).sampler(dgl.dataloading.NeighborSampler([4, 5]))
    for other in (sampler, copy.copy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert other.fanouts == [4, 5]
    with pytest.raises(AttributeError, match="'NeighborSampler' object has no attribute 'fan_outs'"):
        _ = sampler.fan_outs


def test_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = dgl.dataloading.NeighborSampler([4])
    with pytest.raises(ArrayError, match="sampler is a list and has no method sample; pass a sampler of DGL"):
        Encoded(nn.Linear(1, 1), call).sampler([4])
    with pytest.raises(ArrayError, match="call is None; pass a function of the model and what the sampler returns"):
        Encoded(nn.Linear(1, 1)).sampler(sampler)
    monkeypatch.setattr(loader_module, "get_worker_info", object)
    without = SimpleNamespace(sample=lambda g, indices: (indices, [indices]))
    with pytest.raises(ArrayError, match="sampler returns a tuple without a graph of DGL; pass one that samples"):
        Encoded(nn.Linear(1, 1), call).sampler(without).sample(graph(), torch.arange(4))
