"""PyG's `RGCNConv` and `FastRGCNConv`, and DGL's `RelGraphConv`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.reference.scatter import scatter_count, scatter_extreme, scatter_sum, typed_linear


def rgcn(layer: Any, x: Any, edge_index: Tensor, edge_type: Tensor) -> Tensor:
    """Sum over relations of `aggr` over the neighbours of that relation, plus root and bias."""
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    if x_l is None:
        x_l = torch.arange(layer.weight.size(1))
    if x_r is None:
        x_r = x_l
    src, dst = edge_index
    count, relations = x_r.size(0), layer.num_relations
    weight = layer.weight
    if layer.num_bases is not None:
        weight = torch.einsum("rb,bkm->rkm", layer.comp, weight)
    ids = not x_l.is_floating_point()

    pair = edge_type * count + dst
    if layer.aggr in ("max", "min"):
        values = weight[edge_type, x_l[src]] if ids else x_l[src]
        pooled = scatter_extreme(values, pair, relations * count, "a" + layer.aggr)
        if not ids:
            pair_type = torch.arange(relations).repeat_interleave(count)
            pooled = _transform(pooled, weight, pair_type)
        out = pooled.view(relations, count, -1).sum(0)
    else:
        # FastRGCNConv takes the position of the source where x holds ids.
        rows = src if type(layer).__name__ == "FastRGCNConv" else x_l[src]
        values = weight[edge_type, rows] if ids else _transform(x_l[src], weight, edge_type)
        if layer.aggr == "mean":
            values = values / scatter_count(pair, relations * count, values)[pair].unsqueeze(-1)
        out = scatter_sum(values, dst, count)

    if layer.root is not None:
        out = out + (x_r @ layer.root if x_r.is_floating_point() else layer.root[x_r])
    return out if layer.bias is None else out + layer.bias


def rel_graph_conv(
    layer: Any, g: Any, feat: Tensor, etypes: Tensor, norm: Tensor | None = None, *, presorted: bool = False
) -> Tensor:
    """Sum over edges of norm x typed linear; then norm of rows, bias, self loop, activation, dropout."""
    src, dst = (ids.long() for ids in g.edges())
    count, typed = g.num_dst_nodes(), layer.linear_r
    weight = typed.W
    if typed.regularizer == "basis":
        weight = torch.einsum("rb,bkm->rkm", typed.coeff, weight)
    elif typed.regularizer == "bdd":
        weight = weight.view(typed.num_types, typed.num_bases, typed.submat_in, typed.submat_out)
    message = _transform(feat[src], weight, etypes)
    if norm is not None:
        message = message * norm
    out = scatter_sum(message, dst, count)
    if layer.layer_norm:
        part = layer.layer_norm_weight
        centred = out - out.mean(-1, keepdim=True)
        out = centred / (centred.square().mean(-1, keepdim=True) + part.eps).sqrt() * part.weight + part.bias
    if layer.bias:
        out = out + layer.h_bias
    if layer.self_loop:
        out = out + feat[:count] @ layer.loop_weight
    return layer.dropout(layer.activation(out) if layer.activation else out)


def _transform(x: Tensor, weight: Tensor, types: Tensor) -> Tensor:
    if weight.dim() == 3:
        return typed_linear(x, weight, types)
    blocks = x.view(x.size(0), weight.size(1), weight.size(2))
    return typed_linear(blocks, weight, types).flatten(1)
