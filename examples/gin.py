"""GIN applies a perceptron of two layers to the sum of a node and its neighbours; eps is learned."""

import dacergnn
from examples.training import demonstrate


@dacergnn.compile
def layer(g, x, eps, W_1, b_1, W_2, b_2):
    for n in g.dst_nodes():
        n["sum"] = (1.0 + eps) * n.x + sum(e.src.x for e in n.incoming_edges())
        n["hidden"] = relu(linear(n["sum"], W_1) + b_1)
        n["out"] = linear(n["hidden"], W_2) + b_2
    return out


def make(graph, channels, classes):
    width = 2 * classes
    return layer.module(graph, eps=(), W_1=(channels, width), b_1=width, W_2=(width, classes), b_2=classes)


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
