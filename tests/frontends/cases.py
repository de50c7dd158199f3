"""Every layer in every mode that a front end covers: how to make it, its arguments, what it must return."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn

from tests.frontends.attention_cases import ATTENTION
from tests.frontends.case import Call, Case, K, M, values
from tests.frontends.convolution_cases import CONVOLUTIONS
from tests.frontends.graphs import Edges, block_edges, dgl_graph, edge_dict, type_name, typed_edges
from tests.reference.hgt import dgl_hgt, pyg_hgt
from tests.reference.rgat import rgat
from tests.reference.rgcn import rel_graph_conv, rgcn

# PyG: RGCNConv and FastRGCNConv -----------------------------------------------------------------------------

EMBEDDINGS = 20


def _pyg_rgcn(kind: str, options: dict[str, Any], x: str, edges: Edges) -> nn.Module:
    from torch_geometric.nn import FastRGCNConv, RGCNConv

    channels: Any = {"x": K, "pair": (K, 5), "none": edges.num_src}.get(x, EMBEDDINGS)
    layer = RGCNConv if kind == "rgcn" else FastRGCNConv
    return layer(channels, M, edges.num_relations, **options)


def _pyg_rgcn_inputs(x: str, edges: Edges, dtype: torch.dtype) -> Call:
    ids_src = torch.arange(edges.num_src) * 7 % EMBEDDINGS
    ids_dst = torch.arange(edges.num_dst) * 3 % EMBEDDINGS
    features: dict[str, Callable[[], Any]] = {
        "x": lambda: values(edges.num_src, K, dtype=dtype),
        "pair": lambda: (
            values(edges.num_src, K, dtype=dtype),
            values(edges.num_dst, 5, dtype=dtype, seed=4),
        ),
        "none": lambda: None,
        "ids": lambda: ids_src,
        "ids_pair": lambda: (ids_src, ids_dst),
        "none_pair": lambda: (None, ids_dst),
    }
    return (features[x](), edges.edge_index, edges.edge_type), {}


def _rgcn_cases() -> list[Case]:
    plain: dict[str, dict[str, Any]] = {
        "mean": {},
        "add": {"aggr": "add"},
        "max": {"aggr": "max"},
        "min": {"aggr": "min"},
        "bases": {"num_bases": 2},
        "blocks": {"num_blocks": 2},
        "blocks-add-no_root": {"num_blocks": 2, "aggr": "add", "root_weight": False},
        "blocks-max": {"num_blocks": 2, "aggr": "max"},
        "no_root": {"root_weight": False},
        "no_bias": {"bias": False},
        "bare": {"aggr": "add", "root_weight": False, "bias": False},
        "max-bare": {"aggr": "max", "num_bases": 3, "root_weight": False, "bias": False},
    }
    ids: dict[str, dict[str, Any]] = {name: plain[name] for name in ("mean", "add", "max", "bases", "bare")}
    pairs: dict[str, dict[str, Any]] = {name: plain[name] for name in ("mean", "max", "blocks", "no_root", "bare")}
    modes = [("x", name, options) for name, options in plain.items()]
    modes += [(x, name, options) for x, (name, options) in product(("none", "ids"), ids.items())]
    modes += [("pair", name, options) for name, options in pairs.items()]
    modes += [(x, name, plain[name]) for x in ("ids_pair", "none_pair") for name in ("mean", "min", "no_root")]
    cases: list[Case] = []
    for kind, (x, name, options) in product(("rgcn", "fast_rgcn"), modes):
        if kind == "fast_rgcn" and options.get("aggr") in ("max", "min"):
            continue
        make, inputs = partial(_pyg_rgcn, kind, options, x), partial(_pyg_rgcn_inputs, x)
        edges = block_edges if "pair" in x else typed_edges
        real = (x == "x" and name in ("mean", "max", "bases", "blocks")) or (x == "none" and name == "mean")
        cases.append(Case(f"pyg-{kind}-{x}-{name}", "pyg", make, inputs, rgcn, edges, real and kind == "rgcn"))
    return cases


# PyG: RGATConv ----------------------------------------------------------------------------------------------


def _pyg_rgat(options: dict[str, Any], edges: Edges) -> nn.Module:
    from torch_geometric.nn import RGATConv

    layer = RGATConv(K, 4, edges.num_relations, **options)
    return layer.eval() if "dropout" in options else layer


def _pyg_rgat_inputs(attributes: tuple[int, ...] | None, edges: Edges, dtype: torch.dtype) -> Call:
    call = (values(edges.num_src, K, dtype=dtype), edges.edge_index, edges.edge_type)
    if attributes is None:
        return call, {}
    return call, {"edge_attr": values(edges.edge_type.numel(), *attributes, dtype=dtype, seed=5)}


def _rgat_cases() -> list[Case]:
    additive, product_mode = "additive-self-attention", "multiplicative-self-attention"
    modes: dict[str, tuple[dict[str, Any], tuple[int, ...] | None]] = {
        "plain": ({}, None),
        "plain-no_bias": ({"bias": False}, None),
        "plain-mean": ({"concat": False, "negative_slope": 0.05}, None),
        "heads": ({"heads": 2}, None),
        "heads-mean": ({"heads": 3, "concat": False}, None),
        "heads-mean-no_bias": ({"heads": 2, "concat": False, "bias": False}, None),
        "bases": ({"num_bases": 2}, None),
        "bases-heads": ({"num_bases": 2, "heads": 2}, None),
        "blocks": ({"num_blocks": 2}, None),
        "blocks-heads": ({"num_blocks": 2, "heads": 2}, None),
        "dim": ({"attention_mode": product_mode, "dim": 2, "heads": 2}, None),
        "dim-mean": ({"attention_mode": product_mode, "dim": 3, "heads": 2, "concat": False}, None),
        "dim-additive": ({"attention_mode": product_mode, "dim": 2, "mod": "additive"}, None),
        "dim-scaled": ({"attention_mode": product_mode, "dim": 2, "heads": 2, "mod": "scaled"}, None),
        "edges": ({"edge_dim": 3}, (3,)),
        "edges-heads": ({"edge_dim": 3, "heads": 2}, (3,)),
        "edges-flat": ({"edge_dim": 1}, ()),
        "edges-absent": ({"edge_dim": 3}, None),
        "edges-product": ({"edge_dim": 3, "attention_mode": product_mode, "dim": 2}, (3,)),
        "dropout-eval": ({"dropout": 0.6}, None),
    }
    mods = (None, "additive", "scaled", "f-additive", "f-scaled")
    for mechanism, mode, mod in product(("across", "within"), (additive, product_mode), mods):
        options = {
            "attention_mechanism": f"{mechanism}-relation",
            "attention_mode": mode,
            "mod": mod,
            "heads": 2,
        }
        modes[f"{mechanism}-{mode.split('-')[0]}-{mod}"] = (options, None)
    real = ("plain", "heads", "within-additive-None")
    return [
        Case(
            f"pyg-rgat-{name}", "pyg", partial(_pyg_rgat, options), partial(_pyg_rgat_inputs, attributes),
            rgat, real=name in real,
        )
        for name, (options, attributes) in modes.items()
    ]  # fmt: skip


# PyG: HGTConv -----------------------------------------------------------------------------------------------


def _widths(widths: int | tuple[int, ...], edges: Edges) -> dict[str, int]:
    each = (widths,) * len(edges.type_sizes) if isinstance(widths, int) else widths
    return {type_name(i): width for i, width in enumerate(each)}


def _pyg_hgt(widths: int | tuple[int, ...], heads: int, edges: Edges) -> nn.Module:
    from torch_geometric.nn import HGTConv

    channels = _widths(widths, edges)
    return HGTConv(channels, M, (list(channels), list(edge_dict(edges))), heads=heads)


def _pyg_hgt_inputs(widths: int | tuple[int, ...], without: tuple[str, ...], edges: Edges, dtype: torch.dtype) -> Call:
    sizes = zip(_widths(widths, edges).items(), edges.type_sizes, strict=True)
    x = {name: values(size, width, dtype=dtype, seed=int(name[1:])) for (name, width), size in sizes}
    kept = {key: part for key, part in edge_dict(edges).items() if not {key[0], key[2], key[1]} & set(without)}
    return ({name: x[name] for name in x if name not in without}, kept), {}


def _hgt_cases() -> list[Case]:
    modes: dict[str, tuple[int | tuple[int, ...], int, tuple[str, ...]]] = {
        "skip": (M, 1, ()),
        "skip-heads": (M, 2, ()),
        "no_skip": (K, 1, ()),
        "no_skip-heads": (K, 4, ()),
        "widths": ((5, M, 3, M), 2, ()),
        "without_relation": (M, 2, ("r3",)),
        "without_type": (M, 2, (type_name(2),)),
        "widths-without_type": ((5, M, 3, M), 1, (type_name(0),)),
    }
    return [
        Case(
            f"pyg-hgt-{name}", "pyg", partial(_pyg_hgt, widths, heads),
            partial(_pyg_hgt_inputs, widths, without), pyg_hgt, real=name in ("skip", "no_skip-heads"),
        )
        for name, (widths, heads, without) in modes.items()
    ]  # fmt: skip


# DGL: RelGraphConv ------------------------------------------------------------------------------------------


def _dgl_rel_graph(options: dict[str, Any], edges: Edges) -> nn.Module:
    from dgl.nn.pytorch import RelGraphConv

    return RelGraphConv(K, M, edges.num_relations, **options)


def _dgl_rel_graph_inputs(call: str, edges: Edges, dtype: torch.dtype) -> Call:
    edges = edges.sorted() if call == "presorted" else edges
    options: dict[str, Any] = {"presorted": True} if call == "presorted" else {}
    if call == "norm":
        options["norm"] = values(edges.edge_type.numel(), 1, dtype=dtype, seed=6)
    return (dgl_graph(edges), values(edges.num_src, K, dtype=dtype), edges.edge_type), options


def _rel_graph_cases() -> list[Case]:
    modes: dict[str, tuple[dict[str, Any], str]] = {
        "plain": ({}, ""),
        "presorted": ({}, "presorted"),
        "norm": ({}, "norm"),
        "basis": ({"regularizer": "basis", "num_bases": 2}, ""),
        "basis-default": ({"regularizer": "basis"}, "norm"),
        "bdd": ({"regularizer": "bdd", "num_bases": 2}, "norm"),
        "bdd-presorted": ({"regularizer": "bdd", "num_bases": 2, "bias": False}, "presorted"),
        "no_loop": ({"self_loop": False}, ""),
        "no_bias": ({"bias": False}, ""),
        "bare": ({"self_loop": False, "bias": False}, ""),
        "activation": ({"activation": torch.relu}, ""),
        "layer_norm": ({"layer_norm": True}, ""),
        "layer_norm-activation": ({"layer_norm": True, "activation": torch.tanh, "self_loop": False}, "norm"),
        "layer_norm-bdd": ({"layer_norm": True, "regularizer": "bdd", "num_bases": 2}, ""),
        "dropout": ({"dropout": 0.5}, ""),
    }
    graphs = {"": typed_edges, "-block": block_edges}
    return [
        Case(
            f"dgl-relgraph-{name}{suffix}", "dgl", partial(_dgl_rel_graph, options),
            partial(_dgl_rel_graph_inputs, call), rel_graph_conv, edges,
            real=not suffix and name in ("plain", "bdd", "layer_norm"),
        )
        for (name, (options, call)), (suffix, edges) in product(modes.items(), graphs.items())
    ]  # fmt: skip


# DGL: HGTConv -----------------------------------------------------------------------------------------------


def _dgl_hgt(in_size: int, heads: int, options: dict[str, Any], edges: Edges) -> nn.Module:
    from dgl.nn.pytorch import HGTConv

    node_types = int(edges.node_type().max()) + 2
    return HGTConv(in_size, M // heads, heads, node_types, edges.num_relations, **options)


def _dgl_hgt_inputs(in_size: int, presorted: bool, edges: Edges, dtype: torch.dtype) -> Call:
    edges = edges.sorted() if presorted else edges
    x = values(edges.num_src, in_size, dtype=dtype)
    options = {"presorted": True} if presorted else {}
    return (dgl_graph(edges), x, edges.node_type(), edges.edge_type), options


def _dgl_hgt_cases() -> list[Case]:
    modes: dict[str, tuple[int, int, dict[str, Any], bool]] = {
        "plain": (M, 1, {"dropout": 0.0}, False),
        "heads": (M, 2, {"dropout": 0.0}, False),
        "presorted": (M, 2, {"dropout": 0.0}, True),
        "residual": (K, 2, {"dropout": 0.0}, False),
        "norm": (M, 4, {"dropout": 0.0, "use_norm": True}, False),
        "residual-norm": (K, 1, {"dropout": 0.0, "use_norm": True}, False),
        "dropout": (M, 2, {}, False),
        "dropout-residual-norm": (K, 2, {"use_norm": True}, False),
    }
    graphs = {"": typed_edges, "-block": block_edges}
    return [
        Case(
            f"dgl-hgt-{name}{suffix}", "dgl", partial(_dgl_hgt, in_size, heads, options),
            partial(_dgl_hgt_inputs, in_size, presorted), dgl_hgt, edges,
            real=not suffix and name in ("plain", "residual"),
        )
        for (name, mode), (suffix, edges) in product(modes.items(), graphs.items())
        for in_size, heads, options, presorted in [mode]
        if not (presorted and suffix)
    ]  # fmt: skip


CASES: list[Case] = [
    *_rgcn_cases(),
    *_rgat_cases(),
    *_hgt_cases(),
    *_rel_graph_cases(),
    *_dgl_hgt_cases(),
    *ATTENTION,
    *CONVOLUTIONS,
]
