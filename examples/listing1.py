"""Writes the attention of a single-headed RGAT as Hector's Listing 1 does, and sums the weighted messages."""

import dacergnn
from examples.training import demonstrate


def edge_softmax(g):
    for e in g.edges():
        e["att"] = exp(e["att"])
    for n in g.dst_nodes():
        n["att_sum"] = 0.0
        for e in n.incoming_edges():
            n["att_sum"] += e["att"]
    for e in g.edges():
        e["att"] /= e.dst["att_sum"]


@dacergnn.compile
def layer(g, feature, W, w_s, w_t):
    for e in g.edges():
        hs = e.src.feature * W[e.etype]
        atts = dot_prd(hs, w_s[e.etype])
        ht = e.dst.feature * W[e.etype]
        attt = dot_prd(ht, w_t[e.etype])
        e["att"] = leakyrelu(atts + attt)
    edge_softmax(g)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["att"] * e["hs"]
    return out


def make(graph, channels, classes):
    return layer.module(graph, W=(channels, classes), w_s=(classes,), w_t=(classes,))


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
