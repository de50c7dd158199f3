"""Four more layers in program form, beyond the models of the front ends.

These functions are parsed, never run: names that are no parameters are operators of the program form.
"""
# ruff: noqa: F821, ANN

from __future__ import annotations

from dacergnn.frontends.programs import edge_softmax


def gcn(g, x, W, c, bias):
    """Messages between nodes of degrees 1 / c^2, as the paper has them: everything on the edges."""
    for e in g.edges():
        e["norm"] = e.src.c * e.dst.c
        e["msg"] = linear(e.src.x, W)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["norm"] * e["msg"]
        n["out"] = n["out"] + bias
    return out


def sage(g, x, W_l, W_r, bias):
    """GraphSAGE with the mean of the neighbours' transformed rows."""
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["degree"] += 1.0
            n["sum"] += linear(e.src.x, W_l)
        n["out"] = n["sum"] / max(n["degree"], 1.0) + linear(n.x, W_r) + bias
    return out


def gated(g, x, W, Q, a, gate, gate_bias, A):
    """Additive attention with a query by the type of the destination, messages gated by relation, and their maximum."""
    for e in g.edges():
        e["h"] = linear(e.src.x, W[e.etype])
        e["q"] = linear(e.dst.x, Q[e.dst.ntype])
        e["score"] = dot_prd(leakyrelu(e["h"] + e["q"], 0.2), a[e.etype])
        e["gate"] = sigmoid(dot_prd(e["h"], gate[e.etype]) + gate_bias[e.etype])
        e["msg"] = e["gate"] * e["h"]
    edge_softmax(g, "score")
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["mean"] += e["score"] * e["msg"]
            n["top"] = max(n["top"], e["msg"])
        n["out"] = linear(concat(n["mean"], n["top"]), A)
    return out


def edge_matrices(g, x, z, N, c, A, b, bias):
    """Edge-conditioned convolution: a network makes a matrix of each edge; the mean of the products."""
    for e in g.edges():
        e["h"] = relu(linear(e.z, N.T) + c)
        e["W"] = linear(e["h"], A.T) + b
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["degree"] += 1.0
            n["sum"] += sum_heads(e.src.x * reshape(e["W"], 32, 32))
        n["out"] = n["sum"] / max(n["degree"], 1.0) + bias
    return out
