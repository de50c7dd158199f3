"""Tests writes to memory that is shared or was read before, hooks on what is in use, modes of torch, and types.

Each case is a step of a PyG layer and of a forward over a DGL graph. Where recorded values would not have the memory,
the mode or the type that the original's tensors have, the original runs.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dacergnn
from tests.frontends.test_own_python import EDGES, F, Layer, N, OfGraphs, OfMessages, Step

dgl = pytest.importorskip("dgl")
Results = tuple[Tensor, ...]


def writes_to_what_rows_are_a_part_of(layer: Layer, h: Tensor) -> Results:
    h = h * 1
    rows = h[:2]
    h.mul_(2)
    return h, rows.clone()


def writes_to_rows(layer: Layer, h: Tensor) -> Results:
    h = h * 1
    rows = h.detach()[:2]
    rows.mul_(3)
    return h, rows.clone()


def writes_to_rows_of_a_copy(layer: Layer, h: Tensor) -> Results:
    other = h.clone()
    rows = other[:2]
    rows.mul_(3)
    return h, other


def writes_to_what_is_flat_elsewhere(layer: Layer, h: Tensor) -> Results:
    h = h * 1
    flat = h.flatten()
    h[0] = 7
    return h, flat.clone()


def writes_to_what_is_an_array(layer: Layer, h: Tensor) -> Results:
    h = h * 1
    array = h.detach().numpy()
    h.mul_(2)
    return h, torch.from_numpy(array.copy())


def writes_to_an_array(layer: Layer, h: Tensor) -> Results:
    h = h * 1
    h.detach().numpy()[0] = 5
    return h, h * 1


def writes_to_what_columns_are_a_part_of(layer: Layer, h: Tensor) -> Results:
    h = h * 1
    part = h.detach()[:, :2][:3]
    h.mul_(2)
    return h, part.clone()


def writes_to_a_copy(layer: Layer, h: Tensor) -> Results:
    other = h.clone()
    other[0] = 7
    return h, other


def writes_to_what_was_copied(layer: Layer, h: Tensor) -> Results:
    h = h * 1
    other = h.clone()
    h.mul_(2)
    other.add_(1)
    return h, other


def reads_rows(layer: Layer, h: Tensor) -> Results:
    rows = h[:2]
    return h * rows.sum(), rows


def compares_a_type(layer: Layer, h: Tensor) -> Results:
    return h * (2 if type(h) is Tensor else 3), h


def compares_a_class(layer: Layer, h: Tensor) -> Results:
    return h * (2 if h.__class__ in (Tensor, torch.nn.Parameter) else 3), h


def writes_to_what_was_read(layer: Layer, h: Tensor) -> Results:
    h = h - layer.mean
    layer.mean.mul_(0.9).add_(h.detach().mean(0))
    return h, h


def writes_by_data(layer: Layer, h: Tensor) -> Results:
    h = h - layer.mean
    layer.mean.data.mul_(0.9).add_(1)
    return h, h


def sets_data(layer: Layer, h: Tensor) -> Results:
    h = h - layer.mean
    layer.mean.data = layer.mean.data * 0.9 + 0.1
    return h, h


def writes_to_a_buffer_by_an_array(layer: Layer, h: Tensor) -> Results:
    h = h - layer.mean
    layer.mean.numpy()[:] += 1
    return h, h


def sets_a_mode_before_what_fails(layer: Layer, h: Tensor) -> Results:
    h = h - layer.mean
    layer.mean.add_(1)
    torch.set_grad_enabled(False)
    mean = h.mean()
    torch.set_grad_enabled(True)
    return h * mean, h


def writes_to_its_own_tensor_by_data(layer: Layer, h: Tensor) -> Results:
    factors = torch.ones(F, dtype=h.dtype)
    h = h * factors
    factors.data.mul_(3)
    return h, h


def writes_to_an_array_of_the_layer(layer: Layer, h: Tensor) -> Results:
    layer.left[:] = layer.left or [np.ones(F)]
    h = h * torch.from_numpy(layer.left[0])
    layer.left[0] *= 1.5
    return h, h


def prints(layer: Layer, h: Tensor) -> Results:
    return h * len(str(h.detach())), h


def differentiates_forward(layer: Layer, h: Tensor) -> Results:
    return torch.func.jvp(torch.sin, (h,), (torch.ones_like(h),))


def takes_a_jacobian(layer: Layer, h: Tensor) -> Results:
    return torch.autograd.functional.jacobian(lambda t: t.sin().sum(0), h, create_graph=True).sum(0), h


def hooks_a_view(layer: Layer, h: Tensor) -> Results:
    view = h.reshape(h.shape[0], -1)
    view.register_hook(lambda gradient: 3 * gradient)
    return h, view.cos()


def hooks_what_has_been_used(layer: Layer, h: Tensor) -> Results:
    total = h.sin().sum()
    h.register_hook(lambda gradient: 3 * gradient)
    return h * total, h.cos()


def hooks_a_column(layer: Layer, h: Tensor) -> Results:
    column = h[:, :1]
    column.register_hook(lambda gradient: 3 * gradient)
    return column.flatten().cumsum(0), column.cos()


STEPS: list[Step] = [
    writes_to_what_rows_are_a_part_of, writes_to_rows, writes_to_rows_of_a_copy, writes_to_what_is_flat_elsewhere,
    writes_to_what_is_an_array, writes_to_an_array, writes_to_what_columns_are_a_part_of, writes_to_a_copy,
    writes_to_what_was_copied, reads_rows, compares_a_type, compares_a_class, writes_to_what_was_read, writes_by_data,
    sets_data, writes_to_a_buffer_by_an_array, sets_a_mode_before_what_fails, writes_to_its_own_tensor_by_data,
    writes_to_an_array_of_the_layer, prints, differentiates_forward, takes_a_jacobian, hooks_a_view,
    hooks_what_has_been_used, hooks_a_column,
]  # fmt: skip
COMPILED = (writes_to_a_copy, writes_to_what_was_copied, reads_rows, prints)


def pair(front_end: str, step: Step, dtype: torch.dtype, on_unsupported: Any) -> list[Any]:
    """An original and its compiled form."""
    torch.manual_seed(0)
    original: Any = (OfMessages if front_end == "pyg" else OfGraphs)(step).to(dtype)
    compiles: Any = dacergnn.optimize if front_end == "pyg" else dacergnn.compile
    return [original, compiles(copy.deepcopy(original), on_unsupported=on_unsupported)]


def assert_same(layers: list[Any], front_end: str, dtype: torch.dtype) -> None:
    graph = dgl.graph((EDGES[0], EDGES[1]), num_nodes=N)
    for seed in range(3):
        found: list[Any] = []
        for layer in layers:
            x = torch.randn(N, F, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()
            layer.zero_grad()
            results = layer(graph, x) if front_end == "dgl" else layer(x, EDGES)
            torch.stack([r.double().square().sum() for r in results]).sum().backward()
            found.append((*results, x.grad, *[p.grad for p in layer.lin.parameters()], layer.mean.clone()))
        torch.testing.assert_close(*found[::-1])


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
@pytest.mark.parametrize("front_end", ["pyg", "dgl"])
def test_steps(front_end: str, step: Step) -> None:
    how = "error" if step in COMPILED else "ignore"
    assert_same(pair(front_end, step, torch.float64, how), front_end, torch.float64)


@pytest.mark.parametrize("front_end", ["pyg", "dgl"])
def test_autocast_within_a_forward(front_end: str) -> None:
    def step(layer: Layer, h: Tensor) -> Results:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer.lin(h), h

    assert_same(pair(front_end, step, torch.float32, "ignore"), front_end, torch.float32)


def copies(edges: Tensor) -> Tensor:
    return edges.copy_(edges.flip(0).roll(1, 1))


def copies_by_data(edges: Tensor) -> Tensor:
    return edges.data.copy_(edges.flip(0).roll(1, 1))


def makes_loops(edges: Tensor) -> None:
    edges[0, :9] = edges[1, :9]


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("own", [False, True], ids=["argument", "copy"])
@pytest.mark.parametrize("write", [copies, copies_by_data, makes_loops])
def test_writes_to_edges_that_were_used(write: Any, own: bool, again: bool) -> None:
    class Written(OfMessages):
        def forward(self, x: Tensor, edge_index: Tensor) -> Results:
            edges = edge_index.clone() if own else edge_index
            h = self.propagate(edges, x=self.lin(x))
            write(edges)
            return (h + self.propagate(edges, x=h) if again else h), edges

    torch.manual_seed(0)
    original: Any = Written(writes_by_data).double()
    compiled: Any = dacergnn.optimize(copy.deepcopy(original), on_unsupported="ignore")
    x = torch.randn(N, F, dtype=torch.float64)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, EDGES.clone()), original(x, EDGES.clone()))


def test_arguments_keep_their_numbers() -> None:
    """Rows of a copy of an argument are not the argument's."""

    def step(layer: Layer, h: Tensor) -> Results:
        rows = x.clone()[:2]
        rows.mul_(3)
        return h, rows

    x = torch.ones(N, F, dtype=torch.float64)
    _, compiled = pair("pyg", step, torch.float64, "ignore")
    compiled(x, EDGES)
    assert torch.equal(x, torch.ones(N, F, dtype=torch.float64))
