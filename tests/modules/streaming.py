"""Layers, calls and fixtures for tests of steps in ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dacergnn import Config
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.ways.memory_limit import InRanges
from dacergnn.modules.ways.ranges import Division

pyg = pytest.importorskip("torch_geometric.nn")
N, E, R = 300, 3000, 5
LIMITED = Config(memory="1GB")
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "RGCNConv": lambda: pyg.RGCNConv(8, 12, R),
    "RGATConv": lambda: pyg.RGATConv(8, 6, R, heads=2),
    "GCNConv": lambda: pyg.GCNConv(8, 12),
    "GATConv": lambda: pyg.GATConv(8, 6, heads=2),
    "GATv2Conv": lambda: pyg.GATv2Conv(8, 6, heads=2),
    "SAGEConv": lambda: pyg.SAGEConv(8, 12, aggr="max"),
    "GINConv": lambda: pyg.GINConv(nn.Linear(8, 12)),
    "EdgeConv": lambda: pyg.EdgeConv(nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 12))),
    "TransformerConv": lambda: pyg.TransformerConv(8, 6, heads=2),
}


def edges(seed: int = 0, nodes: int = N) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(nodes, (2, E), generator=generator), torch.randint(R, (E,), generator=generator)


def call(name: str) -> tuple[nn.Module, Tensor, tuple[Tensor, ...]]:
    """A layer, its features, and its edges."""
    edge_index, edge_type = edges()
    own = (edge_index, edge_type) if name.startswith("R") else (edge_index,)
    return LAYERS[name]().double(), torch.randn(N, 8, dtype=torch.float64), own


def program(layer: nn.Module) -> tuple[CompiledProgram, HeteroGraph]:
    call = compiled_parts(layer)[0].part.last_call
    assert call is not None
    return call


def divisions(compiled: CompiledProgram, graph: HeteroGraph) -> list[Division]:
    in_ranges = compiled.way(InRanges)
    return [] if in_ranges is None else in_ranges.divisions(graph)


def ranges(layer: nn.Module) -> list[int]:
    """The number of ranges of each kind of call."""
    compiled, graph = program(layer)
    return [1 if d.ranges is None else len(d.ranges) for d in divisions(compiled, graph)]


def step(layer: nn.Module, x: Tensor, *args: Any) -> list[Tensor]:
    x = x.clone().requires_grad_()
    result = layer(x, *args)
    generator = torch.Generator().manual_seed(1)
    seed = torch.randn(result.shape, generator=generator, dtype=result.dtype)
    found = torch.autograd.grad(result, [x, *layer.parameters()], seed, materialize_grads=True)
    with torch.no_grad():
        return [result.detach(), *found, layer(x, *args)]


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * max(1.0, float(b.detach().abs().max())))
