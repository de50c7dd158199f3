"""Modes of attention layers: GAT and GATv2 of PyG and DGL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.frontends.case import Call, Case, K, M, values
from tests.frontends.graphs import Edges, block_edges, dgl_graph, typed_edges
from tests.reference.gat import dgl_gat, pyg_gat

Inputs = Callable[[Edges, torch.dtype], Call]

# PyG: GATConv and GATv2Conv ---------------------------------------------------------------------------------


def _pyg_gat(kind: str, channels: int | tuple[int, int], options: dict[str, Any], edges: Edges) -> nn.Module:
    import torch_geometric.nn as library

    return getattr(library, kind)(channels, 4, **options)


def _pyg_gat_inputs(pair: bool, attributes: tuple[int, ...] | None, edges: Edges, dtype: torch.dtype) -> Call:
    x: Any = values(edges.num_src, K, dtype=dtype)
    if pair:
        x = (x, values(edges.num_dst, 5, dtype=dtype, seed=4))
    if attributes is None:
        return (x, edges.edge_index), {}
    return (x, edges.edge_index, values(edges.edge_type.numel(), *attributes, dtype=dtype, seed=5)), {}


def _with_attention(
    inputs: Callable[[Edges, torch.dtype], Call], option: str, edges: Edges, dtype: torch.dtype
) -> Call:
    args, kwargs = inputs(edges, dtype)
    return args, {**kwargs, option: True}


def _gat_cases() -> list[Case]:
    both: dict[str, tuple[dict[str, Any], tuple[int, ...] | None]] = {
        "plain": ({}, None),
        "heads": ({"heads": 2}, None),
        "no_loops": ({"heads": 2, "add_self_loops": False}, None),
        "bare": ({"heads": 2, "bias": False, "negative_slope": 0.05}, None),
        "residual": ({"heads": 2, "residual": True}, None),
        "mean": ({"heads": 2, "concat": False, "residual": True}, None),
        "edges": ({"heads": 2, "edge_dim": 3}, (3,)),
        "edges-flat-max": ({"edge_dim": 1, "heads": 2, "fill_value": "max"}, ()),
        "edges-absent": ({"heads": 2, "edge_dim": 3}, None),
        "dropout": ({"heads": 2, "dropout": 0.4}, None),
        "attention-dropout": ({"heads": 2, "dropout": 0.4, "concat": False}, None),
    }
    cases: list[Case] = []
    for kind, name in (("GATConv", "gat"), ("GATv2Conv", "gatv2")):
        modes = {**both, "shared": ({"heads": 2, "share_weights": True}, None)} if kind == "GATv2Conv" else both
        for mode, (options, attributes) in modes.items():
            inputs: Inputs = partial(_pyg_gat_inputs, False, attributes)
            if mode.startswith("attention"):
                inputs = partial(_with_attention, inputs, "return_attention_weights")
            make = partial(_pyg_gat, kind, K, options)
            cases.append(Case(f"pyg-{name}-{mode}", "pyg", make, inputs, pyg_gat, real=mode in ("heads", "residual")))
        make = partial(_pyg_gat, kind, (K, 5), {"heads": 2, "residual": True})
        inputs = partial(_pyg_gat_inputs, True, None)
        cases.append(Case(f"pyg-{name}-pair", "pyg", make, inputs, pyg_gat, block_edges))
    return cases


# DGL: GATConv and GATv2Conv ---------------------------------------------------------------------------------


def _dgl_gat(kind: str, channels: int | tuple[int, int], options: dict[str, Any], edges: Edges) -> nn.Module:
    import dgl.nn.pytorch as library

    return getattr(library, kind)(channels, 4, 2, allow_zero_in_degree=True, **options)


def _dgl_gat_inputs(channels: int | tuple[int, int], call: str, edges: Edges, dtype: torch.dtype) -> Call:
    src, dst = channels if isinstance(channels, tuple) else (channels, channels)
    x: Any = values(edges.num_src, src, dtype=dtype)
    if call == "pair" or isinstance(channels, tuple):
        x = (x, values(edges.num_dst, dst, dtype=dtype, seed=4))
    options = {"edge_weight": values(edges.edge_type.numel(), dtype=dtype, seed=6)} if call == "weights" else {}
    return (dgl_graph(edges), x), options


def _dgl_gat_cases() -> list[Case]:
    modes: dict[str, tuple[int | tuple[int, int], dict[str, Any], str, Callable[[], Edges]]] = {
        "plain": (K, {}, "", typed_edges),
        "block": (K, {"residual": True}, "", block_edges),
        "pair": (K, {}, "pair", block_edges),
        "widths": ((K, 5), {"residual": True}, "", block_edges),
        "identity": (M, {"residual": True}, "", typed_edges),
        "activation-no_bias": (K, {"bias": False, "activation": torch.tanh}, "", typed_edges),
        "dropout": (K, {"feat_drop": 0.3, "attn_drop": 0.4, "residual": True}, "", typed_edges),
        "attention-dropout": (K, {"attn_drop": 0.4}, "", typed_edges),
    }
    cases: list[Case] = []
    for kind, name in (("GATConv", "gat"), ("GATv2Conv", "gatv2")):
        weights = (K, {}, "weights", typed_edges)
        shared = (K, {"share_weights": True}, "pair", block_edges)
        own = {"weights": weights} if kind == "GATConv" else {"shared": shared}
        for mode, (channels, options, call, edges) in {**modes, **own}.items():
            inputs: Inputs = partial(_dgl_gat_inputs, channels, call)
            if mode.startswith("attention"):
                inputs = partial(_with_attention, inputs, "get_attention")
            make = partial(_dgl_gat, kind, channels, options)
            cases.append(Case(f"dgl-{name}-{mode}", "dgl", make, inputs, dgl_gat, edges))
    return cases


ATTENTION: list[Case] = [*_gat_cases(), *_dgl_gat_cases()]
