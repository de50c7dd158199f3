"""Makes the networks that are trained: one layer and ReLU for each hop, and a linear classifier of the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import ResGatedGraphConv

from benchmarks.networks.layers import HEADS, KINDS, SIZE, Kind, hgt, plain_layer
from benchmarks.networks.loading import BLOCKS
from benchmarks.networks.network import make_network
from benchmarks.relational.problem import Problem


class Blocks(nn.Module):
    """Represents a network over DGL's blocks, one for each layer, each with the types of its edges."""

    def __init__(self, convs: Sequence[nn.Module], relational: bool) -> None:
        super().__init__()
        self.convs, self.head, self.relational = nn.ModuleList(convs), nn.Linear(SIZE, SIZE), relational

    def forward(self, x: Tensor, blocks: list[Any], types: list[Tensor]) -> Tensor:
        for conv, block, etypes in zip(self.convs, blocks, types, strict=True):
            rows = conv(block, x, etypes) if self.relational else conv(block, x)
            x = rows.flatten(1).relu()
        return self.head(x)


def of_dgl(layer: str, problem: Problem) -> nn.Module:
    """Returns a layer of DGL."""
    from dgl.nn import pytorch as dgl

    library: Any = dgl
    if layer == "RelGraphConv":
        return library.RelGraphConv(SIZE, SIZE, problem.num_etypes)
    return library.GATConv(SIZE, SIZE // HEADS, HEADS, allow_zero_in_degree=True)


SAME = {
    "SAGEConv": "SAGE", "GATConv": "GAT", "GATv2Conv": "GATv2", "RGCNConv": "RGCN", "RGATConv": "RGAT",
    "HeteroConv(SAGEConv)": "HeteroConv(SAGE)", "HeteroConv(GATv2Conv)": "HeteroConv(GATv2)",
    "to_hetero(SAGEConv)": "to_hetero(SAGE)",
}  # fmt: skip
"""Layers that the suite of networks has, too, by their names there."""
LAYERS = {
    **{layer: KINDS[name] for layer, name in SAME.items()},
    "ResGatedGraphConv": plain_layer(lambda: ResGatedGraphConv(SIZE, SIZE)),
    "HGTConv": Kind("HGTConv", partial(hgt, heads=HEADS)),
    **{layer: Kind(layer, partial(of_dgl, layer)) for layer in BLOCKS},
}
"""Kinds of layers by name."""


def network_of(layer: str, problem: Problem, hops: int, seed_type: str) -> nn.Module:
    """Returns the network of a layer."""
    kind = LAYERS[layer]
    if layer in BLOCKS:
        return Blocks([kind.make(problem) for _ in range(hops)], layer == "RelGraphConv")
    return make_network(kind, problem, seed_type, hops, bare=True)
