"""Convolutions over the edges of one type: GCN, GraphSAGE and GIN.

These functions are parsed, never run: names that are no parameters are operators of the program form or constants
bound when a program is made; an array that is bound to None is false in an `if`. With ``transposed``, weights stand as
torch's linear layers have them, [out, in].
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations


def gcn(g, x, W, norm, left, right, bias):
    """Sums messages, each multiplied with ``norm``, or with ``left`` of its source and ``right`` of its destination.

    Without W, it sums features.
    """
    if W:
        for n in g.src_nodes():
            if transposed:
                n["h"] = linear(n.x, W.T)
            else:
                n["h"] = linear(n.x, W)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            if norm:
                n["out"] += e.norm * e.src[features]
            elif left:
                n["out"] += e.src.left * e.src[features]
            else:
                n["out"] += e.src[features]
        if right:
            n["out"] = n["out"] * n.right
        if bias:
            n["out"] = n["out"] + bias
    return out


def reduce_messages(g, reduce):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            if reduce == "sum":
                n["found"] += e["msg"]
            elif reduce == "max":
                n["found"] = max(n["found"], e["msg"])
            else:
                n["found"] = min(n["found"], e["msg"])


def sage(g, x, x_own, pool, pool_bias, W, norm, root, bias):
    """Reduces over neighbours, whose features pass through a linear layer and a ReLU if there is ``pool``."""
    if pool:
        for n in g.src_nodes():
            if pool_bias:
                n["pooled"] = relu(linear(n.x, pool.T) + pool_bias)
            else:
                n["pooled"] = relu(linear(n.x, pool.T))
    if reduce == "sum":
        for n in g.src_nodes():
            n["h"] = linear(n[features], W.T)
    for e in g.edges():
        if norm:
            e["msg"] = e.norm * e.src[features if reduce != "sum" else "h"]
        else:
            e["msg"] = e.src[features if reduce != "sum" else "h"]
    reduce_messages(g, reduce)
    for n in g.dst_nodes():
        if reduce == "sum":
            n["out"] = n["found"]
        else:
            n["out"] = linear(n["found"], W.T)
        if root and x_own:
            n["out"] = n["out"] + linear(n.x_own, root.T)
        elif root:
            n["out"] = n["out"] + linear(n.x, root.T)
        if bias:
            n["out"] = n["out"] + bias
        if unit:
            n["out"] = n["out"] / sqrt(clamp_min(sum(n["out"] * n["out"]), 1e-24))
    return out


def gin(g, x, x_own, eps, W, bias, norm):
    """Adds reduced features of neighbours to (1 + eps) times the own features; then a linear layer, if there is W.

    With ``transform_first``, the linear layer comes before the sums.
    """
    if transform_first:
        for n in g.src_nodes():
            n["h"] = linear(n.x, W.T)
        if x_own:
            for n in g.dst_nodes():
                n["h_own"] = linear(n.x_own, W.T)
    for e in g.edges():
        if norm:
            e["msg"] = e.norm * e.src[features]
        else:
            e["msg"] = e.src[features]
    reduce_messages(g, reduce)
    for n in g.dst_nodes():
        if own:
            n["out"] = n["found"] + (1.0 + eps) * n[own]
        else:
            n["out"] = n["found"]
        if W and not transform_first:
            n["out"] = linear(n["out"], W.T)
        if bias:
            n["out"] = n["out"] + bias
    return out
