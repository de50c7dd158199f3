"""CompGCN composes neighbours with the embedding of the relation, and transforms the embedding as well.

The composition is a constant of the program; the code of other compositions is not parsed.
"""

from torch import nn

import dacergnn
from examples.training import demonstrate


def compgcn(composition):
    @dacergnn.compile
    def layer(g, x, z, W, W_self, W_rel, loop):
        for e in g.edges():
            if composition == "subtraction":
                e["message"] = linear(e.src.x - z[e.etype], W)
            else:
                e["message"] = linear(e.src.x * z[e.etype], W)
        for n in g.dst_nodes():
            n["out"] = mean(e["message"] for e in n.incoming_edges())
            if composition == "subtraction":
                n["out"] += linear(n.x - loop, W_self)
            else:
                n["out"] += linear(n.x * loop, W_self)
        for r in g.edge_types():
            r["z_next"] = linear(r.z, W_rel)
        return out, z_next

    return layer


class CompGCN(nn.Module):
    def __init__(self, graph, channels, classes, composition="subtraction"):
        super().__init__()
        matrix = (channels, channels)
        arrays = {"W": matrix, "W_self": matrix, "W_rel": matrix, "loop": channels}
        self.first = compgcn(composition).module(graph, z=channels, **arrays)
        arrays = {"W": (channels, classes), "W_self": (channels, classes), "W_rel": matrix, "loop": channels}
        self.second = compgcn(composition).module(graph, **arrays)  # takes z from the first

    def forward(self, graph, x):
        x, z = self.first(graph, x)
        return self.second(graph, x.relu(), z)[0]


class CompGCNMultiplication(CompGCN):
    def __init__(self, graph, channels, classes):
        super().__init__(graph, channels, classes, "multiplication")


make, make_multiplication = CompGCN, CompGCNMultiplication


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
