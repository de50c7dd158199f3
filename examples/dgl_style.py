"""RGCN, RGAT and HGT as users of DGL write them, on a homogeneous graph with types (`dgl.to_homogeneous`)."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as fn
import torch
import torch.nn.functional as F
from dgl.nn import TypedLinear
from dgl.nn.functional import edge_softmax
from torch import Tensor, nn

import dacergnn


class RGCN(nn.Module):
    """Sums neighbours, transformed by relation and weighted by ``norm`` [E], and the transformed node itself."""

    def __init__(self, channels: int, out_channels: int, relations: int) -> None:
        super().__init__()
        self.linear = TypedLinear(channels, out_channels, relations)
        self.root = nn.Parameter(torch.randn(channels, out_channels) * channels**-0.5)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def message(self, edges: Any) -> dict[str, Tensor]:
        return {"m": self.linear(edges.src["h"], edges.data[dgl.ETYPE]) * edges.data["norm"].unsqueeze(1)}

    @dacergnn.compile
    def forward(self, g: Any, x: Tensor, norm: Tensor) -> Tensor:
        with g.local_scope():
            g.srcdata["h"], g.edata["norm"] = x, norm
            g.update_all(self.message, fn.sum("m", "out"))
            return g.dstdata["out"] + x @ self.root + self.bias


class RGAT(nn.Module):
    """Computes additive attention over all neighbours, which are transformed by relation."""

    def __init__(self, channels: int, out_channels: int, relations: int, heads: int = 1, slope: float = 0.2) -> None:
        super().__init__()
        self.linear = TypedLinear(channels, heads * out_channels, relations)
        self.q, self.k = nn.Parameter(torch.randn(heads, out_channels)), nn.Parameter(torch.randn(heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads, out_channels))
        self.slope = slope

    def attention(self, edges: Any) -> dict[str, Tensor]:
        hs = self.linear(edges.src["h"], edges.data[dgl.ETYPE]).view(-1, *self.k.shape)
        ht = self.linear(edges.dst["h"], edges.data[dgl.ETYPE]).view(-1, *self.q.shape)
        score = F.leaky_relu((ht * self.q).sum(-1) + (hs * self.k).sum(-1), self.slope)
        return {"hs": hs, "score": score.unsqueeze(-1)}

    @dacergnn.compile
    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = x
            g.apply_edges(self.attention)
            g.edata["m"] = edge_softmax(g, g.edata["score"]) * g.edata["hs"]
            g.update_all(fn.copy_e("m", "m"), fn.sum("m", "out"))
            return (g.ndata["out"] + self.bias).flatten(1)


class HGT(nn.Module):
    """Computes the heterogeneous graph transformer: attention and messages by relation, the rest by node type."""

    def __init__(self, channels: int, node_types: int, relations: int, heads: int = 1) -> None:
        super().__init__()
        dim = channels // heads
        self.keys = TypedLinear(channels, channels, node_types)
        self.queries = TypedLinear(channels, channels, node_types)
        self.values = TypedLinear(channels, channels, node_types)
        self.out = TypedLinear(channels, channels, node_types)
        self.attention = nn.Parameter(torch.randn(relations, heads, dim, dim))
        self.messages = nn.Parameter(torch.randn(relations, heads, dim, dim))
        self.prior = nn.Parameter(torch.ones(relations, heads))
        self.skip = nn.Parameter(torch.ones(node_types))

    def attend(self, edges: Any) -> dict[str, Tensor]:
        relation = edges.data[dgl.ETYPE]
        key = (edges.src["k"].unsqueeze(2) @ self.attention[relation]).squeeze(2)
        score = (key * edges.dst["q"]).sum(-1) * self.prior[relation] * key.shape[-1] ** -0.5
        value = (edges.src["v"].unsqueeze(2) @ self.messages[relation]).squeeze(2)
        return {"score": score.unsqueeze(-1), "value": value}

    @dacergnn.compile
    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            kind, shape = g.ndata[dgl.NTYPE], (-1, *self.messages.shape[1:3])
            g.ndata["k"] = self.keys(x, kind).view(shape)
            g.ndata["q"] = self.queries(x, kind).view(shape)
            g.ndata["v"] = self.values(x, kind).view(shape)
            g.apply_edges(self.attend)
            g.edata["a"] = edge_softmax(g, g.edata["score"])
            g.update_all(lambda edges: {"m": edges.data["a"] * edges.data["value"]}, fn.sum("m", "out"))
            gate = torch.sigmoid(self.skip[kind]).unsqueeze(1)
            return x + gate * (self.out(g.ndata["out"].flatten(1), kind) - x)


def typed_graph(nodes: int, edges: int, node_types: int, relations: int) -> Any:
    """Makes a random graph with types of nodes and edges as `dgl.to_homogeneous` sets them."""
    g = dgl.graph((torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))), num_nodes=nodes)
    g.ndata[dgl.NTYPE] = torch.randint(0, node_types, (nodes,))
    g.edata[dgl.ETYPE] = torch.randint(0, relations, (edges,))
    return g


def main() -> None:
    """Runs each layer compiled and as it is, and prints the largest difference of the results."""
    g, x = typed_graph(500, 4000, 3, 8), torch.randn(500, 32)
    for layer, *rest in ((RGCN(32, 16, 8), torch.rand(4000)), (RGAT(32, 16, 8, heads=2),), (HGT(32, 3, 8, heads=4),)):
        compiled, plain = layer(g, x, *rest), type(layer).forward.__wrapped__(layer, g, x, *rest)  # type: ignore[attr-defined]
        print(f"{type(layer).__name__}: largest difference {(compiled - plain).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
