"""The classes of `torch_geometric.nn.conv`, with arguments to make and to call them with."""

from __future__ import annotations

from typing import Any

import torch
from coverage_inputs import Case, D, E, K, M, N, draw, edges, mlp, types, x
from torch import Tensor, nn
from torch_geometric.nn import conv

TYPES = ["a", "b"]
RELATIONS = [("a", "to", "b"), ("b", "to", "a")]


def hetero() -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    return {name: x() for name in TYPES}, {key: edges() for key in RELATIONS}


CASES: dict[str, Case] = {
    "SimpleConv": lambda: (conv.SimpleConv(combine_root="sum"), (x(), edges(), torch.rand(E))),
    "GCNConv": lambda: (conv.GCNConv(K, M), (x(), edges(), torch.rand(E))),
    "ChebConv": lambda: (conv.ChebConv(K, M, 3), (x(), edges())),
    "SAGEConv": lambda: (conv.SAGEConv(K, M), (x(), edges())),
    "GraphConv": lambda: (conv.GraphConv(K, M), (x(), edges(), torch.rand(E))),
    "GatedGraphConv": lambda: (conv.GatedGraphConv(M, 2), (x(), edges())),
    "ResGatedGraphConv": lambda: (conv.ResGatedGraphConv(K, M, edge_dim=D), (x(), edges(), draw(E, D))),
    "GATConv": lambda: (conv.GATConv(K, M, heads=2, edge_dim=D), (x(), edges(), draw(E, D))),
    "FusedGATConv": lambda: (conv.FusedGATConv(K, M, heads=2, add_self_loops=False), fused_gat()),
    "GATv2Conv": lambda: (conv.GATv2Conv(K, M, heads=2, edge_dim=D), (x(), edges(), draw(E, D))),
    "TransformerConv": lambda: (conv.TransformerConv(K, M, heads=2, beta=True, edge_dim=D), (x(), edges(), draw(E, D))),
    "AGNNConv": lambda: (conv.AGNNConv(), (x(), edges())),
    "TAGConv": lambda: (conv.TAGConv(K, M), (x(), edges())),
    "GINConv": lambda: (conv.GINConv(mlp(K, M, M), train_eps=True), (x(), edges())),
    "GINEConv": lambda: (conv.GINEConv(mlp(K, M, M), edge_dim=D), (x(), edges(), draw(E, D))),
    "ARMAConv": lambda: (conv.ARMAConv(K, M, num_stacks=2, num_layers=2), (x(), edges())),
    "SGConv": lambda: (conv.SGConv(K, M, 2), (x(), edges())),
    "SSGConv": lambda: (conv.SSGConv(K, M, 0.1, 2), (x(), edges())),
    "APPNP": lambda: (conv.APPNP(3, 0.1), (x(), edges())),
    "MFConv": lambda: (conv.MFConv(K, M), (x(), edges())),
    "RGCNConv": lambda: (conv.RGCNConv(K, M, 3), (x(), edges(), types(E, 3))),
    "FastRGCNConv": lambda: (conv.FastRGCNConv(K, M, 3), (x(), edges(), types(E, 3))),
    "RGATConv": lambda: (conv.RGATConv(K, M, 3), (x(), edges(), types(E, 3))),
    "SignedConv": lambda: (conv.SignedConv(K, M, True), (x(), edges(), edges())),
    "DNAConv": lambda: (conv.DNAConv(M, heads=2), (draw(N, 3, M), edges())),
    "PointNetConv": lambda: (conv.PointNetConv(mlp(K + 3, M, M)), (x(), x(3), edges())),
    "GMMConv": lambda: (conv.GMMConv(K, M, D, 3), (x(), edges(), draw(E, D))),
    "NNConv": lambda: (conv.NNConv(K, M, mlp(D, M, K * M)), (x(), edges(), draw(E, D))),
    "CGConv": lambda: (conv.CGConv(K, D), (x(), edges(), draw(E, D))),
    "EdgeConv": lambda: (conv.EdgeConv(mlp(2 * K, M, M)), (x(), edges())),
    "PPFConv": lambda: (conv.PPFConv(mlp(K + 4, M, M)), (x(), x(3), nn.functional.normalize(x(3)), edges())),
    "FeaStConv": lambda: (conv.FeaStConv(K, M, heads=2), (x(), edges())),
    "PointTransformerConv": lambda: (conv.PointTransformerConv(K, M), (x(), x(3), edges())),
    "HypergraphConv": lambda: (conv.HypergraphConv(K, M), (x(), torch.stack([types(E, N), types(E, 9)]))),
    "LEConv": lambda: (conv.LEConv(K, M), (x(), edges(), torch.rand(E))),
    "PNAConv": lambda: (
        conv.PNAConv(K, M, ["mean", "max"], ["identity", "amplification"], torch.tensor([3, 5, 8, 4])),
        (x(), edges()),
    ),
    "ClusterGCNConv": lambda: (conv.ClusterGCNConv(K, M), (x(), edges())),
    "GENConv": lambda: (conv.GENConv(K, M, learn_t=True, edge_dim=D), (x(), edges(), draw(E, D))),
    "GCN2Conv": lambda: (conv.GCN2Conv(K, 0.1, 0.5, 1), (x(), x(), edges())),
    "PANConv": lambda: (conv.PANConv(K, M, 2), (x(), edges())),
    "WLConv": lambda: (conv.WLConv(), (types(N, 3), edges())),
    "WLConvContinuous": lambda: (conv.WLConvContinuous(), (x(), edges(), torch.rand(E))),
    "FiLMConv": lambda: (conv.FiLMConv(K, M, num_relations=2), (x(), edges(), types(E, 2))),
    "SuperGATConv": lambda: (conv.SuperGATConv(K, M, heads=2), (x(), edges())),
    "FAConv": lambda: (conv.FAConv(K), (x(), x(), edges())),
    "EGConv": lambda: (conv.EGConv(K, M, ["sum", "mean", "max"], 2, 2), (x(), edges())),
    "PDNConv": lambda: (conv.PDNConv(K, M, D, M), (x(), edges(), draw(E, D))),
    "GeneralConv": lambda: (conv.GeneralConv(K, M, D, attention=True, heads=2), (x(), edges(), draw(E, D))),
    "HGTConv": lambda: (conv.HGTConv(K, M, (TYPES, RELATIONS), 2), hetero()),
    "HEATConv": lambda: (
        conv.HEATConv(K, M, 2, 3, 2, D, 2, heads=2),
        (x(), edges(), types(N, 2), types(E, 3), draw(E, D)),
    ),
    "HeteroConv": lambda: (conv.HeteroConv({key: conv.SAGEConv((K, K), M) for key in RELATIONS}), hetero()),
    "HANConv": lambda: (conv.HANConv(K, M, (TYPES, RELATIONS), 2), hetero()),
    "LGConv": lambda: (conv.LGConv(), (x(), edges(), torch.rand(E))),
    "PointGNNConv": lambda: (conv.PointGNNConv(mlp(K, M, 3), mlp(K + 3, M, M), mlp(M, M, K)), (x(), x(3), edges())),
    "GPSConv": lambda: (conv.GPSConv(M, conv.GCNConv(M, M), 2), (x(M), edges())),
    "AntiSymmetricConv": lambda: (conv.AntiSymmetricConv(K, conv.GCNConv(K, K, bias=False)), (x(), edges())),
    "DirGNNConv": lambda: (conv.DirGNNConv(conv.SAGEConv(K, M)), (x(), edges())),
    "MixHopConv": lambda: (conv.MixHopConv(K, M), (x(), edges())),
    "MeshCNNConv": lambda: (conv.MeshCNNConv(K, M), (x(), mesh())),
}
NEEDS = {
    "SplineConv": "needs pyg-lib", "DynamicEdgeConv": "needs pyg-lib", "GravNetConv": "needs pyg-lib",
    "XConv": "needs pyg-lib", "CuGraphSAGEConv": "needs pylibcugraphops", "CuGraphGATConv": "needs pylibcugraphops",
    "CuGraphRGCNConv": "needs pylibcugraphops", "PANConv": "needs torch-sparse", "MessagePassing": "the base class",
}  # fmt: skip


def fused_gat() -> tuple[Any, ...]:
    csr, csc, perm = conv.FusedGATConv.to_graph_format(edges(), size=(N, N))
    return x(), csr, csc, perm


def mesh() -> Tensor:
    return torch.stack([torch.randint(0, N, (4 * N,)), torch.arange(N).repeat_interleave(4)])
