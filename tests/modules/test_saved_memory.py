"""What a forward has saved: its memory serves the backward, unless the graph is retained, and ends with it."""

from __future__ import annotations

import weakref

import pytest
import torch

import dacergnn
from benchmarks.caching import facts
from benchmarks.relational.candidate import Built
from dacergnn.modules import CompiledLayer
from dacergnn.modules.variant import Variant
from tests.modules.layers import pyg

NODES = 10_000
"""So many that workspaces are planned."""


def attention(caching: str = "cache_all") -> tuple[CompiledLayer, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    layer = pyg().GATConv(8, 32, heads=4, add_self_loops=False)
    layer = dacergnn.optimize(layer, config=dacergnn.Config(caching=caching), on_unsupported="error")
    assert isinstance(layer, CompiledLayer)
    return layer, torch.randn(NODES, 8), torch.randint(0, NODES, (2, 2000))


def variant_of(layer: CompiledLayer) -> Variant:
    assert layer.last_call is not None
    return layer.last_call[0].variants[-1]


def test_gradient_of_features_lies_where_they_were() -> None:
    layer, x, edges = attention()
    layer(x, edges).sum().backward()
    variant = variant_of(layer)
    assert layer.last_call is not None
    assert variant.backward is not None
    graph, features = layer.last_call[1], NODES * 4 * 32 * 4
    alone = variant.backward.prepare(graph).workspace
    given = variant.backward.prepare(graph, giver=variant.forward).workspace
    assert given <= alone - features + 4 * 4 * graph.size("E")  # the gradients of attention have lain there as well
    # One number an edge and head, a few for each node and head.
    assert given <= 4 * 4 * (graph.size("E") + 4 * NODES) + 16384


def saved_bytes(layer: CompiledLayer, x: torch.Tensor, edges: torch.Tensor) -> int:
    return facts.saved_bytes(Built(lambda: layer(x, edges), (), (), layer=layer))


def test_budgets_are_kept_as_measured() -> None:
    """One that is a byte short of what would be saved."""
    best = saved_bytes(*attention("budget:1e12"))
    kept = saved_bytes(*attention(f"budget:{best - 1}"))
    assert 0 < kept < best


def test_backward_comes_again_where_the_graph_is_retained() -> None:
    layer, x, edges = attention()
    x.requires_grad_()
    leaves = [x, *layer.parameters()]
    torch.autograd.grad(layer(x, edges).sum(), leaves)  # has a memory plan of its own
    out = layer(x, edges)
    first = torch.autograd.grad(out.sum(), leaves, retain_graph=True)
    second = torch.autograd.grad(out.sum(), leaves)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(out.sum(), leaves)


def test_nothing_but_saved_arrays_to_read() -> None:
    """Autograd itself would not notice that such a backward comes again."""
    torch.manual_seed(1)
    layer = dacergnn.optimize(
        pyg().GCNConv(8, 8, normalize=False), config=dacergnn.Config(aggregation="aggregate_first")
    )
    out = layer(torch.randn(NODES, 8), torch.randint(0, NODES, (2, 2000))).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


def test_memory_ends_with_the_backward() -> None:
    layer, x, edges = attention()
    out = layer(x, edges)
    node = out.grad_fn
    while node is not None and not hasattr(node, "invocation"):
        node = node.next_functions[0][0]
    assert node is not None
    lease = weakref.ref(node.invocation.lease)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]
    out.sum().backward(retain_graph=True)
    assert lease() is not None
    out.sum().backward()
    assert lease() is None
