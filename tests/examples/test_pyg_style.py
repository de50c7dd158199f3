"""The layers of the PyG-style example, with weights chosen by types: compiled, and as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("torch_geometric")

import dacergnn
from dacergnn.modules import CompiledLayer
from dacergnn.modules.capture.captured_forward import CapturedForward
from examples import pyg_style

N, E, R, T = 20, 60, 4, 3
F64 = torch.float64


def call(name: str) -> tuple[Any, list[Tensor]]:
    """A layer of the example in float64, and arguments for it."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, 12, generator=generator, dtype=F64)
    index, edge_type = (torch.randint(high, size, generator=generator) for high, size in ((N, (2, E)), (R, (E,))))
    if name == "HGT":
        return pyg_style.HGT(12, T, R, heads=3).double(), [x, index, torch.arange(N) % T, edge_type]
    if name == "RGAT":
        return pyg_style.RGAT(12, 5, R, heads=2).double(), [x, index, edge_type]
    return pyg_style.RGCN(12, 10, R).double(), [x, index, edge_type, torch.rand(E, generator=generator, dtype=F64)]


def optimized(layer: Any) -> CompiledLayer:
    found = dacergnn.optimize(layer, on_unsupported="error")
    assert isinstance(found.runner, CapturedForward)
    return found


# The gradients of one are compiled, as the values of all three are below.
@pytest.mark.parametrize(
    "name",
    [pytest.param("RGCN", marks=pytest.mark.interpreted), "RGAT", pytest.param("HGT", marks=pytest.mark.interpreted)],
)
def test_agrees_with_the_layer_itself(name: str) -> None:
    layer, args = call(name)
    compiled = optimized(layer)
    mine, theirs = (args[0].clone().requires_grad_() for _ in range(2))
    found, expected = compiled(mine, *args[1:]), layer(theirs, *args[1:])
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    gradients = [
        torch.autograd.grad(y, [x, *layer.parameters()], weights) for x, y in ((mine, found), (theirs, expected))
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.interpreted
def test_graphs_are_told_apart_by_their_types() -> None:
    layer, (x, index, edge_type, norm) = call("RGCN")
    compiled = optimized(layer)
    with torch.no_grad():
        for types in (edge_type, edge_type.flip(0), edge_type, edge_type.clone()):
            torch.testing.assert_close(compiled(x, index, types, norm), layer(x, index, types, norm))
        assert compiled.graphs.encoded == 3, "a copy is another tensor, encoded and found to be equal"
        edge_type.copy_(edge_type.flip(0))
        torch.testing.assert_close(compiled(x, index, edge_type, norm), layer(x, index, edge_type, norm))


@pytest.mark.interpreted
def test_as_many_nodes_as_edges() -> None:
    """Whose types some integers are follows from what the layer does with them."""
    layer, (x, index, edge_type, norm) = call("RGCN")
    args = x, index[:, :N], edge_type[:N], norm[:N]
    torch.testing.assert_close(optimized(layer)(*args), layer(*args))


@pytest.mark.interpreted
def test_a_sum_guarded_against_zero_is_left_alone_elsewhere() -> None:
    """Only what softmax divides by is at least one; other sums keep the number that is added to them."""

    class Normalized(pyg_style.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, scale=1.0 / (self.propagate(edge_index, x=x, scale=x) + 1e-16))

        def message(self, x_j: Tensor, scale_i: Tensor) -> Tensor:
            return x_j * scale_i

    x, index = torch.rand(N, 3, dtype=F64) * 1e-16, torch.randint(N, (2, E))
    layer = Normalized(aggr="sum")
    torch.testing.assert_close(optimized(layer)(x, index), layer(x, index), rtol=1e-9, atol=0.0)


@pytest.mark.interpreted
def test_values_of_types_are_computed_where_torch_needs_them() -> None:
    """Embedded types of edges, then other edges with the means of what these have."""
    utils = pytest.importorskip("torch_geometric.utils")

    class Looped(pyg_style.MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="sum")
            self.embedding = torch.nn.Embedding(R, 3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            index, rows = utils.add_self_loops(edge_index, self.embedding(edge_type), fill_value="mean", num_nodes=N)
            return self.propagate(index, x=x, rows=rows)

        def message(self, x_j: Tensor, rows: Tensor) -> Tensor:
            return (x_j * rows).tanh()

    layer = Looped().double()
    x, index, edge_type = torch.randn(N, 3, dtype=F64), torch.randint(N, (2, E)), torch.randint(R, (E,))
    results = [f(x, index, edge_type) for f in (optimized(layer), layer)]
    torch.testing.assert_close(*results)
    gradients = [torch.autograd.grad(y.square().sum(), list(layer.parameters())) for y in results]
    torch.testing.assert_close(*gradients)


def test_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    pyg_style.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["RGCN", "RGAT", "HGT"]
    assert all(float(line.split()[-1]) < 1e-4 for line in lines)
