"""EdgeConv and MoNet in every mode that their front ends cover."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.frontends.cases import Call, Case, K, M, values
from tests.frontends.graphs import Edges, block_edges, dgl_graph, typed_edges
from tests.reference.edges import dgl_edge_conv, dgl_gmm_conv, dynamic_edge_conv, edge_conv, gmm_conv

Features = int | tuple[int, int]


def features(channels: Features, edges: Edges, dtype: torch.dtype) -> Any:
    """Features of the nodes, or a pair where ``channels`` is one."""
    if isinstance(channels, int):
        return values(edges.num_src, channels, dtype=dtype)
    src, dst = channels
    return values(edges.num_src, src, dtype=dtype), values(edges.num_dst, dst, dtype=dtype, seed=4)


# PyG: EdgeConv and DynamicEdgeConv --------------------------------------------------------------------------


def network(name: str) -> nn.Module:
    from torch_geometric.nn import Linear

    first = nn.Sequential(Linear(2 * K, 5), nn.LeakyReLU(0.1))
    makers: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: nn.Linear(2 * K, M),
        "plain": lambda: nn.Linear(2 * K, M, bias=False),
        "relu": lambda: nn.Sequential(nn.Linear(2 * K, M), nn.ReLU()),
        "deep": lambda: nn.Sequential(first, nn.Identity(), nn.Linear(5, 4), nn.ELU(), nn.Linear(4, M), nn.Tanh()),
        "sigmoid": lambda: nn.Sequential(nn.Tanh(), nn.Linear(2 * K, M), nn.Sigmoid()),
    }
    return makers[name]()


def _edge_conv(name: str, aggr: str, _: Edges) -> nn.Module:
    from torch_geometric.nn import EdgeConv

    return EdgeConv(network(name), aggr=aggr)


def _edge_conv_inputs(channels: Features, edges: Edges, dtype: torch.dtype) -> Call:
    return (features(channels, edges, dtype), edges.edge_index), {}


def _edge_conv_cases() -> list[Case]:
    modes = [("linear", "max"), ("plain", "min"), ("relu", "max"), ("relu", "mean"), ("relu", "add"), ("deep", "max")]
    modes += [("deep", "mean"), ("sigmoid", "max")]
    cases: list[Case] = []
    for name, aggr in modes:
        make = partial(_edge_conv, name, aggr)
        inputs, real = partial(_edge_conv_inputs, K), (name, aggr) == ("relu", "max")
        cases.append(Case(f"pyg-edgeconv-{name}-{aggr}", "pyg", make, inputs, edge_conv, real=real))
    for name in ("linear", "relu"):
        make = partial(_edge_conv, name, "max")
        inputs = partial(_edge_conv_inputs, (K, K))
        cases.append(Case(f"pyg-edgeconv-{name}-pair", "pyg", make, inputs, edge_conv, block_edges))
    return cases


def _dynamic(k: int, _: Edges) -> nn.Module:
    import torch_geometric
    from torch_geometric.nn import DynamicEdgeConv

    known, torch_geometric.typing.WITH_KNN = torch_geometric.typing.WITH_KNN, True
    try:  # made without the library that it would call
        return DynamicEdgeConv(network("relu"), k)
    finally:
        torch_geometric.typing.WITH_KNN = known


def _dynamic_inputs(channels: Features, batched: bool, edges: Edges, dtype: torch.dtype) -> Call:
    x = features(channels, edges, dtype)
    if not batched:
        return (x,), {}
    batches = tuple(torch.arange(n) * 3 // n for n in (edges.num_src, edges.num_dst))
    return (x, batches if isinstance(channels, tuple) else batches[0]), {}


DYNAMIC_CASES = [
    Case(f"pyg-dynamic-{name}", "pyg", partial(_dynamic, k), partial(_dynamic_inputs, *call), dynamic_edge_conv, edges)
    for name, k, call, edges in (
        ("plain", 3, (K, False), typed_edges),
        ("batch", 4, (K, True), typed_edges),
        ("all", 40, (K, True), typed_edges),
        ("pair", 2, ((K, K), True), block_edges),
    )
]
"""PyG's own layer cannot run without pyg-lib: these are compared with the restatement alone."""


# PyG: GMMConv -----------------------------------------------------------------------------------------------


def _gmm(channels: Features, options: dict[str, Any], _: Edges) -> nn.Module:
    from torch_geometric.nn import GMMConv

    return GMMConv(channels, M, 2, 3, **options)


def _gmm_inputs(channels: Features, edges: Edges, dtype: torch.dtype) -> Call:
    attributes = values(edges.edge_type.numel(), 2, dtype=dtype, seed=5)
    return (features(channels, edges, dtype), edges.edge_index, attributes), {}


def _gmm_cases() -> list[Case]:
    modes: dict[str, tuple[Features, dict[str, Any]]] = {
        "mean": (K, {}),
        "add-no_bias": (K, {"aggr": "add", "bias": False}),
        "max": (K, {"aggr": "max"}),
        "pair": ((K, 5), {}),
        "separate": (K, {"separate_gaussians": True}),
        "separate-pair-max": ((K, 5), {"separate_gaussians": True, "aggr": "max"}),
    }
    return [
        Case(
            f"pyg-gmm-{name}", "pyg", partial(_gmm, channels, options), partial(_gmm_inputs, channels), gmm_conv,
            block_edges if isinstance(channels, tuple) else typed_edges, name == "mean",
        )
        for name, (channels, options) in modes.items()
    ]  # fmt: skip


# DGL --------------------------------------------------------------------------------------------------------


def _dgl_edge_conv(_: Edges) -> nn.Module:
    from dgl.nn.pytorch import EdgeConv

    return EdgeConv(K, M, allow_zero_in_degree=True)


def _dgl_edge_conv_inputs(channels: Features, edges: Edges, dtype: torch.dtype) -> Call:
    return (dgl_graph(edges), features(channels, edges, dtype)), {}


def _dgl_gmm(channels: Features, options: dict[str, Any], _: Edges) -> nn.Module:
    from dgl.nn.pytorch import GMMConv

    return GMMConv(channels, M, 2, 3, allow_zero_in_degree=True, **options)


def _dgl_gmm_inputs(channels: Features, edges: Edges, dtype: torch.dtype) -> Call:
    pseudo = values(edges.edge_type.numel(), 2, dtype=dtype, seed=5)
    return (dgl_graph(edges), features(channels, edges, dtype), pseudo), {}


def _dgl_cases() -> list[Case]:
    graphs: dict[str, tuple[Features, Callable[[], Edges]]] = {
        "plain": (K, typed_edges), "block": (K, block_edges), "pair": ((K, K), block_edges),
    }  # fmt: skip
    cases = [
        Case(
            f"dgl-edgeconv-{name}", "dgl", _dgl_edge_conv, partial(_dgl_edge_conv_inputs, channels), dgl_edge_conv,
            edges,
        )
        for name, (channels, edges) in graphs.items()
    ]  # fmt: skip
    modes: dict[str, tuple[Features, dict[str, Any]]] = {
        "sum": (K, {}),
        "mean-residual": (K, {"aggregator_type": "mean", "residual": True}),
        "max-no_bias": (K, {"aggregator_type": "max", "bias": False}),
        "pair": ((K, 5), {}),
        "pair-residual": ((K, 5), {"residual": True}),
        "identity": (M, {"residual": True}),
    }
    for name, (channels, options) in modes.items():
        make, inputs = partial(_dgl_gmm, channels, options), partial(_dgl_gmm_inputs, channels)
        edges = block_edges if isinstance(channels, tuple) or name == "max-no_bias" else typed_edges
        cases.append(Case(f"dgl-gmm-{name}", "dgl", make, inputs, dgl_gmm_conv, edges))
    return cases


EDGE_CASES: list[Case] = [*_edge_conv_cases(), *_gmm_cases(), *_dgl_cases()]
