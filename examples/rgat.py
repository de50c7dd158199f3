"""RGAT has several heads here, which are an axis of the rows and are averaged at the end."""

from torch import nn

import dacergnn
from examples.attention import edge_softmax
from examples.training import demonstrate


def rgat(heads, width, slope=0.2):
    @dacergnn.compile
    def layer(g, x, W, q, k, bias):
        for e in g.edges():
            e["hs"] = reshape(linear(e.src.x, W[e.etype]), heads, width)
            e["ht"] = reshape(linear(e.dst.x, W[e.etype]), heads, width)
            e["att"] = leakyrelu(dot_prd(e["ht"], q) + dot_prd(e["hs"], k), slope)
        edge_softmax(g, "att")
        for n in g.dst_nodes():
            n["out"] = sum(e["att"] * e["hs"] for e in n.incoming_edges()) + bias
        return out

    return layer


class RGAT(nn.Module):
    def __init__(self, graph, channels, classes, heads=2):
        super().__init__()
        row = (heads, classes)
        self.conv = rgat(heads, classes).module(graph, W=(channels, heads * classes), q=row, k=row, bias=row)

    def forward(self, graph, x):
        return self.conv(graph, x).mean(1)


make = RGAT


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
