"""Layers and arguments that the tests of modules share; equal sizes, so that they share builds as well."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.graph import HeteroGraph
from dacergnn.modules import HGT, RGAT, RGCN, CompiledLayer
from dacergnn.modules.native import GraphLayer
from tests.frontends.graphs import Edges, edge_dict, type_name, typed_edges

K, M = 6, 8
EDGES = typed_edges()
R = EDGES.num_relations
Call = tuple[Any, ...]


def pyg() -> Any:
    return pytest.importorskip("torch_geometric.nn")


def rgcn(**options: Any) -> nn.Module:
    torch.manual_seed(1)
    return pyg().RGCNConv(K, M, R, **options)


def rgat(**options: Any) -> nn.Module:
    torch.manual_seed(2)
    return pyg().RGATConv(K, 4, R, **options)


def hgt(heads: int = 2) -> nn.Module:
    torch.manual_seed(3)
    names = [type_name(i) for i in range(len(EDGES.type_sizes))]
    return pyg().HGTConv(M, M, (names, list(edge_dict(EDGES))), heads=heads)


def features(dtype: torch.dtype = torch.float32, rows: int = EDGES.num_src, channels: int = K) -> Tensor:
    return torch.randn(rows, channels, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)


def arguments(edges: Edges = EDGES, dtype: torch.dtype = torch.float32) -> Call:
    """x, edge_index, edge_type for `rgcn` and `rgat`; edge tensors of their own, so that nothing is known of them."""
    return features(dtype, edges.num_src), edges.edge_index.clone(), edges.edge_type.clone()


def hgt_arguments(dtype: torch.dtype = torch.float32) -> Call:
    x = {type_name(i): features(dtype, size, M) for i, size in enumerate(EDGES.type_sizes)}
    return x, edge_dict(EDGES)


def compiled(layer: nn.Module) -> CompiledLayer:
    found = dacergnn.optimize(layer)
    assert isinstance(found, CompiledLayer)
    return found


def hetero_graph(edges: Edges = EDGES) -> HeteroGraph:
    return HeteroGraph.from_arrays(
        edges.edge_index, edges.edge_type, num_nodes=(edges.num_src, edges.num_dst),
        num_edge_types=edges.num_relations, node_type=edges.node_type(), num_node_types=4,
    )  # fmt: skip


def native(name: str) -> GraphLayer:
    torch.manual_seed(4)
    if name == "HGT":
        return HGT(M, 4, R, heads=2)
    return RGCN(K, M, R) if name == "RGCN" else RGAT(K, 4, R, heads=2)


def weighted(out: Any) -> Tensor:
    """A scalar in which every output has its own weight."""
    parts = list(out.values()) if isinstance(out, dict) else [out]
    weights = torch.arange(1.0, 1.0 + sum(p.numel() for p in parts)).cos()
    flat = torch.cat([p.flatten() for p in parts])
    return (flat * weights.to(flat.dtype)).sum()


def gradients(layer: nn.Module, args: Call) -> list[Tensor]:
    """Gradients of `weighted` by the first argument and all parameters; zeros where there is none."""
    first = args[0]
    inputs = {k: v.clone().requires_grad_() for k, v in first.items()} if isinstance(first, dict) else None
    x = inputs if inputs is not None else first.clone().requires_grad_()
    leaves = [*(inputs.values() if inputs is not None else [x]), *layer.parameters()]
    found = torch.autograd.grad(weighted(layer(x, *args[1:])), leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def assert_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    if isinstance(expected, dict):
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, Tensor):
        found, expected = [found], [expected]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
