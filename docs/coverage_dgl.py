"""The classes of `dgl.nn.pytorch.conv`, and `HeteroGraphConv`, with arguments to make and to call them with."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from coverage_inputs import Case, D, E, K, M, N, draw, edges, mlp, types, x
from dgl.nn.pytorch import HeteroGraphConv, conv
from torch import Tensor

LOOPED = E + N
"""Edges of `graph`."""


def graph() -> Any:
    """A graph in which every node has an edge to itself, as most layers of DGL ask for."""
    source, destination = edges()
    return dgl.add_self_loop(dgl.graph((source, destination), num_nodes=N))


def typed() -> Any:
    """A heterograph with two relations into one type of nodes."""
    ends = {("a", name, "b"): tuple(edges()) for name in ("likes", "knows")}
    return dgl.heterograph(ends, num_nodes_dict={"a": N, "b": N})


def atomic() -> tuple[Any, ...]:
    return graph(), torch.tensor([6.0, 8.0])[types(N, 2)].unsqueeze(1), torch.rand(LOOPED, 1)


def symmetric() -> Tensor:
    return torch.eye(N) + torch.ones(N, N)


CASES: dict[str, Case] = {
    "GraphConv": lambda: (conv.GraphConv(K, M), (graph(), x())),
    "EdgeWeightNorm": lambda: (conv.EdgeWeightNorm(), (graph(), torch.rand(LOOPED))),
    "GATConv": lambda: (conv.GATConv(K, M, 2, residual=True), (graph(), x())),
    "GATv2Conv": lambda: (conv.GATv2Conv(K, M, 2, residual=True), (graph(), x())),
    "EGATConv": lambda: (conv.EGATConv(K, D, M, D, 2), (graph(), x(), draw(LOOPED, D))),
    "EdgeGATConv": lambda: (conv.EdgeGATConv(K, D, M, 2), (graph(), x(), draw(LOOPED, D))),
    "TAGConv": lambda: (conv.TAGConv(K, M), (graph(), x())),
    "RelGraphConv": lambda: (conv.RelGraphConv(K, M, 3, "basis", 2), (graph(), x(), types(LOOPED, 3))),
    "SAGEConv": lambda: (conv.SAGEConv(K, M, "mean"), (graph(), x())),
    "SGConv": lambda: (conv.SGConv(K, M, 2), (graph(), x())),
    "APPNPConv": lambda: (conv.APPNPConv(3, 0.1), (graph(), x())),
    "GINConv": lambda: (conv.GINConv(mlp(K, M, M), learn_eps=True), (graph(), x())),
    "GINEConv": lambda: (conv.GINEConv(mlp(K, M, M), learn_eps=True), (graph(), x(), draw(LOOPED, K))),
    "GatedGraphConv": lambda: (conv.GatedGraphConv(K, M, 2, 3), (graph(), x(), types(LOOPED, 3))),
    "GMMConv": lambda: (conv.GMMConv(K, M, D, 3), (graph(), x(), draw(LOOPED, D))),
    "ChebConv": lambda: (conv.ChebConv(K, M, 3), (graph(), x(), [2.0])),
    "AGNNConv": lambda: (conv.AGNNConv(), (graph(), x())),
    "NNConv": lambda: (conv.NNConv(K, M, mlp(D, M, K * M)), (graph(), x(), draw(LOOPED, D))),
    "DenseGraphConv": lambda: (conv.DenseGraphConv(K, M), (symmetric(), x())),
    "DenseSAGEConv": lambda: (conv.DenseSAGEConv(K, M), (symmetric(), x())),
    "DenseChebConv": lambda: (conv.DenseChebConv(K, M, 3), (symmetric(), x(), 2.0)),
    "EdgeConv": lambda: (conv.EdgeConv(K, M), (graph(), x())),
    "AtomicConv": lambda: (
        conv.AtomicConv(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.ones(2), torch.tensor([6.0, 8.0])), atomic()
    ),
    "CFConv": lambda: (conv.CFConv(K, D, M, M), (graph(), x(), draw(LOOPED, D))),
    "DotGatConv": lambda: (conv.DotGatConv(K, M, 2), (graph(), x())),
    "TWIRLSConv": lambda: (conv.TWIRLSConv(K, M, M, 2), (graph(), x())),
    "TWIRLSUnfoldingAndAttention": lambda: (conv.TWIRLSUnfoldingAndAttention(K, 0.5, 1.0, 2), (graph(), x())),
    "GCN2Conv": lambda: (conv.GCN2Conv(K, 1), (graph(), x(), x())),
    "HGTConv": lambda: (conv.HGTConv(M, 4, 2, 2, 3, dropout=0.0), (graph(), x(M), types(N, 2), types(LOOPED, 3))),
    "EGNNConv": lambda: (conv.EGNNConv(K, M, M, D), (graph(), x(), x(3), draw(LOOPED, D))),
    "PNAConv": lambda: (conv.PNAConv(K, M, ["mean", "max"], ["identity", "amplification"], 2.5), (graph(), x())),
    "DGNConv": lambda: (
        conv.DGNConv(K, M, ["dir1-av", "dir1-dx", "sum"], ["identity", "amplification"], 2.5),
        (graph(), x(), None, x(2)),
    ),
    "HeteroGraphConv": lambda: (
        HeteroGraphConv({name: conv.SAGEConv((K, K), M, "mean") for name in ("likes", "knows")}),
        (typed(), {"a": x(), "b": x()}),
    ),
}  # fmt: skip
NAMES = (*conv.__all__, "HeteroGraphConv")
NEEDS = {
    "GroupRevRes": "an autograd function around other layers, which frees its inputs",
    **dict.fromkeys(("CuGraphGATConv", "CuGraphRelGraphConv", "CuGraphSAGEConv"), "needs pylibcugraphops"),
}
