"""Defines softmax over the edges that end at the same row, as helper functions that are inlined into programs."""


def edge_softmax(g, name):
    """Computes softmax over the incoming edges of each destination, all relations together."""
    for n in g.dst_nodes():
        n["largest"] = max(e[name] for e in n.incoming_edges())
    for e in g.edges():
        e[name] = exp(e[name] - detach(e.dst["largest"]))
    for n in g.dst_nodes():
        n["total"] = sum(e[name] for e in n.incoming_edges())
    for e in g.edges():
        e[name] = e[name] / e.dst["total"]


def relation_softmax(g, name):
    """Computes softmax over the incoming edges of each destination, one relation at a time."""
    for p in g.dst_pairs():
        p["largest"] = max(e[name] for e in p.incoming_edges())
    for e in g.edges():
        e[name] = exp(e[name] - detach(e.dst_pair["largest"]))
    for p in g.dst_pairs():
        p["total"] = sum(e[name] for e in p.incoming_edges())
    for e in g.edges():
        e[name] = e[name] / e.dst_pair["total"]
