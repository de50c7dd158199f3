"""Captured models compute what the originals do: for all sizes, edges, numbers and parts, and layers of PyG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from dacergnn import Config
from dacergnn.graph import HeteroGraph
from dacergnn.graph.destination_ranges import DestinationRanges
from dacergnn.modules.capture.backend import compile_graph
from dacergnn.modules.ways.memory_limit import MemoryLimit
from dacergnn.modules.ways.ranges import Division
from tests.capture.captured import Backend, Sum, assert_close, assert_same, captured, given, outcome, pair, ran
from tests.capture.plain_models import KGIN, WIDTH, R

# torch's own tracing warns about parts of torch.
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


class Masked(nn.Module):
    """Sums neighbours along edges that are no loops."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index[:, edge_index[0] != edge_index[1]]
        return torch.zeros_like(x).index_add_(0, dst, x.sin()[src])


class Narrow(nn.Module):
    """Adds some of the columns to nodes: an index that is not as wide as the rows leaves the others out."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        found = torch.zeros_like(x).scatter_add(0, dst.unsqueeze(1), x[src])
        return torch.zeros_like(x).scatter_reduce(0, dst.unsqueeze(1), x[src], "sum") + found.sin()


class Sparse(nn.Module):
    """Multiplies by a sparse matrix, and sums neighbours."""

    def forward(self, x: Tensor, edge_index: Tensor, adjacency: Tensor) -> Tensor:
        src, dst = edge_index
        return torch.sparse.mm(adjacency, x) + torch.zeros_like(x).index_add_(0, dst, x[src])


class Stacked(nn.Module):
    """Puts numbers of edges that torch computes side by side with those of a program."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        a, b = x[src][:, :3], x[dst][:, :3]
        angle = torch.cross(a, b, dim=1).norm(dim=1)
        return x.new_zeros(x.size(0), 2).index_add_(0, dst, torch.stack([angle, (a * b).sum(dim=1)], dim=1))


def test_torch_computes_a_part_of_a_stack() -> None:
    module, fast = pair(Stacked)
    for nodes, edges in ((30, 90), (30, 90), (20, 50)):
        assert_same(fast, module, given(module, nodes, edges))
    assert ran(captured(fast))


def test_an_index_of_some_columns() -> None:
    module, fast = pair(Narrow, on_unsupported="ignore")
    args = given(Sum(), 30, 90)
    with torch.no_grad():  # torch has no gradients of it
        torch.testing.assert_close(fast(*args), module(*args))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_matrices() -> None:
    module, fast = pair(Sparse, on_unsupported="ignore")
    for nodes, edges in ((30, 90), (20, 50)):
        x, edge_index = given(Sum(), nodes, edges)
        matrix = torch.sparse_coo_tensor(edge_index, torch.ones(edges).double(), (nodes, nodes)).coalesce()
        for form in (matrix, matrix.to_sparse_csr()):
            assert_same(fast, module, (x, edge_index, form))


def test_sizes() -> None:
    module, fast = pair(KGIN)
    for nodes, edges in ((30, 90), (20, 1), (20, 0), (40, 40), (2, 2), (50, 300)):
        assert_same(fast, module, given(module, nodes, edges))
    graphs = captured(fast)
    assert ran(graphs)
    assert len(graphs) == 3  # torch captures no edges and one edge apart
    recorded = sum(len(graph.networks) for graph in graphs)
    assert_same(fast, module, given(module, 60, 200))
    assert sum(len(graph.networks) for graph in graphs) == recorded


def test_new_sizes_after_many_calls() -> None:
    module, fast = pair(Masked)
    for edges in (90, 90, 1, 0):  # one edge has torch capture the forward again, and how many are left depends on it
        assert_same(fast, module, given(module, edges=edges))
    assert len(captured(fast)) == 3  # in one piece each


def test_many_kinds_of_calls() -> None:
    module, fast = pair(Masked)
    for grad in (True, False):
        for nodes, edges in ((30, 90), (30, 1), (30, 0), (1, 9), (1, 1), (1, 0)):
            with torch.set_grad_enabled(grad):
                args = given(module, nodes, edges)
                assert_close(fast(*args), module(*args))
    assert len(captured(fast)) == 12  # torch's own limit is 8
    assert ran(captured(fast)[:1])


def test_edges_that_change() -> None:
    module, fast = pair(Sum)
    module.eval(), fast.eval()
    x, edges = given(module)
    other = given(module, seed=1)[1]
    for expected, change in (
        (1, lambda: None),
        (1, lambda: None),
        (2, lambda: edges.copy_(other)),
        (2, lambda: None),
        (3, lambda: edges[0].fill_(3)),
    ):
        change()
        assert_same(fast, module, (x, edges))
        assert captured(fast)[0].core.graphs.encoded == expected
    assert_same(fast, module, (x, edges.clone()))
    assert_same(fast, module, (x, other))
    assert ran(captured(fast))


def test_numbers_that_change() -> None:
    module, fast = pair(Sum)
    for seed in range(3):  # dropout draws the same numbers
        assert_same(fast, module, given(module), seed)
    for slope, scale in ((0.5, 1.0), (0.1, 2.5), (0.1, 3), (0.0, 4), (0.25, 1.0)):
        module.slope = fast.slope = slope
        assert_same(fast, module, [*given(module), scale])
        module.train(not module.training), fast.train(module.training)
        assert_same(fast, module, [*given(module, 20, 40), scale])
    assert ran(captured(fast))


class Dependent(nn.Module):
    """Returns sums of neighbours, and sums of what follows from these."""

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        src, dst = edge_index
        h = torch.zeros_like(x).index_add_(0, dst, x.tanh()[src])
        return h, torch.zeros_like(h).index_add_(0, dst, h[src].sin())


def test_results_that_depend_on_others() -> None:
    module, fast = pair(Dependent)
    for nodes, edges in ((30, 90), (30, 90), (20, 50)):
        args = given(module, nodes, edges)
        found: list[Any] = []
        for call in (fast, module):
            first, second = call(*args)
            found.append((first, second, *torch.autograd.grad(second.square().sum(), (first, args[0]))))
        assert_close(*found)
    assert ran(captured(fast))


@pytest.mark.parametrize("optimizes", [True, False])
def test_autocast(optimizes: bool) -> None:
    module, fast = pair(KGIN)
    if not optimizes:
        fast = torch.compile(module, backend=compile_graph, dynamic=True)
    x, *edges = given(module.float())
    args = [x.detach().float().requires_grad_(), *edges]
    for tolerance, enabled in ((2e-2, True), (1e-5, False), (2e-2, True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found, expected = (outcome(call, args, [*module.parameters()]) for call in (fast, module))
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


class Regions(nn.Module):
    """Computes parts of its result without gradients."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        with torch.no_grad():
            first = torch.zeros_like(x).index_add_(0, dst, x.sin()[src])
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        second = torch.zeros_like(x).index_add_(0, src, x.cos()[dst])
        torch.set_grad_enabled(before)
        return torch.zeros_like(x).index_add_(0, dst, x[src] * first[src]) * second


def test_regions_without_gradients() -> None:
    module, fast = pair(Regions)
    for nodes, edges in ((30, 90), (30, 90), (20, 50)):
        args = given(module, nodes, edges)
        assert_same(fast, module, args)
        with torch.no_grad():
            assert_close(fast(*args), module(*args))
            assert not torch.is_grad_enabled()
    assert ran(captured(fast))


class Cube(torch.autograd.Function):
    """Has a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradients[0]


class Cubes(nn.Module):
    """Sums the cubes of neighbours."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        cubes: Any = Cube.apply(x)
        return torch.zeros_like(x).index_add_(0, edge_index[1], cubes[edge_index[0]])


def test_functions_with_their_own_backward() -> None:
    module, fast = pair(Cubes, on_unsupported="warn")
    args = given(module)
    with pytest.warns(UserWarning, match="Cubes runs uncompiled: of a torch.autograd.Function"):
        assert_same(fast, module, args)
    found: list[Any] = []
    for call in (fast, module):
        (first,) = torch.autograd.grad(call(*args).square().sum(), args[0], create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), args[0]))
    assert_close(*found)


def multilayer() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "SAGE": lambda: pyg.SAGEConv(WIDTH, WIDTH),
    "GAT": lambda: pyg.GATConv(WIDTH, WIDTH // 2, heads=2),
    "GATv2": lambda: pyg.GATv2Conv(WIDTH, WIDTH // 2, heads=2),
    "Transformer": lambda: pyg.TransformerConv(WIDTH, WIDTH // 2, heads=2),
    "GIN": lambda: pyg.GINConv(multilayer()),
    "TAG": lambda: pyg.TAGConv(WIDTH, WIDTH),
    "Edge": lambda: pyg.EdgeConv(nn.Linear(2 * WIDTH, WIDTH)),
    "ResGated": lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH),
    "GEN": lambda: pyg.GENConv(WIDTH, WIDTH),
    "ARMA": lambda: pyg.ARMAConv(WIDTH, WIDTH),
    "MF": lambda: pyg.MFConv(WIDTH, WIDTH),
    "RGAT": lambda: pyg.RGATConv(WIDTH, WIDTH, R),
}


class Network(nn.Module):
    """Has two layers of PyG with a norm between them."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.norm, self.second = layer(), nn.LayerNorm(WIDTH), layer()

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        types = (edge_type,) if isinstance(self.first, pyg.RGATConv) else ()
        return self.second(self.norm(self.first(x, edge_index, *types)).relu(), edge_index, *types)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_pyg(name: str) -> None:
    torch.manual_seed(0)
    module, backend = Network(LAYERS[name]).double(), Backend(on_unsupported="error")
    fast = torch.compile(module, backend=backend, dynamic=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for nodes, edges in ((30, 90), (50, 300), (20, 20)):
            assert_same(fast, module, given(module, nodes, edges))
    assert len(backend.graphs) == 1
    assert ran(backend.graphs)


class Counting(nn.Module):
    """Multiplies sums by an integer that it reads of a tensor, given or computed."""

    def __init__(self, computed: bool) -> None:
        super().__init__()
        self.computed = computed

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        numbers = torch.zeros(x.size(0), dtype=torch.int64).index_add(0, dst, torch.ones_like(dst))
        number = (numbers if self.computed else src)[0].item()
        return torch.zeros_like(x).index_add(0, dst, x[src]) * float(number)


@pytest.mark.parametrize("computed", [True, False])
def test_integers_that_are_read(computed: bool) -> None:
    module, fast = pair(lambda: Counting(computed), on_unsupported="ignore")
    for seed in range(10):
        assert_same(fast, module, given(module, seed=seed))


class Heads(nn.Module):
    """Sums the neighbours of two layers, of which the second result depends on the one, and reads the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        src, dst = edge_index
        first, second = self.first(x)[src], self.second(x)[src]
        total = torch.zeros_like(x).index_add(0, dst, first.sigmoid())
        return total, torch.zeros_like(x).index_add(0, dst, second * first.detach())


@pytest.mark.parametrize("limited", [False, True])
def test_a_backward_from_one_result_leaves_parameters_of_others_alone(
    limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def divided(limit: MemoryLimit, graph: HeteroGraph, mask: Any, left: float, **_: float) -> Division:
        return Division(DestinationRanges.of(graph).divided(3), 0)

    monkeypatch.setattr(MemoryLimit, "divided", divided)
    module, fast = pair(Heads, config=Config(memory="1GB" if limited else None))
    args = given(module)
    leaves = [args[0], *module.parameters()]
    for position in range(2):
        loss, expected = fast(*args)[position].square().sum(), module(*args)[position].square().sum()
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        assert_close(found, torch.autograd.grad(expected, leaves, allow_unused=True))
    assert ran(captured(fast))


class Weighted(nn.Module):
    """Calls a function with an option that its rule does not know."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        return torch.zeros_like(x).index_add(0, dst, torch.rsub(x[src], x[dst], alpha=2).sin())


def test_options_without_a_rule_are_those_of_torch() -> None:
    module, fast = pair(Weighted)
    assert_same(fast, module, given(module))
    assert ran(captured(fast))
