"""Captured calls do not see each other: by views, by remembered integers, or by modes that a forward turns on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import dacergnn

WIDTH = 4


def summed(x: Tensor, edges: Tensor, h: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, edges[1], h[edges[0]])


class Net(nn.Module):
    """Calls a function of the module, of features and of edges."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lin, self.function = nn.Linear(WIDTH, WIDTH), function

    def forward(self, x: Tensor, edges: Tensor) -> Any:
        return self.function(self, x, edges)


def written_rows(net: Net, x: Tensor, edges: Tensor) -> Any:
    h = net.lin(x)
    total = summed(x, edges, h)
    h[1:].mul_(2)
    return total, h


def written_data(net: Net, x: Tensor, edges: Tensor) -> Any:
    h = net.lin(x)
    total = summed(x, edges, h)
    h.data.add_(1)
    return total, h


def written_sums(net: Net, x: Tensor, edges: Tensor) -> Any:
    h = summed(x, edges, x)
    part, total = h[:2], summed(x, edges, h)
    part.zero_()
    return total, h


def sorted_edges(net: Net, x: Tensor, edges: Tensor) -> Any:
    destinations, order = torch.sort(edges[1])
    return torch.zeros_like(x).index_add(0, destinations, net.lin(x)[edges[0][order]])


def both_directions(net: Net, x: Tensor, edges: Tensor) -> Any:
    both = torch.cat([edges, edges.flip(0)], 1)
    return torch.zeros_like(x).index_add(0, both[1], x[both[0]]), both, both[0], both.unsqueeze(0)


def equal_copies(net: Net, x: Tensor, edges: Tensor) -> Any:
    first, second = edges.clone(), edges.clone()
    return summed(x, first, net.lin(x)), first, second


def written_after_a_break(net: Net, x: Tensor, edges: Tensor) -> Any:
    copied, y = edges + 0, x.detach()  # a backward would miss the numbers before
    h = torch.zeros_like(y).index_add(0, copied[1], y[copied[0]])
    torch._dynamo.graph_break()
    copied[0] = 0
    return net.lin(x) + h + torch.zeros_like(y).index_add(0, copied[1], y[copied[0]])


def autocast_within(net: Net, x: Tensor, edges: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ net.lin.weight
    return summed(x, edges, x) @ net.lin.weight + y.sum()


def inference_within(net: Net, x: Tensor, edges: Tensor) -> Any:
    with torch.inference_mode():
        mean = x.mean(0).clone()
    return summed(x, edges, net.lin(x)) * 2, mean * 1


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rows are written to": written_rows,
    "data are written to": written_data,
    "a part of a sum is written to": written_sums,
    "sorted edges": sorted_edges,
    "integers are results": both_directions,
    "two copies of integers are results": equal_copies,
    "integers are written to after a graph break": written_after_a_break,
    "autocast within": autocast_within,
    "inference mode within": inference_within,
    "the largest of all rows": lambda net, x, edges: summed(x, edges, net.lin(x)).max(0).values,
    "sorted rows": lambda net, x, edges: summed(x, edges, net.lin(x)).sort(-1),
    "the two largest": lambda net, x, edges: summed(x, edges, net.lin(x)).topk(2, dim=0)[0],
    "the largest of layers": lambda net, x, edges: torch.stack([x, summed(x, edges, net.lin(x))]).max(0)[0],
}


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_do_not_see_each_other(name: str) -> None:
    torch._dynamo.reset()
    plain, fast = Net(FUNCTIONS[name]), dacergnn.optimize(Net(FUNCTIONS[name]))
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(6, (2, 12), generator=generator)
    for nodes in (6, 6, 6, 9):
        x = torch.randn(nodes, WIDTH, generator=generator).requires_grad_()
        results = [[leaf for leaf in tree_leaves(net(x, edges)) if isinstance(leaf, Tensor)] for net in (plain, fast)]
        gradients: list[Any] = []
        for leaves, net in zip(results, (plain, fast), strict=True):
            losses = [leaf.sin().sum() for leaf in leaves if leaf.requires_grad]
            inputs = [x, *net.parameters()]
            total = torch.stack(losses).sum()
            gradients.append(torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True))
        torch.testing.assert_close([*results[1], *gradients[1]], [*results[0], *gradients[0]])
        integers = [[leaf for leaf in leaves if not leaf.is_floating_point()] for leaves in results]
        for written, *_ in filter(None, integers):
            written.zero_()
        torch.testing.assert_close(integers[1], integers[0])


class _Turned(torch.autograd.Function):
    """Returns its input; its gradient is turned around."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return -gradient


@pytest.mark.filterwarnings("ignore:.* runs uncompiled")
def test_what_cannot_be_captured_may_come_late() -> None:
    def turned(net: Any, x: Tensor, edges: Tensor) -> Tensor:
        h = net.lin(x)
        return summed(x, edges, _Turned.apply(h) if net.turns else h)  # pyright: ignore[reportArgumentType]

    torch._dynamo.reset()
    plain, fast = Net(turned), dacergnn.optimize(Net(turned))
    x, edges = torch.randn(6, WIDTH), torch.randint(6, (2, 12))
    for turns in (False, False, False, True, True):
        found: list[Any] = []
        for net in (plain, fast):
            net.turns = turns  # pyright: ignore[reportAttributeAccessIssue]
            found.append(torch.autograd.grad(net(x, edges).square().sum(), [*net.parameters()]))
        torch.testing.assert_close(found[1], found[0])
