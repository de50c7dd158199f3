"""HAN computes attention over the neighbours of each relation, then over relations.

A first program returns a row for each pair of destination and relation. A few dense operations of torch compute the
weights of relations. A second program sums the rows of each destination.
"""

import torch
from torch import nn

import dacergnn
from examples.attention import relation_softmax
from examples.training import demonstrate


@dacergnn.compile
def neighbours(g, x, W, a_src, a_dst):
    for n in g.nodes():
        n["h"] = linear(n.x, W[n.ntype])
    for e in g.edges():
        e["att"] = leakyrelu(dot_prd(e.src.h, a_src[e.etype]) + dot_prd(e.dst.h, a_dst[e.etype]), 0.2)
    relation_softmax(g, "att")
    for p in g.dst_pairs():
        p["z"] = elu(sum(e["att"] * e.src.h for e in p.incoming_edges()))
    return z


@dacergnn.compile
def combine(g, z, beta):
    for p in g.dst_pairs():
        p.dst["out"] += beta[p.etype] * p.z
    return out


class HAN(nn.Module):
    def __init__(self, graph, channels, classes):
        super().__init__()
        self.conv = neighbours.module(graph, W=(channels, classes), a_src=classes, a_dst=classes)
        self.norm = nn.LayerNorm(classes)
        self.project, self.query = nn.Linear(classes, classes), nn.Linear(classes, 1, bias=False)

    def forward(self, graph, x):
        z = self.conv(graph, x)
        score = self.query(self.project(z).tanh()).squeeze(1)
        relation, count = graph.index("V", "etype").long(), graph.size("R")
        rows = torch.bincount(relation, minlength=count).clamp(min=1)
        means = score.new_zeros(count).index_add(0, relation, score) / rows
        return self.norm(combine(graph, z, means.softmax(0)))


make = HAN


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
