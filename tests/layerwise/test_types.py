"""Models over several node types, and layers that torch does not look into: what the full forward gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import UnsupportedCallError
from tests.layerwise.samples import (
    EDGE_ARRAYS,
    METADATA,
    TYPED_EDGES,
    K,
    M,
    N,
    R,
    assert_same,
    draw,
    drawn,
    edges,
    pyg,
    typed_features,
)

pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
BOTH = pytest.mark.parametrize("compiled", [False, True], ids=["original", "compiled"])
# Models of `to_hetero` need a result for every type.
EDGES_INTO_ALL = {**TYPED_EDGES, ("t9", "r5", "t7"): torch.tensor([[0, 3, 3], [1, 0, 0]])}
KEYS = [("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a"), ("c", "in", "b")]
SIZES = {"a": 9, "b": 14, "c": 5}


def hetero(width: int, make: str = "SAGEConv", keys: Any = KEYS, **options: Any) -> Any:
    return pyg().HeteroConv({key: getattr(pyg(), make)((width, width), M, **options) for key in keys}, aggr="mean")


def graph(counts: dict[str, int], sizes: dict[str, int] = SIZES) -> dict[Any, Tensor]:
    """Returns 20 edges for each relation, or as many as are given; the last node of each type has no in-edges."""
    found: dict[Any, Tensor] = {}
    for seed, key in enumerate(KEYS):
        count, generator = counts.get(key[1], 20), torch.Generator().manual_seed(seed)
        high = [sizes[key[0]], max(sizes[key[2]] - 1, 1)]
        found[key] = torch.stack([torch.randint(max(n, 1), (count,), generator=generator) for n in high])
    return found


def features(sizes: dict[str, int] = SIZES) -> dict[str, Tensor]:
    return {kind: draw(size, K, seed=i) for i, (kind, size) in enumerate(sizes.items())}


def check(model: Any, index: Any, x: Any, *, compiled: bool, batch: int = 3, **arrays: Any) -> None:
    model = drawn(model)
    with torch.no_grad():
        expected = model(x, index, **arrays)
    model = dacergnn.optimize(model) if compiled else model
    found = dacergnn.inference(model, index, x, batch=batch, **arrays)
    if isinstance(expected, dict):
        assert list(found) == [*expected]
    assert_same(found, expected)


class One(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lin = pyg().SAGEConv((M, M), M), nn.Linear(M, M)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index).relu() + self.lin(x)


class Two(nn.Module):
    """Two layers with linear layers by type before, norms and a skip between, and dropout behind."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.ModuleDict({kind: nn.Linear(K, M) for kind in SIZES})
        self.norms = nn.ModuleDict({kind: nn.LayerNorm(M) for kind in SIZES})
        self.first, self.second = hetero(M), hetero(M)

    def forward(self, x_dict: dict[str, Tensor], edges_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
        before = {kind: self.encode[kind](x).relu() for kind, x in x_dict.items()}
        after = self.first(before, edges_dict)
        hidden = before | {kind: self.norms[kind](x).relu() + before[kind] for kind, x in after.items()}
        return {kind: F.dropout(x, 0.5, self.training) for kind, x in self.second(hidden, edges_dict).items()}


class Head(Two):
    """The same, with results for one type, of both layers."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2 * M, 3)

    def forward(self, x_dict: dict[str, Tensor], edges_dict: dict[Any, Tensor]) -> Any:
        before = {kind: self.encode[kind](x) for kind, x in x_dict.items()}
        first = self.first(before, edges_dict)
        return self.last(torch.cat([first["b"], self.second(before | first, edges_dict)["b"]], 1))


class Transformers(nn.Module):
    """Two layers, between which a type without in-edges keeps its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.ModuleDict({kind: nn.Linear(M, M) for kind in METADATA[0]})
        self.first, self.second = (pyg().HGTConv(M, M, METADATA, heads=2) for _ in range(2))

    def forward(self, x_dict: dict[str, Tensor], edges_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
        hidden = {kind: self.encode[kind](x).relu() for kind, x in x_dict.items()}
        return self.second({**hidden, **self.first(hidden, edges_dict)}, edges_dict)


class WithoutEmpty(nn.Module):
    """A model that leaves relations without edges out."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleDict({f"conv_{key[1]}": pyg().SAGEConv((K, K), M) for key in KEYS})

    def forward(self, x_dict: dict[str, Tensor], edges_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
        out = {kind: x.new_zeros(len(x), M) for kind, x in x_dict.items()}
        for (source, name, destination), index in edges_dict.items():
            if index.size(1):
                conv = self.convs[f"conv_{name}"]
                out[destination] = out[destination] + conv((x_dict[source], x_dict[destination]), index)
        return out


class Relational(nn.Module):
    """Two layers over typed edges, which torch does not look into, and the results of both."""

    def __init__(self, name: str = "RGCNConv") -> None:
        super().__init__()
        conv = getattr(pyg(), name)
        self.first, self.second = conv(K, M, R), conv(M, M, R)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        hidden = self.first(x, edge_index, edge_type).relu()
        return torch.cat([hidden, self.second(hidden, edge_index, edge_type)], 1)


TYPED: dict[str, Callable[[], nn.Module]] = {
    "HGTConv": lambda: pyg().HGTConv(M, M, METADATA, heads=2),
    "HeteroConv of SAGEConv": lambda: hetero(M, keys=METADATA[1]),
    "HeteroConv of GATConv": lambda: hetero(M, "GATConv", METADATA[1], add_self_loops=False),
    "to_hetero": lambda: pyg().to_hetero(One(), (METADATA[0], list(EDGES_INTO_ALL))),
}


@BOTH
@pytest.mark.parametrize("name", TYPED)
def test_typed_layer(name: str, *, compiled: bool) -> None:
    index = EDGES_INTO_ALL if name == "to_hetero" else TYPED_EDGES
    check(TYPED[name](), index, typed_features(), compiled=compiled, batch=2)


GRAPHS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "relations without edges, and with one": ({"in": 0, "self": 1}, SIZES),
    "a type of one node": ({}, {**SIZES, "c": 1}),
    "a type without nodes": ({"in": 0}, {**SIZES, "c": 0}),
}


@BOTH
@pytest.mark.parametrize("name", GRAPHS)
def test_small_graphs(name: str, *, compiled: bool) -> None:
    counts, sizes = GRAPHS[name]
    check(hetero(K), graph(counts, sizes), features(sizes), compiled=compiled)


def plain(x_dict: dict[str, Tensor], edges_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
    """Two steps along all edges, with degrees of sources, which torch looks into."""
    for _ in range(2):
        out = {kind: x.tanh() for kind, x in x_dict.items()}
        for (source, _, destination), (src, dst) in edges_dict.items():
            degrees = torch.zeros(len(x_dict[source])).index_add(0, src, torch.ones(len(src)))
            message = (x_dict[source] / (1 + degrees).unsqueeze(1))[src] - x_dict[destination][dst]
            out[destination] = out[destination].index_add(0, dst, message)
        x_dict = out
    return x_dict


@pytest.mark.parametrize("name", GRAPHS)
def test_small_graphs_that_torch_looks_into(name: str) -> None:
    counts, sizes = GRAPHS[name]
    index, x = graph(counts, sizes), features(sizes)
    assert_same(dacergnn.inference(plain, index, x, batch=3), plain(x, index))


@BOTH
def test_layers_in_a_row(*, compiled: bool) -> None:
    check(Two(), graph({}), features(), compiled=compiled)


def test_layers_whose_rows_are_of_several_types_together() -> None:
    check(Transformers(), TYPED_EDGES, typed_features(), compiled=True, batch=2)


@BOTH
def test_results_of_one_type(*, compiled: bool) -> None:
    check(Head(), graph({}), features(), compiled=compiled)


@BOTH
def test_a_relation_that_is_absent(*, compiled: bool) -> None:
    index = graph({})
    del index["a", "self", "a"]
    check(hetero(K), index, features(), compiled=compiled)


def test_relations_that_a_model_leaves_out() -> None:
    check(WithoutEmpty(), graph({"self": 0}), features(), compiled=False)


@BOTH
@pytest.mark.parametrize("name", ["RGCNConv", "RGATConv"])
def test_layers_over_typed_edges(name: str, *, compiled: bool) -> None:
    check(Relational(name), edges(), draw(N, K), compiled=compiled, batch=7, edge_type=EDGE_ARRAYS["edge_type"])


@BOTH
def test_degrees_of_sources_in_a_relation(*, compiled: bool) -> None:
    keys = [("a", "to", "b"), ("a", "in", "a")]
    model = pyg().HeteroConv({keys[0]: pyg().SAGEConv(K, M), keys[1]: pyg().GCNConv(K, M)})
    check(model, dict.fromkeys(keys, edges()), {"a": draw(N, K), "b": draw(N, K)}, compiled=compiled, batch=7)


@BOTH
def test_arrays_by_relation(*, compiled: bool) -> None:
    model = pyg().HeteroConv({key: pyg().GraphConv((K, K), M) for key in KEYS})
    index = graph({})
    weights = {key: draw(index[key].size(1)) for key in KEYS[1:]}
    check(model, index, features(), compiled=compiled, edge_weight_dict=weights)


def test_arrays_by_node_type() -> None:
    """They are rows of nodes; a layer that is called as it is takes them beside features of the same nodes."""
    layer = drawn(pyg().RGCNConv(2 * K, M, R))

    def model(x_dict: Any, edges_dict: Any, pos_dict: Any, kinds: Any) -> Tensor:
        key = ("a", "to", "a")
        return layer(torch.cat([x_dict["a"], pos_dict["a"]], 1), edges_dict[key], kinds[key])

    index = {("a", "to", "a"): edges()}
    kinds = {("a", "to", "a"): EDGE_ARRAYS["edge_type"]}
    x, pos = {"a": draw(N, K)}, {"a": draw(N, K, seed=1)}
    found = dacergnn.inference(model, index, x, batch=7, pos_dict=pos, kinds=kinds)
    assert_same(found, model(x, index, pos, kinds).detach())


def test_list_of_typed_layers() -> None:
    """Functions of rows are given one type at a time, or, by the name of their argument, a dictionary."""
    lines = {kind: drawn(nn.Linear(K, M)) for kind in SIZES}
    first, second = drawn(hetero(M)), drawn(hetero(M))

    def encode(x_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return {kind: lines[kind](rows).relu() for kind, rows in x_dict.items()}

    index = {key: edges for key, edges in graph({}).items() if key[0] != "c"}  # which the first layer drops
    with torch.no_grad():
        hidden = first(encode(features()), index)
        expected = second({kind: rows.tanh() for kind, rows in hidden.items()}, index)
    found = dacergnn.inference([encode, first, torch.tanh, second], index, features(), batch=3)
    assert_same(found, expected)


def test_a_model_is_left_with_its_layers() -> None:
    model = drawn(Relational())
    layers = [*model.modules()]
    dacergnn.inference(model, edges(), draw(N, K), batch=7, edge_type=EDGE_ARRAYS["edge_type"])
    assert [*model.modules()] == layers


def test_a_sum_over_nodes_of_a_type() -> None:
    layer = drawn(hetero(K, keys=KEYS[:1]))

    def model(x_dict: Any, edges_dict: Any) -> Any:
        return {kind: x - x.mean(0) for kind, x in layer(x_dict, edges_dict).items()}

    index = {KEYS[0]: graph({})[KEYS[0]]}
    with pytest.raises(UnsupportedCallError, match=r"^model .*: mean at \S*test_types\.py, .* depends on all rows at"):
        dacergnn.inference(model, index, features())


def test_rows_of_two_types() -> None:
    x = {"a": draw(4, K), "b": draw(4, K)}
    index = {("a", "to", "b"): torch.tensor([[0, 1], [1, 2]])}
    with pytest.raises(UnsupportedCallError, match="takes rows of nodes and of edges, or of several types, together"):
        dacergnn.inference(lambda x, edges: x["a"] + x["b"], index, x)


class Loops(Relational):
    """The same with an edge of a type of its own from each node to itself, and edges that features weigh."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        nodes = torch.arange(len(x))
        edge_index = torch.cat([edge_index, torch.stack([nodes, nodes])], 1)
        edge_type = torch.cat([edge_type, torch.full((len(x),), R - 1)])
        return super().forward(x, edge_index, edge_type)


@BOTH
def test_edges_that_the_model_computes(*, compiled: bool) -> None:
    check(Loops(), edges(), draw(N, K), compiled=compiled, batch=7, edge_type=EDGE_ARRAYS["edge_type"])


class OtherRows(Relational):
    """A layer that gets rows of other nodes than those that its edges lead from."""

    def forward(self, x_dict: Any, edges_dict: Any, edge_type: Any) -> Tensor:
        key = ("a", "to", "b")
        return self.first((x_dict["b"], x_dict["b"]), edges_dict[key], edge_type[key])


def test_rows_of_other_nodes() -> None:
    key = ("a", "to", "b")
    x, index = {"a": draw(N, K), "b": draw(N, K)}, {key: edges()}
    with pytest.raises(UnsupportedCallError, match=r": RGCNConv takes edges of nodes, and not rows of these nodes\."):
        dacergnn.inference(drawn(OtherRows()), index, x, edge_type={key: EDGE_ARRAYS["edge_type"]})


def test_a_layer_that_keeps_its_edges() -> None:
    layers = [drawn(pyg().GCNConv(K, K, cached=True)), drawn(pyg().RGCNConv(K, M, R))]
    words = r"^GCNConv cannot be computed range by range: it keeps the edges of its first call\. Set cached=False\."
    with pytest.raises(UnsupportedCallError, match=words):
        dacergnn.inference(layers, edges(), draw(N, K), edge_type=EDGE_ARRAYS["edge_type"])
    assert layers[0]._cached_edge_index is None
