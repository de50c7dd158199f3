"""PyG's `HGTConv` and DGL's `HGTConv`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.reference.scatter import scatter_softmax, scatter_sum, typed_linear


def _attend(
    k: Tensor,
    q: Tensor,
    v: Tensor,
    src: Tensor,
    dst: Tensor,
    edge_type: Tensor,
    parameters: tuple[Tensor, ...],
) -> Tensor:
    """Aggregate [ND, H, D] of projections [*, H, D]; parameters: W_att, W_msg [R, H, D, D], mu [R, H]."""
    w_att, w_msg, prior = parameters
    score = (typed_linear(k[src], w_att, edge_type) * q[dst]).sum(-1) * prior[edge_type] / math.sqrt(q.size(-1))
    alpha = scatter_softmax(score, dst, q.size(0))
    return scatter_sum(alpha.unsqueeze(-1) * typed_linear(v[src], w_msg, edge_type), dst, q.size(0))


def pyg_hgt(layer: Any, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
    """Attention over all nodes at once; types that no edge type of the metadata points at get no output."""
    heads, f = layer.heads, layer.out_channels
    start, total = {}, 0
    for name, x in x_dict.items():
        start[name] = total
        total += x.size(0)
    projected = []
    for name, x in x_dict.items():
        lin = layer.kqv_lin.lins[name]
        projected.append((x @ lin.weight.T + lin.bias).view(-1, 3, heads, f // heads))
    k, q, v = torch.cat(projected).unbind(1)

    keys = [key for key, edges in edge_index_dict.items() for _ in range(edges.size(1))]
    src = torch.cat([edges[0] + start[key[0]] for key, edges in edge_index_dict.items()])
    dst = torch.cat([edges[1] + start[key[-1]] for key, edges in edge_index_dict.items()])
    edge_type = torch.tensor([layer.edge_types_map[key] for key in keys], dtype=torch.long)

    def by_relation(weight: Tensor) -> Tensor:
        return weight.view(heads, len(layer.edge_types), f // heads, f // heads).transpose(0, 1)

    prior = torch.cat([layer.p_rel["__".join(key)] for key in layer.edge_types])
    parameters = by_relation(layer.k_rel.weight), by_relation(layer.v_rel.weight), prior
    rows = _attend(k, q, v, src, dst, edge_type, parameters).flatten(1)

    outputs = {}
    for name in layer.kqv_lin.lins:
        if name not in x_dict or name not in layer.dst_node_types:
            continue
        x, lin = x_dict[name], layer.out_lin.lins[name]
        part = rows[start[name] : start[name] + x.size(0)]
        out = functional.gelu(part) @ lin.weight.T + lin.bias
        if x.size(1) == f:
            gate = layer.skip[name].sigmoid()
            out = gate * out + (1 - gate) * x
        outputs[name] = out
    return outputs


def dgl_hgt(layer: Any, g: Any, x: Tensor, ntype: Tensor, etype: Tensor, *, presorted: bool = False) -> Tensor:
    """One head after the other in DGL's parameters; dropout falls between the output layer and the gate."""
    src, dst = (ids.long() for ids in g.edges())
    count, shape = g.num_dst_nodes(), (-1, layer.num_heads, layer.head_size)
    k = typed_linear(x, layer.linear_k.W, ntype).view(shape)
    v = typed_linear(x, layer.linear_v.W, ntype).view(shape)
    own, own_type = x[:count], ntype[:count]
    q = typed_linear(own, layer.linear_q.W, own_type).view(shape)
    parameters = (
        torch.stack([typed.W for typed in layer.relation_att], 1),
        torch.stack([typed.W for typed in layer.relation_msg], 1),
        torch.stack(list(layer.relation_pri), 1),
    )
    rows = _attend(k, q, v, src, dst, etype, parameters).flatten(1)
    h = layer.drop(typed_linear(rows, layer.linear_a.W, own_type))
    gate = layer.skip[own_type].sigmoid().unsqueeze(-1)
    residual = own if own.shape == h.shape else own @ layer.residual_w
    h = gate * h + (1 - gate) * residual
    return functional.layer_norm(h, h.shape[1:], layer.norm.weight, layer.norm.bias) if layer.use_norm else h
