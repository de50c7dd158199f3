"""Training on ever new batches: values are those of the original, and nothing is built, traced or kept anew."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.graph import HeteroGraph
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.runtime.executable import Executable

pytest.importorskip("torch_geometric")
import torch_geometric.nn as pyg

K, BATCHES, WARM = 8, 60, 12
MANY = {"HeteroConv-SAGEConv": 300}
"""Of this model, so many batches."""
KEYS = (("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a"), ("c", "into", "a"), ("a", "out", "c"))


class Typed(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList([kind(), kind()])

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> Tensor:
        for conv in self.convs:
            x = {**x, **{name: rows.relu() for name, rows in conv(x, edges).items()}}
        return x["a"]


class Plain(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList([kind(), kind()])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return x


def typed_batches(count: int) -> Iterator[tuple[Any, ...]]:
    """Batches of which some lack relations, or edges of one."""
    rng = random.Random(0)
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        sizes = {name: rng.randrange(5, 40) for name in "abc"}
        x = {n: torch.randn(size, K, generator=generator, dtype=torch.float64) for n, size in sizes.items()}
        edges = {}
        for key in KEYS:
            count = rng.choice([0, 7, 30, 90])
            ends = [torch.randint(sizes[key[i]], (count,), generator=generator) for i in (0, 2)]
            edges[key] = torch.stack(ends)
        yield x, edges


def plain_batches(count: int) -> Iterator[tuple[Any, ...]]:
    rng = random.Random(0)
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        nodes, edges = rng.randrange(5, 60), rng.choice([1, 30, 90, 200])
        x = torch.randn(nodes, K, generator=generator, dtype=torch.float64)
        yield x, torch.randint(nodes, (2, edges), generator=generator)


MODELS: dict[str, tuple[Any, Any]] = {
    "HeteroConv-SAGEConv": (
        lambda: Typed(lambda: pyg.HeteroConv({k: pyg.SAGEConv(K, K) for k in KEYS})),
        typed_batches,
    ),
    "HGTConv": (lambda: Typed(lambda: pyg.HGTConv(K, K, (list("abc"), list(KEYS)))), typed_batches),
    "GATv2Conv": (lambda: Plain(lambda: pyg.GATv2Conv(K, K)), plain_batches),
    "ResGatedGraphConv": (lambda: Plain(lambda: pyg.ResGatedGraphConv(K, K)), plain_batches),
    "ClusterGCNConv": (lambda: Plain(lambda: pyg.ClusterGCNConv(K, K)), plain_batches),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_on_ever_new_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, batches = MODELS[name]
    torch.manual_seed(0)
    original = make().double()
    model = dacergnn.optimize(make().double(), on_unsupported="error")
    model.load_state_dict(original.state_dict())
    done = {"build": 0, "trace": 0}

    def count(owner: Any, method: str, what: str) -> None:
        plain = getattr(owner, method)

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            done[what] += 1
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(owner, method, counted)

    count(Executable, "__init__", "build")
    count(CapturedForward, "_keep", "trace")
    optimizers = [torch.optim.SGD(m.parameters(), lr=1e-3) for m in (model, original)]
    graphs, total = 0, MANY.get(name, BATCHES)
    for number, batch in enumerate(batches(total)):
        losses: list[Tensor] = []
        for m, optimizer in zip((model, original), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(m(*batch).square().mean())
            losses[-1].backward()
            optimizer.step()
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-8)
        if number == WARM:
            before = dict(done)
        if number in (total // 2, total - 1):
            gc.collect()
            found = sum(type(o) is HeteroGraph for o in gc.get_objects())
            graphs = graphs or found
            assert found <= graphs
    assert done == before
    torch.testing.assert_close(dict(model.state_dict()), dict(original.state_dict()), rtol=1e-5, atol=1e-8)


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_compiled_step_has_two_graphs_at_most() -> None:
    torch.manual_seed(0)
    model = dacergnn.optimize(MODELS["GATv2Conv"][0]().double(), on_unsupported="error")

    def step(x: Tensor, edge_index: Tensor) -> Tensor:
        return model(x, edge_index).square().mean()

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(step, backend="eager", dynamic=True)
    for x, edge_index in plain_batches(6):
        torch.testing.assert_close(compiled(x, edge_index), step(x, edge_index))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
