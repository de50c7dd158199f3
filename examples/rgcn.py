"""RGCN: the mean over the neighbours of each relation, a matrix per relation."""

import dacergnn
from examples.training import demonstrate


@dacergnn.compile
def layer(g, x, W, W_self, bias):
    for p in g.dst_pairs():
        p["degree"] = sum(1.0 for e in p.incoming_edges())
    for n in g.dst_nodes():
        n["h"] = sum(linear(e.src.x, W[e.etype]) / e.dst_pair["degree"] for e in n.incoming_edges())
        n["out"] = n["h"] + linear(n.x, W_self) + bias
    return out


def make(graph, channels, classes):
    return layer.module(graph, W=(channels, classes), W_self=(channels, classes), bias=classes)


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
