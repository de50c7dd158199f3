"""Layers that run piece by piece of the nodes of one process; `test_distributed.py` has several."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from dacergnn.cli.named_layers import native_layer
from dacergnn.distributed import DistributedGraph
from dacergnn.distributed.part import ONLY, Part, Piece
from dacergnn.errors import ArrayError, DacergnnError, DistributedError
from dacergnn.graph import HeteroGraph

pyg = pytest.importorskip("torch_geometric.nn")
N, E = 60, 500
EDGES = torch.randint(N, (2, E), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def whole(tmp_path: Path) -> Generator[DistributedGraph]:
    """A part with all nodes."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield DistributedGraph(EDGES, torch.zeros(N, dtype=torch.int64))
    dist.destroy_process_group()


@pytest.fixture
def part(whole: DistributedGraph, monkeypatch: pytest.MonkeyPatch) -> DistributedGraph:
    """A part with all nodes, in three pieces."""

    def pieces(self: Part, count: int) -> list[Piece]:
        return [self.piece({ONLY: nodes}) for nodes in torch.arange(N).split(25)]

    monkeypatch.setattr(Part, "pieces", pieces)
    return whole


class Dropped(nn.Module):
    """Drops values of nodes."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5)


def test_pieces_are_small_enough(whole: DistributedGraph) -> None:
    """Also those of nodes that read no other process."""
    layer, x = pyg.SAGEConv(8, 4), torch.randn(N, 8)
    piece_rows: list[int] = []
    layer.register_forward_pre_hook(lambda _, inputs: piece_rows.append(len(inputs[0])))
    torch.testing.assert_close(whole.run(layer, x, memory="3KB"), layer(x, EDGES))
    assert len(piece_rows) > 3
    assert 2 * 32 * max(piece_rows[:-1]) <= 3000


def test_values_of_edges_have_gradients(part: DistributedGraph) -> None:
    layer = pyg.GATConv(8, 4, heads=2, edge_dim=3, add_self_loops=False).double()
    layer.unused = nn.Parameter(torch.zeros(2))
    x, values = (torch.randn(n, w, dtype=torch.float64, requires_grad=True) for n, w in ((N, 8), (E, 3)))
    wanted = [x, values, *layer.parameters()]
    seed = torch.randn(N, 8, dtype=torch.float64)
    made = layer(x, EDGES, values), part.run(layer, x, values)
    results = [[out, *torch.autograd.grad(out, wanted, seed, allow_unused=True)] for out in made]
    for found, expected in zip(results[1], results[0], strict=True):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            torch.testing.assert_close(found, expected)


def test_layers_that_take_a_graph(part: DistributedGraph) -> None:
    kinds = torch.arange(N) % 2
    relations = kinds[EDGES[0]] * 2 + kinds[EDGES[1]]
    graph = HeteroGraph.from_arrays(EDGES, relations, num_nodes=N, node_type=kinds)
    layer = native_layer("hgt", graph, 8, 2)
    own = part.hetero_graph(relations, 4, kinds, 2)
    x = torch.randn(N, 8, requires_grad=True)
    made = layer(x, graph), part.run(layer, x, own)
    results = [torch.autograd.grad(out.sin().sum(), [x, *layer.parameters()]) for out in made]
    torch.testing.assert_close([made[1], *results[1]], [made[0], *results[0]])
    with pytest.raises(ArrayError, match=r"values\[0\] is another graph; pass what `hetero_graph` returns"):
        part.run(layer, x, graph)


def test_the_backward_draws_the_same_numbers(part: DistributedGraph) -> None:
    x = torch.rand(N, 8, requires_grad=True)
    out = part.run(Dropped(), x)
    before = torch.get_rng_state()
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(out, x.detach() * x.grad)
    assert 0 < int((out == 0).sum()) < out.numel()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_backward_computes_in_the_same_precision(part: DistributedGraph) -> None:
    layer, x = pyg.SAGEConv(8, 4), torch.rand(N, 8)
    with torch.autocast("cpu", torch.bfloat16):
        made = [layer(x, EDGES), part.run(layer, x)]
    results = [torch.autograd.grad(out.float().sum(), [*layer.parameters()]) for out in made]
    assert made[1].dtype == torch.bfloat16
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=1e-1)


def test_second_derivatives_are_refused(part: DistributedGraph) -> None:
    x = torch.rand(N, 8, requires_grad=True)
    (first,) = torch.autograd.grad(part.run(pyg.SAGEConv(8, 4), x).sin().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


def test_a_layer_that_is_switched_before_the_backward(part: DistributedGraph) -> None:
    layer, x = Dropped(), torch.rand(N, 8, requires_grad=True)
    out = part.run(layer, x)
    layer.eval()
    with pytest.raises(DistributedError, match="switched between training and evaluation before the backward"):
        out.sum().backward()


def test_weights_that_are_written_before_the_backward(part: DistributedGraph) -> None:
    layer = pyg.SAGEConv(8, 4)
    out = part.run(layer, torch.rand(N, 8))
    with torch.no_grad():
        layer.lin_l.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_wrong_arguments(part: DistributedGraph) -> None:
    layer, x = pyg.SAGEConv(8, 4), torch.rand(N, 8)
    with pytest.raises(ArrayError, match="x has 59 rows, but this process has 60 own nodes"):
        part.run(layer, x[1:])
    with pytest.raises(ArrayError, match=r"values\[0\] has 499 rows, but this process has 500 edges"):
        part.run(layer, x, torch.ones(E - 1))
    with pytest.raises(DacergnnError, match=r"memory='much'; pass a size, as in \"2GB\""):
        part.run(layer, x, memory="much")
    with pytest.raises(DistributedError, match=r"memory=100: rows of the smallest pieces take \d+ bytes; allow more"):
        part.run(layer, x, memory=100)
    normalized = nn.Sequential(nn.BatchNorm1d(8))
    with pytest.raises(DistributedError, match="0 is a BatchNorm1d, whose statistics would be those of one piece"):
        part.run(normalized, x)
