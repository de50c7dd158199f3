"""EdgeConv and MoNet of PyG and DGL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.reference.scatter import scatter_count, scatter_extreme, scatter_sum


def reduced(values: Tensor, dst: Tensor, count: int, aggr: str) -> Tensor:
    """[count, ...]: sum ("add"), mean, largest or smallest of the rows for each destination; 0 where there is none."""
    if aggr in ("max", "min"):
        return scatter_extreme(values, dst, count, f"a{aggr}")
    total = scatter_sum(values, dst, count)
    if aggr == "mean":
        total = total / scatter_count(dst, count, values).clamp(min=1).view(-1, *[1] * (values.dim() - 1))
    return total


def edge_conv(layer: Any, x: Any, edge_index: Tensor) -> Tensor:
    """Aggregated ``nn(x_i, x_j - x_i)``."""
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    src, dst = edge_index
    rows = layer.nn(torch.cat([x_r[dst], x_l[src] - x_r[dst]], dim=-1))
    return reduced(rows, dst, x_r.size(0), layer.aggr)


def dynamic_edge_conv(layer: Any, x: Any, batch: Any = None) -> Tensor:
    """The same on the graph of the k nearest points of the same example, by brute force."""
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    b_l, b_r = batch if isinstance(batch, tuple) else (batch, batch)
    distance = (x_r.detach()[:, None] - x_l.detach()[None]).square().sum(-1)
    if b_l is not None:
        distance = distance.masked_fill(b_r[:, None] != b_l[None], torch.inf)
    near, src = distance.sort(dim=1, stable=True)
    dst = torch.arange(x_r.size(0))[:, None].expand_as(src)
    kept = (torch.arange(x_l.size(0)) < layer.k) & near.isfinite()
    return edge_conv(layer, x, torch.stack([src[kept], dst[kept]]))


def gmm_conv(layer: Any, x: Any, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
    """Aggregated ``sum_k w_k(u) W_k x_j``, plus root and bias."""
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    (src, dst), kernels = edge_index, layer.kernel_size
    difference = edge_attr.view(-1, *[1] * (layer.mu.dim() - 1), layer.dim) - layer.mu
    weights = (-0.5 * (difference**2 / (1e-15 + layer.sigma**2)).sum(-1)).exp()
    matrix = layer.g.view(x_l.size(1), kernels, -1)
    if layer.separate_gaussians:
        matrix = layer.g.view(x_l.size(1), -1, kernels)
        rows = torch.einsum("ef,efmk,fmk->em", x_l[src], weights, matrix)
    else:
        rows = torch.einsum("ef,ek,fkm->em", x_l[src], weights, matrix)
    out = reduced(rows, dst, x_r.size(0), layer.aggr)
    if layer.root_weight:
        out = out + x_r @ layer.root.weight.T
    return out if layer.bias is None else out + layer.bias


def dgl_edge_conv(layer: Any, g: Any, feat: Any) -> Tensor:
    """Largest ``theta(x_i - x_j) + phi(x_i)``."""
    src, dst = (ids.long() for ids in g.edges())
    x_l, x_r = feat if isinstance(feat, tuple) else (feat, feat[: g.num_dst_nodes()])
    rows = (x_r[dst] - x_l[src]) @ layer.theta.weight.T + layer.theta.bias
    rows = rows + (x_r @ layer.phi.weight.T + layer.phi.bias)[dst]
    return reduced(rows, dst, g.num_dst_nodes(), "max")


def dgl_gmm_conv(layer: Any, g: Any, feat: Any, pseudo: Tensor) -> Tensor:
    """Aggregated ``w_k(u) W_k x_j``, summed over k, plus residual and bias."""
    src, dst = (ids.long() for ids in g.edges())
    x_l, x_r = feat if isinstance(feat, tuple) else (feat, feat[: g.num_dst_nodes()])
    weights = (-0.5 * ((pseudo[:, None] - layer.mu) ** 2 * layer.inv_sigma**2).sum(-1)).exp()
    matrix = layer.fc.weight.view(layer.mu.size(0), -1, x_l.size(1))
    rows = torch.einsum("ef,ek,kmf->ekm", x_l[src], weights, matrix)
    aggr = layer._reducer.__name__.replace("sum", "add")
    out = reduced(rows, dst, g.num_dst_nodes(), aggr).sum(1)
    if layer.res_fc is not None:
        out = out + layer.res_fc(x_r)
    return out if layer.bias is None else out + layer.bias
