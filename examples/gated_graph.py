"""A relational gated graph layer passes messages by relation through the gates of a GRU, a few times in a row."""

from torch import nn

import dacergnn
from examples.training import demonstrate


def gated(x, m, W, U, b):
    return linear(m, W) + linear(x, U) + b


@dacergnn.compile
def step(g, h, W, W_r, U_r, b_r, W_z, U_z, b_z, W_n, U_n, b_n):
    for n in g.nodes():
        m = sum(linear(e.src.h, W[e.etype]) for e in n.incoming_edges())
        r = sigmoid(gated(n.h, m, W_r, U_r, b_r))
        z = sigmoid(gated(n.h, m, W_z, U_z, b_z))
        candidate = tanh(gated(r * n.h, m, W_n, U_n, b_n))
        n["out"] = (1.0 - z) * candidate + z * n.h
    return out


class GatedGraph(nn.Module):
    def __init__(self, graph, channels, classes, steps=2):
        super().__init__()
        names = [f"{letter}_{gate}" for letter in "WU" for gate in "rzn"]
        square = dict.fromkeys(["W", *names], (channels, channels))
        self.step = step.module(graph, **square, **dict.fromkeys(["b_r", "b_z", "b_n"], channels))
        self.classify, self.steps = nn.Linear(channels, classes), steps

    def forward(self, graph, x):
        for _ in range(self.steps):
            x = self.step(graph, x)
        return self.classify(x)


make = GatedGraph


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
