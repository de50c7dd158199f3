"""Runs exported models without a front end: what they do along edges is one program a graph, and the original's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import softmax

import dacergnn
from dacergnn import UnsupportedCallError
from dacergnn.deploy.capture import capture
from dacergnn.deploy.network import Call, RunProgram, ScatterRows, Step
from dacergnn.deploy.reader import Reader
from tests.deploy.networks import assert_equal
from tests.support.library import Library, Refused, export

WIDTH, TYPES = 8, 4
SIZES = ((30, 90), (200, 900), (9, 50), (5, 0), (3, 1), (1, 1), (0, 0))
"""Numbers of nodes and edges: more of one or of the other, no edges, nodes without edges, no nodes."""
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
Arguments = tuple[Tensor, ...]


class OwnPython(nn.Module):
    """Gathers and reduces rows in all the ways that people write down."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.score, self.of_edges = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(3, WIDTH)
        self.both = nn.Linear(2 * WIDTH, WIDTH)
        self.by_type = nn.Parameter(torch.randn(TYPES, WIDTH))

    def forward(
        self, x: Tensor, others: Tensor, edge_index: Tensor, attr: Tensor, src: Tensor, dst: Tensor, kind: Tensor
    ) -> dict[str, Tensor]:
        a, b = edge_index
        h = self.linear(x)
        weights = softmax(F.leaky_relu(self.score(h[a] + h[b])), b, num_nodes=x.size(0))
        edges = torch.tanh(self.both(torch.cat([x[a], x[b]], -1))) + self.of_edges(attr)
        rows = b.view(-1, 1).expand_as(edges)
        return {
            "sum": torch.zeros_like(x).index_add_(0, b, h[a].relu()),
            "weights of edges": weights,
            "attention": torch.zeros_like(h).index_add_(0, b, h[a] * weights),
            "edges": edges,
            "at sources": x + torch.zeros_like(x).scatter_add_(0, a.view(-1, 1).expand_as(edges), edges),
            "max": x.new_zeros(x.shape).scatter_reduce_(0, rows, edges, "amax", include_self=False),
            "by type": torch.zeros_like(x).index_add_(0, b, x[a] * self.by_type[kind]),
            "degrees": torch.zeros(x.size(0)).index_add_(0, b, torch.ones(edge_index.size(1))),
            "other nodes": torch.zeros(others.size(0), WIDTH).index_add_(0, dst, x[src] - others[dst]),
            "rows alone": torch.zeros(x.size(0), WIDTH) + self.by_type[0],
        }

    @staticmethod
    def arguments(nodes: int, edges: int) -> Arguments:
        def ends(count: int) -> Tensor:
            return torch.randint(max(count, 1), (edges,))

        return (
            torch.randn(nodes, WIDTH), torch.randn(nodes + 3, WIDTH), torch.stack([ends(nodes), ends(nodes)]),
            torch.randn(edges, 3), ends(nodes), ends(nodes + 3), ends(TYPES),
        )  # fmt: skip


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "APPNP": lambda: pyg.APPNP(2, 0.1),
    "CGConv": lambda: pyg.CGConv(WIDTH),
    "FeaStConv": lambda: pyg.FeaStConv(WIDTH, WIDTH, 2),
    "FiLMConv": lambda: pyg.FiLMConv(WIDTH, WIDTH),
    "GENConv": lambda: pyg.GENConv(WIDTH, WIDTH),
    "GeneralConv": lambda: pyg.GeneralConv(WIDTH, WIDTH),
    "GraphConv": lambda: pyg.GraphConv(WIDTH, WIDTH, aggr="max"),
    "LEConv": lambda: pyg.LEConv(WIDTH, WIDTH),
    "LGConv": pyg.LGConv,
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH),
    "SGConv": lambda: pyg.SGConv(WIDTH, WIDTH, 2),
    "SuperGATConv": lambda: pyg.SuperGATConv(WIDTH, WIDTH),
    "TAGConv": lambda: pyg.TAGConv(WIDTH, WIDTH),
    "TransformerConv": lambda: pyg.TransformerConv(WIDTH, WIDTH, 2),
}


class Layers(nn.Module):
    """Calls layers of PyG that have no front end, each with the same arguments."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: LAYERS[name]() for name in names})

    def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
        return {name: layer(x, edge_index) for name, layer in self.layers.items()}

    @staticmethod
    def arguments(nodes: int, edges: int) -> Arguments:
        return torch.randn(nodes, WIDTH), torch.randint(max(nodes, 1), (2, edges))


def steps_of(model: nn.Module, arguments: Arguments) -> list[Step]:
    return Reader(capture(model, arguments), [f"x{i}" for i in range(len(arguments))]).read().steps


@pytest.mark.parametrize(
    ("model", "sizes"), [(OwnPython, SIZES), (lambda: Layers(*LAYERS), SIZES[:-1])], ids=["own Python", "layers"]
)
def test_results_on_graphs_of_all_sizes(
    model: Callable[[], OwnPython | Layers], sizes: Sequence[tuple[int, int]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    original = model().eval()
    library = Library(export(original, tmp_path, example=original.arguments(30, 90)))
    for nodes, edges in sizes:
        arguments = original.arguments(nodes, edges)
        with torch.no_grad():
            assert_equal(library(*arguments), [*original(*arguments).values()])
    arguments = original.arguments(9, 20)
    edge_index = next(own for own in arguments if own.shape == (2, 20))
    edge_index[1, 5] = 77
    with pytest.raises(Refused, match=r"destination 77 of edge \d+ is out of range; there are 9"):
        library(*arguments)


@pytest.mark.parametrize("name", ["GENConv", "SuperGATConv", "TransformerConv"])
def test_edges_of_a_layer_are_one_program(name: str) -> None:
    steps = steps_of(Layers(name).eval(), Layers.arguments(30, 90))
    assert [type(step) for step in steps].count(RunProgram) == 1
    assert not any(isinstance(step, ScatterRows) for step in steps)
    assert "gather_rows" not in [step.function for step in steps if isinstance(step, Call)]


class _AmongMoreNodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, others: Tensor, edge_index: Tensor) -> Tensor:
        for rows in (x, others):
            x = torch.cat([x, rows])
            src, dst = edge_index
            x = torch.zeros_like(x).index_add_(0, dst, self.linear(x)[src].relu())
        return x


def test_the_same_edges_among_more_nodes(tmp_path: Path) -> None:
    """Checks that no end is compared with the smaller one of two numbers of nodes."""
    model = _AmongMoreNodes().eval()
    calls = [(torch.randn(nodes, WIDTH), torch.randn(3, WIDTH), torch.randint(2 * nodes, (2, 40))) for nodes in (30, 9)]
    library = Library(export(model, tmp_path, example=calls[0]))
    for call in calls:
        with torch.no_grad():
            assert_equal(library(*call), [model(*call)])


class _ByCount(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2.0 + 1.0) / x.size(0)


class _FilledByCount(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.full((x.size(0), 1), float(x.size(1))) * torch.full((x.size(0), 1), x.size(0))


class _ByOpenRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(x.size(0), x.size(0)) + 1.0


class _Unequal(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x != 0.0, x, 1.0)


@pytest.mark.parametrize("model", [_ByCount(), _FilledByCount(), _ByOpenRows(), _Unequal()])
def test_what_has_no_form_is_refused(model: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCallError, match="has no form in a C library"):
        dacergnn.export(model.eval(), tmp_path, example=(torch.randn(5, 4),))
