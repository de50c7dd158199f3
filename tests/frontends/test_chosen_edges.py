"""Values of some edges, chosen by their numbers or by a mask, in forwards over DGL graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
import dacergnn  # noqa: E402

fn = dgl.function
N, E, K, M = 9, 30, 4, 3


def graph(edges: int = E) -> Any:
    generator = torch.Generator().manual_seed(1)
    ends = torch.randint(0, N, (2, edges), generator=generator)
    g = dgl.graph((ends[0], ends[1]), num_nodes=N)
    g.edata["inverse"] = torch.arange(edges) % 3 == 1
    return g


Forward = Callable[["Layer", Any, Tensor], Tensor]


class Layer(nn.Module):
    """Edges and their inverses have weights of their own, as in CompGCN."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.own, self.inverse = nn.Linear(K, M).double(), nn.Linear(K, M).double()
        self.run = forward

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["x"] = x
            g.apply_edges(fn.u_sub_v("x", "x", "d"))
            found = self.run(self, g, g.edata["d"])
            if found.size(0) != g.num_edges():
                return found
            g.edata["m"] = found
            g.update_all(fn.copy_e("m", "m"), fn.sum("m", "out"))
            return g.ndata["out"]


def by_numbers(layer: Layer, g: Any, d: Tensor) -> Tensor:
    others = torch.nonzero(~g.edata["inverse"], as_tuple=False).squeeze()
    inverse = torch.nonzero(g.edata["inverse"], as_tuple=False).squeeze()
    found = torch.zeros(d.shape[0], M, dtype=d.dtype).to(d.device)
    found[others] = layer.own(d[others])
    found[inverse] = layer.inverse(d[inverse]).tanh()
    return found


def by_masks(layer: Layer, g: Any, d: Tensor) -> Tensor:
    mask = g.edata["inverse"]
    found = torch.ones(d.shape[0], M, dtype=d.dtype)
    found[mask] = layer.own(d[mask]) * 0.5
    return found


def over_what_was_there(layer: Layer, g: Any, d: Tensor) -> Tensor:
    found = layer.own(d)
    rows = torch.tensor([3, 7, 21])
    found[rows] = layer.inverse(d[rows])
    return found


def returned(layer: Layer, g: Any, d: Tensor) -> Tensor:
    return layer.own(d[torch.tensor([2, 0, 5])])[:, 1:]


COMPILED: dict[str, Forward] = {f.__name__: f for f in (by_numbers, by_masks, over_what_was_there, returned)}


def in_another_order(layer: Layer, g: Any, d: Tensor) -> Tensor:
    return layer.own(d[torch.arange(g.num_edges()).flip(0)])


def of_different_edges(layer: Layer, g: Any, d: Tensor) -> Tensor:
    return layer.own(d[torch.tensor([1, 2, 3])] + d[torch.tensor([4, 5, 6])])


def beside_rows_of_their_own(layer: Layer, g: Any, d: Tensor) -> Tensor:
    return layer.own(d[torch.tensor([1, 2, 3])] * torch.arange(3.0, dtype=d.dtype).view(3, 1))


def by_an_index_that_changes(layer: Layer, g: Any, d: Tensor) -> Tensor:
    rows = torch.tensor([3, 7, 21])
    found, chosen = layer.own(d), d.detach()[rows]
    rows += 1
    found[rows] = layer.inverse(chosen)
    return found


def twice(layer: Layer, g: Any, d: Tensor) -> Tensor:
    found, rows = layer.own(d), torch.tensor([3, 7, 7])
    found[rows] = layer.inverse(d[rows])
    return found


def from_the_end(layer: Layer, g: Any, d: Tensor) -> Tensor:
    return layer.own(d[torch.tensor([-1, -2, 0])])


UNCOMPILED: dict[str, Forward] = {
    f.__name__: f
    for f in (
        in_another_order,
        of_different_edges,
        beside_rows_of_their_own,
        by_an_index_that_changes,
        twice,
        from_the_end,
    )
}


def outcome(layer: nn.Module, g: Any) -> list[Tensor]:
    """The result and all gradients; zeros where there is none."""
    x = torch.linspace(-1, 1, N * K, dtype=torch.float64).view(N, K).requires_grad_()
    found = layer(g, x)
    leaves = [x, *layer.parameters()]
    gradients = torch.autograd.grad(found.sin().sum(), leaves, allow_unused=True)
    return [found, *[torch.zeros_like(v) if a is None else a for a, v in zip(gradients, leaves, strict=True)]]


@pytest.mark.parametrize("edges", [E, N + 13])
@pytest.mark.parametrize("name", COMPILED)
def test_values_of_some_edges_are_compiled(name: str, edges: int) -> None:
    torch.manual_seed(0)
    layer, g = Layer(COMPILED[name]), graph(edges)
    fast = dacergnn.compile(copy.deepcopy(layer), on_unsupported="error")
    for _ in range(2):
        torch.testing.assert_close(outcome(fast, g), outcome(layer, g))


@pytest.mark.filterwarnings("ignore:Layer runs uncompiled")
@pytest.mark.parametrize("name", UNCOMPILED)
def test_what_programs_do_not_express_runs_as_it_is(name: str) -> None:
    layer, g = Layer(UNCOMPILED[name]), graph()
    fast = dacergnn.compile(copy.deepcopy(layer))
    torch.testing.assert_close(outcome(fast, g), outcome(layer, g))


def test_some_edges_are_no_messages_of_all() -> None:
    """DGL refuses a row for some edges where there should be one for each."""

    def run(layer: Layer, g: Any, d: Tensor) -> Tensor:
        return dgl.ops.copy_e_sum(g, layer.own(d[torch.tensor([1, 2, 3])]))

    layer = Layer(run)
    for module in (layer, dacergnn.compile(copy.deepcopy(layer), on_unsupported="ignore")):
        with pytest.raises(dgl.DGLError):
            module(graph(), torch.rand(N, K, dtype=torch.float64))


def test_edges_that_do_not_exist() -> None:
    layer = Layer(lambda layer, _, d: layer.own(d[torch.tensor([1, E])]))
    with pytest.raises(IndexError):
        dacergnn.compile(copy.deepcopy(layer), on_unsupported="ignore")(graph(), torch.rand(N, K, dtype=torch.float64))
