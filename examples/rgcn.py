"""RGCN takes the mean over the neighbours of each relation, with a matrix per relation."""

from torch import nn

import dacergnn
from examples.training import demonstrate


@dacergnn.compile
def layer(g, x, W, norm, root, bias):
    for n in g.dst_nodes():
        n["h"] = sum(e.norm * linear(e.src.x, W[e.etype]) for e in n.incoming_edges())
        n["out"] = n["h"] + linear(n.x, root) + bias
    return out


class RGCN(nn.Module):
    def __init__(self, graph, channels, classes):
        super().__init__()
        self.conv = layer.module(graph, W=(channels, classes), root=(channels, classes), bias=classes)

    def forward(self, graph, x):
        return self.conv(graph, x, norm=graph.pair_mean_weights(x.dtype))


make = RGCN


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
