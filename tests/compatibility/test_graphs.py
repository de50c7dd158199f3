"""Graphs that change between calls are noticed, whoever writes to them (docs/graphs.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import pytest
import torch
import torch_geometric.nn as pyg
from dgl import nn as dglnn
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from dacergnn.runtime.edge_changes import Seen
from tests.compatibility.kinds import DGLForward, F, M, N, R, UserLayer, edges

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "RGCNConv": lambda: pyg.RGCNConv(F, M, R),
    "RGATConv": lambda: pyg.RGATConv(F, M, R),
    "SAGEConv": lambda: pyg.SAGEConv(F, M),
    "GCNConv": lambda: pyg.GCNConv(F, M),
    "GATConv": lambda: pyg.GATConv(F, M),
    "traced": UserLayer,
}
Write = Callable[[Tensor, Tensor], None]


def _through_numpy(index: Tensor, new: Tensor) -> None:
    index.numpy()[:] = new.numpy()


def _through_data(index: Tensor, new: Tensor) -> None:
    index.data.copy_(new)


def _exchanged(index: Tensor, new: Tensor) -> None:
    index.data = new.clone()


def _by_torch(index: Tensor, new: Tensor) -> None:
    index.copy_(new)


def _one_edge(index: Tensor, new: Tensor) -> None:
    index.data[0, 3] = (index[0, 3] + 1) % N


WRITES: list[Write] = [_through_numpy, _through_data, _exchanged, _by_torch, _one_edge]


def _call(name: str, module: nn.Module, x: Tensor, index: Tensor) -> Tensor:
    return module(x, index, edges()[1]) if name.startswith("R") else module(x, index)


def _features() -> Tensor:
    return torch.randn(N, F, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", LAYERS)
def test_writes_to_an_edge_index(name: str, write: Write, inference: bool) -> None:
    torch.manual_seed(0)
    original = LAYERS[name]()
    fast = dacergnn.optimize(original, on_unsupported="error")
    with torch.inference_mode(inference):
        index, new = edges()[0].clone(), edges(5)[0].clone()
        for _ in range(4):  # so that calls are repeated
            _call(name, fast, _features(), index)
        write(index, new)
        for _ in range(2):
            torch.testing.assert_close(_call(name, fast, _features(), index), _call(name, original, _features(), index))


@pytest.mark.parametrize("layer", ["SAGEConv", "ResGatedGraphConv", "RGCNConv"])
def test_memory_that_numpy_gets_between_calls(layer: str) -> None:
    index, types = torch.randint(0, N, (2, 9000)), torch.zeros(9000, dtype=torch.int64)
    options, more = ((1,), (types,)) if layer == "RGCNConv" else ((), ())
    original = getattr(pyg, layer)(F, M, *options).double()
    fast = dacergnn.optimize(original, on_unsupported="error")
    x = torch.rand(N, F, dtype=torch.float64)
    for _ in range(4):
        fast(x, index, *more)
    memory = index.numpy()
    for place in (4711, 17, 8999):
        memory[0, place] = (memory[0, place] + 1) % N
        torch.testing.assert_close(fast(x, index, *more), original(x, index, *more))


def test_writes_to_weights_of_edges_in_memory_of_numpy() -> None:
    torch.manual_seed(0)
    original, index = pyg.GCNConv(F, M), edges()[0]
    fast = dacergnn.optimize(original, on_unsupported="error")
    memory = torch.rand(index.size(1)).numpy()
    weights = torch.from_numpy(memory)
    for factor in (1, 2):
        memory *= factor
        memory[3] += factor
        for _ in range(3):
            torch.testing.assert_close(fast(_features(), index, weights), original(_features(), index, weights))


EDITED: list[Callable[[], nn.Module]] = [
    lambda: dglnn.GraphConv(F, M),
    lambda: dglnn.SAGEConv(F, M, "gcn"),
    lambda: dglnn.GATConv(F, M, 2),
    DGLForward,
]


def _edited(g: Any) -> None:
    g.remove_edges(torch.arange(4))
    g.add_edges(*edges(5)[0][:, :4])


@pytest.mark.parametrize("edit", ["structure", "memory"])
@pytest.mark.parametrize("make", EDITED)
def test_graphs_of_dgl_that_are_edited(make: Callable[[], nn.Module], edit: str) -> None:
    torch.manual_seed(0)
    original = make()
    fast = original if isinstance(original, DGLForward) else dacergnn.optimize(original, on_unsupported="error")
    loops = torch.arange(N)
    src, dst = (torch.cat([end, loops]).clone() for end in edges()[0])
    g = dgl.graph((src, dst), num_nodes=N)
    for _ in range(4):
        fast(g, _features())
    if edit == "structure":
        _edited(g)
    else:  # DGL keeps the memory of the tensors that it was given
        src[:5] = (src[:5] + 1) % N
    other = dgl.graph(g.edges(order="eid"), num_nodes=N)
    torch.testing.assert_close(fast(g, _features()), original(other, _features()))


def test_all_numbers_of_large_tensors_are_compared() -> None:
    index = torch.randint(0, 10**6, (2, 10**5))
    seen = {check: Seen([index], check) for check in ("always", "never")}  # type: ignore[arg-type]
    index.data[1, 777] += 1
    assert {check: s.same([index]) for check, s in seen.items()} == {"always": False, "never": True}
    index.add_(1)
    assert not seen["never"].same([index])


@pytest.mark.parametrize("write", ["data", "storage"])
def test_writes_that_torch_does_not_count(write: str) -> None:
    torch.manual_seed(0)
    original, index, x = pyg.SAGEConv(F, M), torch.randint(0, N, (2, 9000)), _features()
    fast, new = dacergnn.optimize(original, on_unsupported="error"), index.clone()
    new[0, 3] = (new[0, 3] + 9) % N
    for _ in range(4):
        fast(x, index)
    if write == "data":
        index.data[0, 3] = new[0, 3]
    else:
        index.untyped_storage().copy_(new.untyped_storage())
    torch.testing.assert_close(fast(x, index), original(x, index))


@pytest.mark.parametrize("inference", [False, True])
def test_writes_where_torch_cannot_describe_tensors_to_c(inference: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dacergnn.runtime.edge_changes.DESCRIBE", None)
    with torch.inference_mode(inference):
        index = torch.randint(0, 10**6, (2, 10**4))
        seen = Seen([index])
        assert seen.same([index])
        index.data[:] = torch.randint(0, 10**6, (2, 10**4))
        assert not seen.same([index])
        seen = Seen([index])
        index.numpy()[1, 777] += 1
        assert not seen.same([index])


FORMS: list[Callable[[Tensor], Tensor]] = [
    lambda numbers: numbers,
    lambda numbers: numbers[::2],
    lambda numbers: numbers.view(-1, 2).t()[1],
]


@pytest.mark.parametrize("form", FORMS)
def test_checksums_tell_places_apart(form: Callable[[Tensor], Tensor]) -> None:
    numbers = form(torch.arange(4000, dtype=torch.int32))
    seen = Seen([numbers])
    for first, second in [(0, 1), (3, 11), (8, 1999)]:
        values = numbers[[first, second]].clone()
        numbers.data[first], numbers.data[second] = values[1], values[0]
        assert not seen.same([numbers])
        numbers.data[first], numbers.data[second] = values[0], values[1]
        assert seen.same([numbers])


def test_the_check_belongs_to_the_layer() -> None:
    torch.manual_seed(0)
    original, index = pyg.SAGEConv(F, M), torch.randint(0, N, (2, 10**4))
    found: dict[str, bool] = {}
    for check in ("always", "never"):
        fast = dacergnn.optimize(original, config=Config(check_graph=check))  # type: ignore[arg-type]
        own = index.clone()
        before = fast(_features(), own)
        own.data[1] = 0
        found[check] = torch.equal(fast(_features(), own), before)
    assert found == {"always": False, "never": True}


def test_the_check_is_that_of_weights_of_edges_too() -> None:
    torch.manual_seed(0)
    original, index = pyg.GCNConv(F, M), torch.randint(0, N, (2, 10**4))
    fast = dacergnn.optimize(original, config=Config(check_graph="always"))
    weight = torch.rand(10**4)
    for place in (5, 4711, 9998):
        weight.data[place] = 100.0
        torch.testing.assert_close(fast(_features(), index, weight), original(_features(), index, weight))


class _WithWeights(pyg.MessagePassing):
    """A layer without a front end that takes a number of each edge."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(F, M)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return self.propagate(edge_index, h=self.lin(x), weight=weight)

    def message(self, h_j: Tensor, weight: Tensor) -> Tensor:
        return weight[:, None] * h_j.tanh()


VALUED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "GCNConv": (lambda: pyg.GCNConv(F, M), ()),
    "GATConv": (lambda: pyg.GATConv(F, M, edge_dim=2), (2,)),
    "GMMConv": (lambda: pyg.GMMConv(F, M, dim=2, kernel_size=2), (2,)),
    "TransformerConv": (lambda: pyg.TransformerConv(F, M, edge_dim=2), (2,)),
    "traced": (_WithWeights, ()),
}


@pytest.mark.parametrize("name", VALUED)
def test_equal_edges_in_another_order(name: str) -> None:
    """Values of edges belong to them by position, so that a graph with another order is another one."""
    make, shape = VALUED[name]
    original = make().double()
    fast = dacergnn.optimize(original, on_unsupported="error")
    x, (index, _) = _features().double(), edges()
    values = torch.rand(index.size(1), *shape, dtype=torch.float64)
    by_destination = index[1].argsort(stable=True)  # edges of a node keep their order, so sorted edges are equal
    for given in (index, index[:, by_destination], index.flip(1), index):
        torch.testing.assert_close(fast(x, given, values), original(x, given, values))
