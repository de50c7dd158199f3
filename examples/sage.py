"""GraphSAGE takes the mean of all neighbours, for all relations together."""

import dacergnn
from examples.training import demonstrate


@dacergnn.compile
def layer(g, x, W, W_self, bias):
    for n in g.dst_nodes():
        n["mean"] = mean(e.src.x for e in n.incoming_edges())
        n["out"] = linear(n["mean"], W) + linear(n.x, W_self) + bias
    return out


def make(graph, channels, classes):
    return layer.module(graph, W=(channels, classes), W_self=(channels, classes), bias=classes)


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
