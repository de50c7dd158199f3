"""GATv2 applies the nonlinearity between the projections and the query, so attention is dynamic."""

from torch import nn

import dacergnn
from examples.attention import edge_softmax
from examples.training import demonstrate


def gatv2(heads, width, slope=0.2):
    @dacergnn.compile
    def layer(g, x, W_src, W_dst, a):
        for n in g.src_nodes():
            n["l"] = reshape(linear(n.x, W_src), heads, width)
        for n in g.dst_nodes():
            n["r"] = reshape(linear(n.x, W_dst), heads, width)
        for e in g.edges():
            e["att"] = dot_prd(leakyrelu(e.src.l + e.dst.r, slope), a)
        edge_softmax(g, "att")
        for n in g.dst_nodes():
            n["out"] = sum(e["att"] * e.src.l for e in n.incoming_edges())
        return out

    return layer


class GATv2(nn.Module):
    def __init__(self, graph, channels, classes, heads=2):
        super().__init__()
        matrix = (channels, heads * classes)
        self.conv = gatv2(heads, classes).module(graph, W_src=matrix, W_dst=matrix, a=(heads, classes))

    def forward(self, graph, x):
        return self.conv(graph, x).mean(1)


make = GATv2


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
