"""PyG's and DGL's `GATConv` and `GATv2Conv`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.reference.scatter import scatter_extreme, scatter_softmax, scatter_sum


def attend(
    src: Tensor, dst: Tensor, edge: Tensor | None, ends: Tensor, att: tuple[Tensor, ...], slope: float
) -> tuple[Tensor, Tensor]:
    """Features [N, H, C] of both ends, and of edges, to the values and weights of edges.

    With one vector in `att` the nonlinearity comes before the product (GATv2), with one for each operand after the sum.
    """
    i, j = ends
    operands = [src[i], dst[j]] if edge is None else [src[i], dst[j], edge]
    if len(att) == 1:
        total = torch.stack(operands).sum(0)
        score = (functional.leaky_relu(total, slope) * att[0]).sum(-1)
    else:
        parts = [(x * a).sum(-1) for x, a in zip(operands, att, strict=False)]
        score = functional.leaky_relu(torch.stack(parts).sum(0), slope)
    return src[i], scatter_softmax(score, j, dst.size(0))


def _filled(ends: Tensor, attributes: Tensor, count: int, fill: float | str) -> Tensor:
    """Attributes [count, D] of self loops: a number, or what is reduced over the edges into a node."""
    if not isinstance(fill, str):
        return attributes.new_full((count, attributes.size(1)), fill)
    if fill in ("max", "min"):
        return scatter_extreme(attributes, ends[1], count, f"a{fill}")
    total = scatter_sum(attributes, ends[1], count)
    if fill == "add":
        return total
    return total / torch.bincount(ends[1], minlength=count).clamp(min=1).unsqueeze(1)


def pyg_gat(
    layer: Any, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, edge_attr: Tensor | None = None,
    return_attention_weights: bool | None = None,
) -> Any:  # fmt: skip
    """Self loops are taken away and added; dropout draws a mask for the edges in that order."""
    x_src, x_dst = x if isinstance(x, tuple) else (x, x)
    heads, channels = layer.heads, layer.out_channels
    ends, attributes = edge_index, edge_attr
    if attributes is not None:
        attributes = attributes.view(len(attributes), -1)
    if layer.add_self_loops:
        count, others = min(x_src.size(0), x_dst.size(0)), ends[0] != ends[1]
        ends = ends[:, others]
        if attributes is not None:
            attributes = attributes[others]
            attributes = torch.cat([attributes, _filled(ends, attributes, count, layer.fill_value)])
        ends = torch.cat([ends, torch.arange(count).expand(2, -1)], dim=1)
    if hasattr(layer, "lin_l"):
        project = (layer.lin_l, layer.lin_r)
        att: tuple[Tensor, ...] = (layer.att,)
    else:
        project = (layer.lin, layer.lin) if layer.lin is not None else (layer.lin_src, layer.lin_dst)
        att = (layer.att_src, layer.att_dst, layer.att_edge)
    src, dst = (p(v).view(-1, heads, channels) for p, v in zip(project, (x_src, x_dst), strict=True))
    edge = None if attributes is None else layer.lin_edge(attributes).view(-1, heads, channels)
    message, alpha = attend(src, dst, edge, ends, att, layer.negative_slope)
    alpha = functional.dropout(alpha, layer.dropout, layer.training)
    out = scatter_sum(alpha.unsqueeze(-1) * message, ends[1], dst.size(0))
    out = out.flatten(1) if layer.concat else out.mean(1)
    if layer.res is not None:
        out = out + layer.res(x_dst)
    if layer.bias is not None:
        out = out + layer.bias
    return (out, (ends, alpha)) if return_attention_weights else out


def dgl_gat(
    layer: Any, graph: Any, feat: Tensor | tuple[Tensor, Tensor], edge_weight: Tensor | None = None,
    get_attention: bool = False,
) -> Any:  # fmt: skip
    """Features [N, H, C]; in a block destinations are the first sources."""
    ends = torch.stack(graph.edges())
    pair = isinstance(feat, tuple)
    x_src = layer.feat_drop(feat[0] if pair else feat)
    x_dst = layer.feat_drop(feat[1]) if isinstance(feat, tuple) else x_src[: graph.num_dst_nodes()]
    heads, channels = layer._num_heads, layer._out_feats
    attention = (layer.attn,) if hasattr(layer, "attn") else (layer.attn_l, layer.attn_r)
    project = (layer.fc, layer.fc) if hasattr(layer, "fc") else (layer.fc_src, layer.fc_dst)
    src, dst = (p(v).view(-1, heads, channels) for p, v in zip(project, (x_src, x_dst), strict=True))
    message, alpha = attend(src, dst, None, ends, attention, layer.leaky_relu.negative_slope)
    alpha = layer.attn_drop(alpha.unsqueeze(-1))
    if edge_weight is not None:
        alpha = alpha * edge_weight.view(-1, 1, 1)
    out = scatter_sum(alpha * message, ends[1], dst.size(0))
    if layer.res_fc is not None:
        out = out + layer.res_fc(x_dst).view(-1, heads, channels)
    if isinstance(layer.bias, Tensor):
        out = out + layer.bias.view(heads, channels)
    if layer.activation:
        out = layer.activation(out)
    return (out, alpha) if get_attention else out
