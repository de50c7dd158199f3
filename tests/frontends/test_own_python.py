"""Tests what a recorded forward does in its own Python: modes of gradients, custom functions, hooks, detaching.

Each case is a step of a PyG layer and of a forward over a DGL graph; results, gradients and what is left behind are
the original's in three calls, the later of which may repeat the first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn

pyg = pytest.importorskip("torch_geometric.nn")
dgl = pytest.importorskip("dgl")
N, F = 12, 5
EDGES = torch.randint(N, (2, 40), generator=torch.Generator().manual_seed(0))
Step = Callable[[Any, Tensor], Any]


class Reversed(torch.autograd.Function):
    """Reverses gradients; its result is its argument, so that nothing else tells that it ran."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -0.5 * gradients[0]


class Rounded(torch.autograd.Function):
    """Rounds, and lets gradients through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(4 * x) / 4

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class Layer(nn.Module):
    """Holds what steps use."""

    lin: nn.Linear
    mean: Tensor

    def prepare(self, step: Step) -> None:
        self.step, self.left = step, list[Any]()
        self.lin = nn.Linear(F, F)
        self.register_buffer("mean", torch.zeros(F))


class OfMessages(pyg.MessagePassing, Layer):
    def __init__(self, step: Step) -> None:
        super().__init__(aggr="mean")
        self.prepare(step)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.step(self, self.propagate(edge_index, x=self.lin(x)))

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class OfGraphs(Layer):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self.prepare(step)

    def forward(self, g: Any, x: Tensor) -> Any:
        g = g.local_var()  # torch divides no forward within a scope
        g.srcdata["h"] = self.lin(x)
        g.update_all(dgl.function.copy_u("h", "m"), dgl.function.mean("m", "y"))
        return self.step(self, g.dstdata["y"])


def logs_a_norm(layer: Layer, h: Tensor) -> Tensor:
    with torch.no_grad():
        layer.left.append(h.norm().item())
    return h


def checks_for_nan(layer: Layer, h: Tensor) -> Tensor:
    with torch.set_grad_enabled(False):
        if torch.isnan(h).any():
            raise FloatingPointError
    return h * 2


@torch.no_grad()
def _largest(h: Tensor) -> Tensor:
    return h.abs().max()


def scales_by_a_number_without_gradient(layer: Layer, h: Tensor) -> Tensor:
    return h / _largest(h)


def looks_in_inference_mode(layer: Layer, h: Tensor) -> Tensor:
    with torch.inference_mode():
        layer.left.append(float(h.sum()))
    return h


def keeps_a_running_mean(layer: Layer, h: Tensor) -> Tensor:
    with torch.no_grad():
        layer.mean.lerp_(h.mean(0), 0.1)
    return h - layer.mean


def keeps_a_mean_of_detached_values(layer: Layer, h: Tensor) -> Tensor:
    layer.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
    return h - layer.mean


def returns_detached_values(layer: Layer, h: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        doubled = 2 * h
    return h, h.detach(), h.data, doubled


def keeps_detached_values(layer: Layer, h: Tensor) -> Tensor:
    layer.left.append((h.relu().detach(), h.detach() * 2))
    return h


def stops_at_a_part(layer: Layer, h: Tensor) -> Tensor:
    return h.sigmoid().detach() * h + (h - h.detach()).exp()


def reverses(layer: Layer, h: Tensor) -> Tensor:
    return Reversed.apply(h).relu()


def rounds_weights(layer: Layer, h: Tensor) -> Tensor:
    return h @ Rounded.apply(layer.lin.weight)


def rounds_both(layer: Layer, h: Tensor) -> Tensor:
    return Rounded.apply(h) + Reversed.apply(layer.lin.bias)


def hooks_a_value(layer: Layer, h: Tensor) -> Tensor:
    h.register_hook(lambda gradient: layer.left.append(gradient.clone()))
    return h * h


def keeps_a_gradient(layer: Layer, h: Tensor) -> Tensor:
    h.retain_grad()
    layer.left.append(h)
    return h * h


def takes_a_gradient(layer: Layer, h: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(h.square().sum(), layer.lin.weight, create_graph=True)
    return h + gradient.sum()


def reads_whether_there_are_gradients(layer: Layer, h: Tensor) -> Tensor:
    return h * (2 if h.grad_fn is not None and not h.is_leaf else 3)


def spreads_a_sum(layer: Layer, h: Tensor) -> Tensor:
    return h.sum(0, keepdim=True).expand_as(h) * h


STEPS: list[Step] = [
    logs_a_norm, checks_for_nan, scales_by_a_number_without_gradient, looks_in_inference_mode, keeps_a_running_mean,
    keeps_a_mean_of_detached_values, returns_detached_values, keeps_detached_values, stops_at_a_part, reverses,
    rounds_weights, rounds_both, hooks_a_value, keeps_a_gradient, takes_a_gradient,
    reads_whether_there_are_gradients, spreads_a_sum,
]  # fmt: skip
ORIGINAL = (hooks_a_value, keeps_a_gradient, reverses, rounds_weights, rounds_both)
"""Steps that run as the original."""


def _pair(front_end: str, step: Step, of_messages: Any = OfMessages, of_graphs: Any = OfGraphs) -> tuple[Any, Any, Any]:
    """Returns an original in double precision, its compiled form, and the edges that both take."""
    torch.manual_seed(0)
    how: Any = "ignore" if step in ORIGINAL else "error"
    if front_end == "pyg":
        original: Any = of_messages(step).double()
        return original, dacergnn.optimize(copy.deepcopy(original), on_unsupported=how), EDGES
    original = of_graphs(step).double()
    compiled = dacergnn.compile(copy.deepcopy(original), on_unsupported=how)
    return original, compiled, dgl.graph((EDGES[0], EDGES[1]), num_nodes=N)


def _left(layer: Any) -> list[Any]:
    """Returns what a call has left in attributes: numbers, gradients, tensors with whether they require a gradient."""
    found: list[Any] = [layer.mean.clone(), layer.mean.requires_grad]
    for item in layer.left:
        for value in item if isinstance(item, tuple) else (item,):
            found += [value, *([value.requires_grad, value.is_leaf] if isinstance(value, Tensor) else [])]
            if isinstance(value, Tensor) and value.retains_grad:
                found.append(value.grad)
    layer.left.clear()
    return found


def means_of_what_is_not_dropped(layer: Layer, x: Tensor) -> Tensor:
    x = torch.nn.functional.dropout(x, 0.5, training=False)
    torch.set_grad_enabled(False)
    mean = x.mean()
    torch.set_grad_enabled(True)
    return layer.lin(x * (1 + mean))


def means_in_inference_mode(layer: Layer, x: Tensor) -> Tensor:
    x = layer.lin(x) * 2
    with torch.inference_mode():
        layer.left.append(float(x.mean()))
    return x * x


@pytest.mark.parametrize("before", [means_of_what_is_not_dropped, means_in_inference_mode])
@pytest.mark.parametrize("front_end", ["pyg", "dgl"])
def test_values_of_nodes_are_read_in_another_mode(front_end: str, before: Step) -> None:
    """They wait for their first use."""

    class BeforeMessages(OfMessages):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=before(self, x).cumsum(0))

    class BeforeGraphs(OfGraphs):
        def forward(self, g: Any, x: Tensor) -> Tensor:
            g = g.local_var()
            g.srcdata["h"] = before(self, x).cumsum(0)
            g.update_all(dgl.function.copy_u("h", "m"), dgl.function.mean("m", "y"))
            return g.dstdata["y"]

    original, compiled, edges = _pair(front_end, before, BeforeMessages, BeforeGraphs)
    for _ in range(2):
        x, again = (torch.ones(N, F, dtype=torch.float64).cumsum(0).requires_grad_() for _ in range(2))
        for layer, own in ((original, x), (compiled, again)):
            (layer(edges, own) if front_end == "dgl" else layer(own, edges)).square().sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(again.grad, x.grad)


@pytest.mark.parametrize("front_end", ["pyg", "dgl"])
def test_second_derivatives_pass_hooks_of_saved_values(front_end: str) -> None:
    """torch saves what a softmax gives, so that second derivatives lead through its hook."""

    def doubles(layer: Layer, h: Tensor) -> Tensor:
        h = h.softmax(-1)
        h.register_hook(lambda gradient: 2 * gradient)
        return h * h

    torch.manual_seed(0)
    original: Any = (OfMessages if front_end == "pyg" else OfGraphs)(doubles).double()
    change: Any = dacergnn.optimize if front_end == "pyg" else dacergnn.compile
    compiled = change(copy.deepcopy(original), on_unsupported="ignore")
    edges = EDGES if front_end == "pyg" else dgl.graph((EDGES[0], EDGES[1]), num_nodes=N)
    found: list[Tensor] = []
    for layer in (original, compiled):
        x = torch.randn(N, F, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
        out = layer(edges, x) if front_end == "dgl" else layer(x, edges)
        (first,) = torch.autograd.grad(out.sin().sum(), x, create_graph=True)
        found += torch.autograd.grad(first.square().sum(), x)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
@pytest.mark.parametrize("front_end", ["pyg", "dgl"])
def test_training_steps(front_end: str, step: Step) -> None:
    original, compiled, edges = _pair(front_end, step)
    for seed in range(3):
        found: list[Any] = []
        for layer in (original, compiled):
            x = torch.randn(N, F, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
            layer.zero_grad()
            out = layer(edges, x) if front_end == "dgl" else layer(x, edges)
            parts = out if isinstance(out, tuple) else (out,)
            sum(p.square().sum() for p in parts if p.requires_grad).backward()
            gradients = [x.grad, *[p.grad for p in layer.lin.parameters()]]
            found.append((*parts, [p.requires_grad for p in parts], gradients, _left(layer)))
        torch.testing.assert_close(*found[::-1])


@pytest.mark.parametrize("front_end", ["pyg", "dgl"])
def test_gradients_that_are_turned_on(front_end: str) -> None:
    """Within a call without gradients."""

    def step(layer: Layer, h: Tensor) -> Tensor:
        with torch.enable_grad():
            return h * layer.lin.bias

    original, compiled, edges = _pair(front_end, step)
    x = torch.randn(N, F, dtype=torch.float64)
    found: list[Tensor] = []
    for layer in (original, compiled):
        with torch.no_grad():
            out = layer(edges, x) if front_end == "dgl" else layer(x, edges)
        found += [out, *torch.autograd.grad(out.square().sum(), layer.lin.bias)]
    torch.testing.assert_close(found[:2], found[2:])


class Strided(pyg.MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x) * x.stride(0)


class Contiguous(pyg.MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x) * (2 if x.is_contiguous() else 3)


class ByIdentity(pyg.MessagePassing):
    def forward(self, xs: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        h = self.propagate(edge_index, x=xs[0])
        return h + xs[1] if xs[0] is xs[1] else 3 * h


def _forms() -> dict[str, tuple[Any, list[Any]]]:
    x, other = (torch.randn(N, F, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    turned = other.t().contiguous().t()
    return {
        "strides": (Strided, [x, x, turned, x]),
        "contiguous": (Contiguous, [x, x, turned, turned, x]),
        "one tensor first": (ByIdentity, [(x, x), (other, other), (x, other), (x, x)]),
        "two tensors first": (ByIdentity, [(x, other), (other, x), (x, x), (x, other)]),
    }


@pytest.mark.parametrize("form", _forms())
@pytest.mark.parametrize("grad", [False, True])
def test_forms_of_arguments(form: str, grad: bool) -> None:
    """Strides and identities, in calls that may repeat earlier ones."""
    make, calls = _forms()[form]
    original, compiled = make(), dacergnn.optimize(make(), on_unsupported="error")
    with torch.set_grad_enabled(grad):
        for features in calls:
            torch.testing.assert_close(compiled(features, EDGES), original(features, EDGES))


def test_edges_of_stride_zero() -> None:
    edges, x = torch.tensor([[1], [2]]).expand(2, 30), torch.randn(N, F)
    for original in (pyg.GENConv(F, 4), pyg.SAGEConv(F, 4), pyg.TransformerConv(F, 4)):
        compiled = dacergnn.optimize(original, on_unsupported="error")
        torch.testing.assert_close(compiled(x, edges), original(x, edges))


def test_strides_of_what_a_program_computes() -> None:
    def step(layer: Layer, h: Tensor) -> Tensor:
        return h * h.stride(0)

    original, compiled, edges = _pair("pyg", step)
    x = torch.randn(N, F, dtype=torch.float64)
    torch.testing.assert_close(compiled(x, edges), original(x, edges))


def test_functions_of_values_per_edge() -> None:
    class Clamped(OfMessages):
        def message(self, x_j: Tensor) -> Tensor:
            return Rounded.apply(x_j)

    layer = dacergnn.optimize(Clamped(lambda _, h: h).double(), on_unsupported="error")
    with pytest.raises(
        dacergnn.errors.UnsupportedCallError, match=r"of a torch\.autograd\.Function, torch captures first"
    ):
        layer(torch.randn(N, F, dtype=torch.float64), EDGES)
    assert torch.autograd.Function.__dict__["apply"].__func__.__module__ == "torch.autograd.function"
