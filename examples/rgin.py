"""R-GIN sums neighbours, which are transformed by relation, and applies a perceptron to the sums."""

import dacergnn
from examples.training import demonstrate


@dacergnn.compile
def layer(g, x, eps, W, W_self, W_1, b_1, W_2, b_2):
    for n in g.dst_nodes():
        n["sum"] = sum(linear(e.src.x, W[e.etype]) for e in n.incoming_edges())
        n["h"] = (1.0 + eps) * linear(n.x, W_self) + n["sum"]
        n["out"] = linear(relu(linear(relu(n["h"]), W_1) + b_1), W_2) + b_2
    return out


def make(graph, channels, classes):
    width = 2 * classes
    return layer.module(
        graph, eps=(), W=(channels, width), W_self=(channels, width),
        W_1=(width, width), b_1=width, W_2=(width, classes), b_2=classes,
    )  # fmt: skip


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
