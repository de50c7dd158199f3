"""What a device has to tell the host while a graph is encoded: sizes, and that once."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dacergnn import HeteroGraph
from dacergnn.graph import sorting
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import GRAPH_MAPS, TYPE_PATHS
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
