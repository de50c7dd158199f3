"""Graph attention networks (GAT and GATv2) in program form, with the options of PyG's and DGL's layers.

Arrays that `Config` may name to be cached or computed again (Cached Operator Reordering, table 3): `features` and, of
GATv2, `features_dst`; `score_src` and `score_dst`, the attention of nodes; `score`, whose sign is the mask of the
LeakyReLU; `att`, the weights of edges; `largest` and `total`, what the softmax keeps of a node.

These functions are parsed, never run: names that are no parameters are operators of the program form or constants
bound when a program is made; an array that is bound to None is false in an `if`. Weights stand as torch's linear layers
have them, [out, in].
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations


def softmax_of_scores(g):
    for n in g.dst_nodes():
        n["largest"] = -1e30
        n["total"] = 0.0
    for e in g.edges():
        e.dst["largest"] = max(e.dst["largest"], e["score"])
    for e in g.edges():
        e["power"] = exp(e["score"] - detach(e.dst["largest"]))
        e.dst["total"] += e["power"]
    for e in g.edges():
        e["att"] = e["power"] / e.dst["total"]


def attended(g, heads, channels, residual):
    """Sums over neighbors, weighted by `used`: attention, times factors of dropout, times weights of edges.

    With `residual`, features of the destination are added, times the matrix `res` if there is one.
    """
    for e in g.edges():
        e["used"] = e["att"]
        if kept:
            e["used"] = e["used"] * e.kept
        if edge_weight:
            e["used"] = e["used"] * e.edge_weight
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["used"] * e.src.features
        if residual:
            if res:
                n["own"] = linear(n.x_dst if x_dst else n.x, res.T)
            else:
                n["own"] = n.x_dst if x_dst else n.x
            if res_bias:
                n["own"] = n["own"] + res_bias
            n["out"] = n["out"] + reshape(n["own"], heads, channels)
        if bias:
            n["out"] = n["out"] + bias


def gat(g, x, x_dst, W, W_dst, q, k, edge_attr, W_edge, q_edge, kept, edge_weight, res, res_bias, bias):
    """Computes scores as sums of a number for the source, one for the destination (with k) and one for the edge."""
    for n in g.src_nodes():
        n["features"] = reshape(linear(n.x, W.T), heads, channels)
        n["score_src"] = dot_prd(n["features"], q)
        if k and not (x_dst or W_dst):
            n["score_dst"] = dot_prd(n["features"], k)
    if k and (x_dst or W_dst):
        for n in g.dst_nodes():
            n["features_dst"] = linear(n.x_dst if x_dst else n.x, W_dst.T if W_dst else W.T)
            n["score_dst"] = dot_prd(reshape(n["features_dst"], heads, channels), k)
    for e in g.edges():
        if k:
            e["sum"] = e.src.score_src + e.dst.score_dst
        else:
            e["sum"] = e.src.score_src
        if edge_attr:
            e["features"] = reshape(linear(e.edge_attr, W_edge.T), heads, channels)
            e["sum"] = e["sum"] + dot_prd(e["features"], q_edge)
        e["score"] = leakyrelu(e["sum"], slope)
    softmax_of_scores(g)
    attended(g, heads, channels, residual)
    if with_attention:
        return out, used
    else:
        return out


def gatv2(g, x, x_dst, W, W_bias, W_dst, W_dst_bias, q, edge_attr, W_edge, kept, edge_weight, res, res_bias, bias):
    """Multiplies q with the LeakyReLU of the features of both ends and of the edge; without W_dst, both share W."""
    for n in g.src_nodes():
        if W_bias:
            n["features"] = reshape(linear(n.x, W.T), heads, channels) + W_bias
        else:
            n["features"] = reshape(linear(n.x, W.T), heads, channels)
    if x_dst or W_dst:
        for n in g.dst_nodes():
            if W_dst_bias:
                n["features_dst"] = reshape(linear(n.x_dst if x_dst else n.x, W_dst.T), heads, channels) + W_dst_bias
            elif W_dst:
                n["features_dst"] = reshape(linear(n.x_dst if x_dst else n.x, W_dst.T), heads, channels)
            elif W_bias:
                n["features_dst"] = reshape(linear(n.x_dst, W.T), heads, channels) + W_bias
            else:
                n["features_dst"] = reshape(linear(n.x_dst, W.T), heads, channels)
    if not (x_dst or W_dst):
        for n in g.src_nodes():
            n["features_dst"] = n["features"]
    for e in g.edges():
        if edge_attr:
            e["features"] = reshape(linear(e.edge_attr, W_edge.T), heads, channels)
            e["score"] = dot_prd(leakyrelu(e.src.features + e.dst.features_dst + e["features"], slope), q)
        else:
            e["score"] = dot_prd(leakyrelu(e.src.features + e.dst.features_dst, slope), q)
    softmax_of_scores(g)
    attended(g, heads, channels, residual)
    if with_attention:
        return out, used
    else:
        return out
