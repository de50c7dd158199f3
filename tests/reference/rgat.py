"""PyG's `RGATConv`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.reference.scatter import scatter_count, scatter_softmax, scatter_sum, typed_linear


def rgat(layer: Any, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_attr: Tensor | None = None) -> Tensor:
    """Attention over incoming edges; heads x dim rows of features for each node, joined or averaged."""
    (src, dst), count, relations = edge_index, x.size(0), layer.num_relations
    heads, dim, channels = layer.heads, layer.dim, layer.out_channels
    if layer.num_blocks is not None:
        blocks = x.view(count, layer.num_blocks, -1)
        hs = typed_linear(blocks[src], layer.weight, edge_type).flatten(1)
        ht = typed_linear(blocks[dst], layer.weight, edge_type).flatten(1)
    else:
        weight = layer.weight if layer.num_bases is None else torch.einsum("rb,bkm->rkm", layer.att, layer.basis)
        hs = typed_linear(x[src], weight, edge_type)
        ht = typed_linear(x[dst], weight, edge_type)

    query, key = ht @ layer.q, hs @ layer.k
    edge = None
    if edge_attr is not None:
        edge = edge_attr.view(len(src), -1) @ layer.lin_edge.weight.T @ layer.e
    if layer.attention_mode == "additive-self-attention":
        score = query + key if edge is None else query + key + edge
        score = functional.leaky_relu(score, layer.negative_slope)
    else:
        score = query * key if edge is None else query * key * edge

    if layer.attention_mechanism == "within-relation":
        alpha = scatter_softmax(score, edge_type * count + dst, relations * count)
    else:
        alpha = scatter_softmax(score, dst, count)

    values = hs.view(-1, heads, 1, channels)
    degree = scatter_count(dst, count, x)
    if layer.mod == "f-additive":
        alpha = torch.where(alpha > 0, alpha + 1, alpha)
    elif layer.mod == "f-scaled":
        alpha = alpha * degree[dst].unsqueeze(-1)
    message = alpha.view(-1, heads, dim, 1) * values
    if layer.mod == "additive":
        message = message + layer.w * values
    elif layer.mod == "scaled":
        scale = (degree.unsqueeze(-1) @ layer.l1 + layer.b1).relu() @ layer.l2 + layer.b2
        message = message * scale[dst].view(-1, 1, 1, channels)

    out = scatter_sum(message, dst, count)
    out = out.flatten(1) if layer.concat else out.mean(1).flatten(1)
    return out if layer.bias is None else out + layer.bias
