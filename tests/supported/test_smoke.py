"""What has to work with every supported release: layers of both libraries against their originals, and what torch does.

`scripts/supported.py` runs these tests with the oldest and the newest releases; they use nothing but pytest.
"""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn

NODES, EDGES, TYPES, CHANNELS = 40, 160, 3, 6


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Features, edges and types of edges, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    kinds = torch.randint(TYPES, (EDGES,), generator=generator)
    return torch.randn(NODES, CHANNELS, generator=generator), edges, kinds


def agree(layer: nn.Module, *arguments: Any) -> nn.Module:
    """Compares values and gradients of a layer and of its compiled form, which it returns."""
    fast = dacergnn.optimize(layer, on_unsupported="error")
    found: list[list[Tensor]] = []
    for model in (layer, fast):
        leaves = [a.clone().requires_grad_() if torch.is_tensor(a) and a.is_floating_point() else a for a in arguments]
        out = model(*leaves)
        parameters = [p for p in model.parameters() if p.requires_grad]
        wanted = [*[a for a in leaves if torch.is_tensor(a) and a.requires_grad], *parameters]
        gradients = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
        found.append([out, *[g for g in gradients if g is not None]])
    assert len(found[0]) == len(found[1])
    for expected, own in zip(*found, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-4)
    return fast


@pytest.mark.parametrize("name", ["RGCNConv", "FastRGCNConv", "RGATConv"])
def test_relational_layers_of_pyg(name: str) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    agree(getattr(pyg, name)(CHANNELS, 4, TYPES), *inputs())


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GATConv", "GATv2Conv", "TAGConv", "ResGatedGraphConv"])
def test_layers_of_pyg_with_a_front_end_and_traced_ones(name: str) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    x, edges, _ = inputs()
    agree(getattr(pyg, name)(CHANNELS, 4), x, edges)


def test_layers_over_dictionaries() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    x, edges, kinds = inputs()
    relations = [("a", str(i), "a") for i in range(TYPES)]
    typed = {relation: edges[:, kinds == i] for i, relation in enumerate(relations)}
    for layer in (
        pyg.HGTConv(CHANNELS, 4, (["a"], relations), heads=2),
        pyg.HeteroConv({relation: pyg.SAGEConv(CHANNELS, 4) for relation in relations}),
    ):
        fast = dacergnn.optimize(layer, on_unsupported="error")
        torch.testing.assert_close(fast({"a": x}, typed)["a"], layer({"a": x}, typed)["a"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["RelGraphConv", "GraphConv", "GATConv"])
def test_layers_of_dgl(name: str) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):
            import dgl
            from dgl import nn as layers
    except Exception as error:  # those of other releases of torch fail with anything
        pytest.skip(f"dgl does not import: {re.sub(r'/[^ ]*/', '', str(error))}")
    x, edges, kinds = inputs()
    g = dgl.add_self_loop(dgl.graph((edges[0], edges[1]), num_nodes=NODES))
    options = {"RelGraphConv": (TYPES,), "GraphConv": (), "GATConv": (2,)}[name]
    layer, types = getattr(layers, name)(CHANNELS, 4, *options), torch.cat([kinds, torch.zeros(NODES).long()])
    fast = dacergnn.optimize(layer, on_unsupported="error")
    more = (types,) if name == "RelGraphConv" else ()
    torch.testing.assert_close(fast(g, x, *more), layer(g, x, *more), rtol=1e-3, atol=1e-4)


@pytest.fixture
def layer() -> Any:
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    return pyg.RGCNConv(CHANNELS, 4, TYPES)


def test_a_program() -> None:
    @dacergnn.compile
    def gated(g, x, W):  # type: ignore[no-untyped-def]
        for n in g.dst_nodes():
            n["out"] = sum(e.src.x * W[e.etype] for e in n.incoming_edges())
        return out

    x, edges, kinds = inputs()
    graph = dacergnn.HeteroGraph.from_arrays(edges, kinds, num_nodes=NODES, num_edge_types=TYPES)
    weight = torch.randn(TYPES, CHANNELS, 4, requires_grad=True)
    out = gated(graph, x, weight)
    out.sum().backward()
    expected = torch.zeros(NODES, 4).index_add_(0, edges[1], torch.einsum("ek,ekm->em", x[edges[0]], weight[kinds]))
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)
    assert weight.grad is not None


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
def test_torch_compile(layer: Any) -> None:
    torch.compiler.reset()
    step = torch.compile(dacergnn.optimize(layer), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(step(*inputs()), layer(*inputs()), rtol=1e-3, atol=1e-4)


def test_state_and_pickles(layer: Any) -> None:
    fast = dacergnn.optimize(layer)
    assert list(fast.state_dict()) == list(layer.state_dict())
    expected = layer(*inputs())
    for again in (pickle.loads(pickle.dumps(fast)), copy.deepcopy(fast), dacergnn.revert(fast)):
        torch.testing.assert_close(again(*inputs()), expected, rtol=1e-3, atol=1e-4)


def test_autocast(layer: Any) -> None:
    fast = dacergnn.optimize(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, expected = fast(*inputs()), layer(*inputs())
    assert out.dtype is expected.dtype
    torch.testing.assert_close(out.float(), expected.float(), rtol=5e-2, atol=5e-2)


def test_second_derivatives_and_vmap(layer: Any) -> None:
    fast, (x, edges, kinds) = dacergnn.optimize(layer), inputs()
    for model in (layer, fast):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(model(leaf, edges, kinds).square().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf)
        if model is layer:
            expected = second
    torch.testing.assert_close(second, expected, rtol=1e-3, atol=1e-3)
    batched = torch.func.vmap(lambda one: fast(one, edges, kinds))(torch.stack([x, 2 * x]))
    torch.testing.assert_close(batched[0], layer(x, edges, kinds), rtol=1e-3, atol=1e-4)
