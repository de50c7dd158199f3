"""PyG's `GCNConv`, `SAGEConv`, `GINConv` and DGL's `GraphConv`, `SAGEConv`, `GINConv`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.reference.scatter import scatter_count, scatter_extreme, scatter_sum


def gcn_conv(layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """D^-1/2 A D^-1/2 x W, where A has self loops; those that are there keep their weights."""
    src, dst, weight = _entries(edge_index)
    weight = edge_weight if weight is None else weight
    fill = 1.0 if weight is None else 2.0 if layer.improved else 1.0
    weight = torch.ones(src.numel(), dtype=x.dtype) if weight is None else weight
    matrix = torch.zeros(x.size(0), x.size(0), dtype=x.dtype)
    if layer.normalize and layer.add_self_loops:
        loop = torch.full((x.size(0),), fill, dtype=x.dtype)
        if edge_index.layout is torch.strided:
            last = {int(i): e for e, i in enumerate(src) if src[e] == dst[e]}
            loop = torch.stack([weight[last[i]] if i in last else loop[i] for i in range(x.size(0))])
            weight = torch.where(src == dst, torch.zeros_like(weight), weight)
        matrix = matrix + torch.diag(loop)
    matrix = matrix.index_put((dst, src), weight, accumulate=True)
    if layer.normalize:
        degree = matrix.sum(1)
        root = torch.where(degree > 0, degree, torch.ones_like(degree)).rsqrt() * (degree > 0)
        matrix = root.view(-1, 1) * matrix * root
    out = matrix @ x @ layer.lin.weight.T
    return out if layer.bias is None else out + layer.bias


def sage_conv(layer: Any, x: Any, edge_index: Tensor, size: Any = None) -> Tensor:
    """W reduced neighbours + b + R own, over its norm."""
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    count = x_r.size(0) if x_r is not None else size[1]
    rows = (x_l @ layer.lin.weight.T + layer.lin.bias).relu() if layer.project else x_l
    out = _reduced(layer.aggr, rows, edge_index, count) @ layer.lin_l.weight.T
    if layer.lin_l.bias is not None:
        out = out + layer.lin_l.bias
    if layer.root_weight and x_r is not None:
        out = out + x_r @ layer.lin_r.weight.T
    return out / out.square().sum(1, keepdim=True).clamp(min=1e-24).sqrt() if layer.normalize else out


def gin_conv(layer: Any, x: Any, edge_index: Tensor, size: Any = None) -> Tensor:
    """The network of (1 + eps) own + reduced neighbours."""
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    out = _reduced(layer.aggr, x_l, edge_index, x_r.size(0) if x_r is not None else size[1])
    return layer.nn(out if x_r is None else out + (1 + layer.eps) * x_r)


def dgl_graph_conv(
    layer: Any, g: Any, feat: Any, weight: Tensor | None = None, edge_weight: Tensor | None = None
) -> Tensor:
    """Sum over edges of weighted sources, which count by the degrees of both ends; activation."""
    (src, dst), x = _ends(g), feat[0] if isinstance(feat, tuple) else feat
    matrix = layer.weight if weight is None else weight
    message = x[src] if edge_weight is None else x[src] * edge_weight.view(-1, 1)
    power = -0.5 if layer._norm == "both" else -1.0
    if layer._norm in ("left", "both"):
        message = message * scatter_count(src, g.num_src_nodes(), x).pow(power)[src].view(-1, 1)
    if layer._norm in ("right", "both"):
        message = message * scatter_count(dst, g.num_dst_nodes(), x).pow(power)[dst].view(-1, 1)
    out = scatter_sum(message, dst, g.num_dst_nodes())
    out = out if matrix is None else out @ matrix
    out = out if layer.bias is None else out + layer.bias
    return out if layer._activation is None else layer._activation(out)


def dgl_sage_conv(layer: Any, g: Any, feat: Any, edge_weight: Tensor | None = None) -> Tensor:
    """Linear of neighbours by mean, by mean with the node itself, or the largest of a layer of them; own linear."""
    (src, dst), count = _ends(g), g.num_dst_nodes()
    x, own = map(layer.feat_drop, feat) if isinstance(feat, tuple) else (layer.feat_drop(feat),) * 2
    own = own[:count]
    if layer._aggre_type == "pool":
        x = (x @ layer.fc_pool.weight.T + layer.fc_pool.bias).relu()
    message = x[src] if edge_weight is None else x[src] * edge_weight.view(-1, 1)
    degree = torch.zeros(count, dtype=x.dtype).index_add(0, dst, torch.ones(dst.numel(), dtype=x.dtype)).view(-1, 1)
    if layer._aggre_type == "pool":
        found = scatter_extreme(message, dst, count, "amax")
    elif layer._aggre_type == "gcn":
        found = (scatter_sum(message, dst, count) + own) / (degree + 1)
    else:
        found = scatter_sum(message, dst, count) / degree.clamp(min=1)
    out = found @ layer.fc_neigh.weight.T
    out = out + (layer.fc_self(own) if layer._aggre_type != "gcn" else 0 if layer.bias is None else layer.bias)
    out = out if layer.activation is None else layer.activation(out)
    return out if layer.norm is None else layer.norm(out)


def dgl_gin_conv(layer: Any, g: Any, feat: Any, edge_weight: Tensor | None = None) -> Tensor:
    """The network of (1 + eps) own + reduced neighbours; activation."""
    (src, dst), count = _ends(g), g.num_dst_nodes()
    x, own = feat if isinstance(feat, tuple) else (feat, feat[:count])
    message = x[src] if edge_weight is None else x[src] * edge_weight.view(-1, 1)
    out = _reduce(layer._aggregator_type, message, dst, count) + (1 + layer.eps) * own
    out = out if layer.apply_func is None else layer.apply_func(out)
    return out if layer.activation is None else layer.activation(out)


def _ends(g: Any) -> tuple[Tensor, Tensor]:
    src, dst = g.edges(order="eid")
    return src.long(), dst.long()


def _entries(edge_index: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sources, destinations, and the values of an adjacency, destinations in its rows."""
    if edge_index.layout is torch.strided:
        return edge_index[0], edge_index[1], None
    matrix = edge_index.to_sparse_coo().coalesce()
    return matrix.indices()[1], matrix.indices()[0], matrix.values()


def _reduced(aggr: str, x: Tensor, edge_index: Tensor, count: int) -> Tensor:
    src, dst, weight = _entries(edge_index)
    return _reduce(aggr, x[src] if weight is None else x[src] * weight.view(-1, 1), dst, count)


def _reduce(aggr: str, message: Tensor, dst: Tensor, count: int) -> Tensor:
    if aggr in ("max", "min"):
        return scatter_extreme(message, dst, count, "a" + aggr)
    total = scatter_sum(message, dst, count)
    if aggr != "mean":
        return total
    ones = torch.ones(dst.numel(), 1, dtype=message.dtype)
    return total / scatter_sum(ones, dst, count).clamp(min=1)
