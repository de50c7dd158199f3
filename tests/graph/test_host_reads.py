"""What a device has to tell the host while a graph is encoded: sizes, and that once."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dacergnn import HeteroGraph
from dacergnn.frontends import find_frontend
from dacergnn.graph import sorting
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import GRAPH_MAPS, TYPE_PATHS
from dacergnn.modules.graphs import GraphCache
from tests.support.random_graphs import joined_graph


class Reads(TorchDispatchMode):
    """Counts operators that wait for a device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.found: list[str] = []
        self.numbers = 0
        original = Tensor.tolist

        def tolist(tensor: Tensor) -> Any:
            self.found.append("tolist")
            self.numbers += tensor.numel()
            return original(tensor)

        monkeypatch.setattr(Tensor, "tolist", tolist)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        whole = name in ("bincount", "equal", "unique", "_unique2", "masked_select")
        if name in ("_local_scalar_dense", "nonzero") or whole:
            self.found.append(name)
            self.numbers += 1
        assert name != "repeat_interleave" or (kwargs or {}).get("output_size") is not None
        return func(*args, **(kwargs or {}))


def encodings() -> list[str]:
    names = [f"{kind}_{space}_{path}" for space, path in GRAPH_MAPS for kind in ("idx", "ptr", "ids")]
    typed = [(s, a, b) for s, a in GRAPH_MAPS if a in TYPE_PATHS for t, b in GRAPH_MAPS if s == t]
    return [*names, *(f"ids_{s}_{a}_{b}" for s, a, b in typed)]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are treated as those of a device."""
    monkeypatch.setattr(sorting, "at_hand", lambda tensor: False)


@pytest.mark.usefixtures("away")
def test_only_sizes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = joined_graph(random.Random(3), 60, 300, 4, 3)
    with Reads(monkeypatch) as reads:
        graph = raw.hetero()
        made = len(reads.found)
        # Smallest and largest of five vectors, whether the edges are in order and node types agree.
        assert (made, reads.numbers) == (1, 12)
        Profile.of(graph)
        for name in encodings():
            graph.encoding(name)
        again = len(reads.found)
        # Pairs of both ends, rows of all parts, longest groups and relations of several types at either end.
        assert reads.found[made:] == ["tolist"]
        assert reads.numbers == 12 + 2 + 6 + 4 + 2
        Profile.of(graph)
        for name in encodings():
            graph.encoding(name)
        assert len(reads.found) == again


def typed_edges() -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    """Features of two node types, and edges of three relations."""
    x = {"a": torch.randn(7, 4), "b": torch.randn(5, 4)}
    keys = [("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a")]
    edges = {k: torch.stack([torch.randint(0, len(x[end]), (9,)) for end in (k[0], k[2])]) for k in keys}
    return x, edges


@pytest.mark.usefixtures("away")
def test_edges_by_type_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data_of, hgt = pytest.importorskip("torch_geometric.data"), pytest.importorskip("torch_geometric.nn").HGTConv
    x, edges = typed_edges()
    data = data_of.HeteroData()
    for name, rows in x.items():
        data[name].x = rows
    for key, ids in edges.items():
        data[key].edge_index = ids
    frontend = find_frontend(layer := hgt(4, 4, (list(x), list(edges)), heads=1))
    assert frontend is not None
    made = frontend(layer)
    with Reads(monkeypatch) as reads:
        HeteroGraph.from_pyg(data)
        assert reads.found == ["tolist"]
        made.graph(x, edges)
        assert reads.found == ["tolist", "tolist"]


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("seed", [3, 4])
def test_graphs_are_compared_in_one_read(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    offered, other = (joined_graph(random.Random(s), 60, 300, 4, 3).hetero() for s in (3, seed))
    cache = GraphCache()
    cache.offer(offered)
    with Reads(monkeypatch) as reads:
        assert (cache.find("edges", ((), ()), lambda: other) is offered) == (seed == 3)
        assert len(reads.found) == 1


@pytest.mark.usefixtures("away")
def test_the_same_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = joined_graph(random.Random(5), 40, 200, 4, 3)
    found = raw.hetero()
    tensors = {name: found.encoding(name) for name in encodings()}
    monkeypatch.undo()
    expected = raw.hetero()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected.encoding(name)), name
    assert Profile.of(found) == Profile.of(expected)


def test_sizes_move_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graph: HeteroGraph = joined_graph(random.Random(3), 60, 300, 4, 3).hetero()
    sizes, single = graph.sizes, graph.single_typed
    moved = graph.to("meta")  # where nothing can be counted
    assert (moved.sizes, moved.single_typed, moved.longest_groups) == (sizes, single, graph.longest_groups)
