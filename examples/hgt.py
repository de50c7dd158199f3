"""HGT has projections by node type, attention and messages by relation, and a gated residual by node type."""

from torch import nn

import dacergnn
from examples.attention import edge_softmax
from examples.training import demonstrate


def hgt(heads, width):
    scale, size = width**-0.5, heads * width

    @dacergnn.compile
    def layer(g, x, W_k, W_q, W_v, W_att, W_msg, pri, A, skip):
        for n in g.src_nodes():
            n["k"] = reshape(linear(n.x, W_k[n.ntype]), heads, width)
            n["v"] = reshape(linear(n.x, W_v[n.ntype]), heads, width)
        for n in g.dst_nodes():
            n["q"] = reshape(linear(n.x, W_q[n.ntype]), heads, width)
        for e in g.edges():
            e["att"] = dot_prd(linear(e.src.k, W_att[e.etype]), e.dst.q) * pri[e.etype] * scale
        edge_softmax(g, "att")
        for n in g.dst_nodes():
            n["agg"] = sum(e["att"] * linear(e.src.v, W_msg[e.etype]) for e in n.incoming_edges())
            n["out"] = n.x + sigmoid(skip[n.ntype]) * (linear(reshape(n.agg, size), A[n.ntype]) - n.x)
        return out

    return layer


class HGT(nn.Module):
    def __init__(self, graph, channels, classes, heads=2):
        super().__init__()
        width, square = channels // heads, (channels, channels)
        self.conv = hgt(heads, width).module(
            graph, W_k=square, W_q=square, W_v=square, A=square, skip=(), pri=heads,
            W_att=(heads, width, width), W_msg=(heads, width, width),
        )  # fmt: skip
        self.classify = nn.Linear(channels, classes)

    def forward(self, graph, x):
        return self.classify(self.conv(graph, x))


make = HGT


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
