"""Modes of GCN, GraphSAGE and GIN of both libraries; edges count without their types."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.frontends.case import Call, Case, K, M, values
from tests.frontends.graphs import Edges, block_edges, dgl_graph, typed_edges
from tests.reference.convolutions import (
    dgl_gin_conv,
    dgl_graph_conv,
    dgl_sage_conv,
    gcn_conv,
    gin_conv,
    sage_conv,
)

REAL = ("pyg-gcn-plain", "pyg-sage-mean", "pyg-gin-network", "dgl-graphconv-both", "dgl-sage-mean")
"""Those that run on a real graph as well."""
Mode = tuple[Callable[[], Any], str]
"""What makes the layer, and words that say what it is called with."""
OWN = 5


def wide_edges() -> Edges:
    """More destinations than sources, which are other nodes."""
    return block_edges(7, 13)


def adjacency(edges: Edges, dtype: torch.dtype) -> Tensor:
    """[N, N] CSR with destinations in rows; edges that are repeated are one with the sum of their values."""
    entries = values(edges.edge_type.numel(), dtype=dtype, seed=8).detach().abs()
    matrix = torch.sparse_coo_tensor(edges.edge_index.flip(0), entries, (edges.num_dst, edges.num_src))
    return matrix.coalesce().to_sparse_csr()


def _features(words: str, edges: Edges, dtype: torch.dtype, own: int) -> Any:
    x = values(edges.num_src, K, dtype=dtype)
    if "alone" in words:
        return x, None
    return (x, values(edges.num_dst, own, dtype=dtype, seed=4)) if "pair" in words else x


def _pyg_inputs(words: str, own: int, edges: Edges, dtype: torch.dtype) -> Call:
    x = _features(words, edges, dtype, own)
    if "sparse" in words:
        return (x, adjacency(edges, dtype)), {}
    if "weights" in words:
        weights = values(edges.edge_type.numel(), dtype=dtype, seed=8).detach().abs()
        return (x, edges.edge_index), {"edge_weight": weights.requires_grad_("fixed" not in words)}
    return (x, edges.edge_index), {"size": (edges.num_src, edges.num_dst)} if "alone" in words else {}


def _dgl_inputs(words: str, own: int, edges: Edges, dtype: torch.dtype) -> Call:
    import dgl

    graph = dgl_graph(edges) if edges.num_dst <= edges.num_src else None
    if graph is None:
        sizes = {"u": edges.num_src, "v": edges.num_dst}
        graph = dgl.heterograph({("u", "to", "v"): tuple(edges.edge_index)}, sizes)
    options: dict[str, Any] = {}
    if "weights" in words:
        options["edge_weight"] = values(edges.edge_type.numel(), dtype=dtype, seed=8).detach().abs().requires_grad_()
    if "column" in words:
        options["edge_weight"] = options["edge_weight"].detach().view(-1, 1)
    if "matrix" in words:
        options["weight"] = values(K, M, dtype=dtype, seed=9)
    return (graph, _features(words, edges, dtype, own)), options


def _cases(
    prefix: str, modes: dict[str, Mode], reference: Callable[..., Any], own: int, inputs: Callable[..., Call]
) -> list[Case]:
    cases: list[Case] = []
    for name, (make, words) in modes.items():
        edges = wide_edges if "wide" in words else block_edges if "block" in words else typed_edges
        made, called = partial(_made, make), f"{prefix}-{name}"
        call = partial(inputs, words, own)
        cases.append(Case(called, prefix[:3], made, call, reference, edges, called in REAL))
    return cases


def _made(make: Callable[[], nn.Module], _: Edges) -> nn.Module:
    return make()


def network(width: int = M) -> nn.Sequential:
    return nn.Sequential(nn.Linear(K, width), nn.ReLU(), nn.Linear(width, M))


def _pyg(name: str, *args: Any, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from torch_geometric import nn as layers

        return getattr(layers, name)(*(a() if callable(a) and a is not torch.tanh else a for a in args), **options)

    return make


def _dgl(name: str, *args: Any, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from dgl.nn import pytorch as layers

        return getattr(layers, name)(*(a() if callable(a) else a for a in args), **options)

    return make


GCN: dict[str, Mode] = {
    "plain": (_pyg("GCNConv", K, M), ""),
    "weights": (_pyg("GCNConv", K, M, improved=True), "weights"),
    "fixed_weights": (_pyg("GCNConv", K, M, improved=True), "weights fixed"),
    "no_loops": (_pyg("GCNConv", K, M, add_self_loops=False, bias=False), "weights"),
    "no_norm": (_pyg("GCNConv", K, M, normalize=False), ""),
    "no_norm-weights": (_pyg("GCNConv", K, M, normalize=False), "weights"),
    "cached": (_pyg("GCNConv", K, M, cached=True), "weights fixed"),
    "sparse": (_pyg("GCNConv", K, M, improved=True), "sparse"),
    "sparse-cached": (_pyg("GCNConv", K, M, cached=True), "sparse"),
}
SAGE: dict[str, Mode] = {
    "mean": (_pyg("SAGEConv", K, M), ""),
    "add-pair": (_pyg("SAGEConv", (K, OWN), M, aggr="add"), "pair wide"),
    "max": (_pyg("SAGEConv", K, M, aggr="max", normalize=True), ""),
    "min-alone": (_pyg("SAGEConv", K, M, aggr="min", bias=False), "alone block"),
    "unit": (_pyg("SAGEConv", K, M, root_weight=False, bias=False, normalize=True), ""),
    "project": (_pyg("SAGEConv", K, M, project=True), ""),
    "sparse": (_pyg("SAGEConv", K, M), "sparse"),
}
GIN: dict[str, Mode] = {
    "network": (_pyg("GINConv", network), ""),
    "narrow-eps": (_pyg("GINConv", partial(network, 2), train_eps=True), ""),
    "pair": (_pyg("GINConv", partial(network, 2), eps=0.5), "pair wide"),
    "max": (_pyg("GINConv", network, aggr="max"), ""),
    "alone": (_pyg("GINConv", nn.Tanh, aggr="mean"), "alone block"),
    "function": (_pyg("GINConv", torch.tanh, train_eps=True), "sparse"),
}
GRAPH_CONV: dict[str, Mode] = {
    "both": (_dgl("GraphConv", K, M, allow_zero_in_degree=True, activation=torch.tanh), "block"),
    "left": (_dgl("GraphConv", K, M, norm="left", allow_zero_in_degree=True), "weights"),
    "right": (_dgl("GraphConv", K, M, norm="right", allow_zero_in_degree=True), "pair wide weights column"),
    "none": (_dgl("GraphConv", K, M, norm="none", allow_zero_in_degree=True, bias=False), ""),
    "matrix": (_dgl("GraphConv", K, M, weight=False, allow_zero_in_degree=True), "matrix"),
    "no_matrix": (_dgl("GraphConv", K, K, weight=False, allow_zero_in_degree=True, bias=False), ""),
}
DGL_SAGE: dict[str, Mode] = {
    "mean": (_dgl("SAGEConv", K, M, "mean", activation=torch.relu, norm=nn.LayerNorm(M)), "block"),
    "mean-pair": (_dgl("SAGEConv", (K, OWN), M, "mean", feat_drop=0.3), "pair wide weights"),
    "gcn": (_dgl("SAGEConv", K, M, "gcn"), ""),
    "gcn-block": (_dgl("SAGEConv", K, M, "gcn", bias=False), "block weights"),
    "pool": (_dgl("SAGEConv", K, M, "pool"), "block"),
    "pool-weights": (_dgl("SAGEConv", (K, OWN), M, "pool", feat_drop=0.3), "pair block weights column"),
}
DGL_GCN_PAIR: dict[str, Mode] = {"gcn-pair": (_dgl("SAGEConv", K, M, "gcn"), "pair wide weights")}
DGL_GIN: dict[str, Mode] = {
    "network": (_dgl("GINConv", network, learn_eps=True, activation=torch.relu), "block"),
    "mean-pair": (_dgl("GINConv", partial(network, 2), "mean", init_eps=0.5), "pair wide weights"),
    "max": (_dgl("GINConv", None, "max"), "block weights"),
}
CONVOLUTIONS: list[Case] = [
    *_cases("pyg-gcn", GCN, gcn_conv, K, _pyg_inputs),
    *_cases("pyg-sage", SAGE, sage_conv, OWN, _pyg_inputs),
    *_cases("pyg-gin", GIN, gin_conv, K, _pyg_inputs),
    *_cases("dgl-graphconv", GRAPH_CONV, dgl_graph_conv, K, _dgl_inputs),
    *_cases("dgl-sage", DGL_SAGE, dgl_sage_conv, OWN, _dgl_inputs),
    *_cases("dgl-sage", DGL_GCN_PAIR, dgl_sage_conv, K, _dgl_inputs),
    *_cases("dgl-gin", DGL_GIN, dgl_gin_conv, K, _dgl_inputs),
]
