"""Modes of RGAT beyond the plain program: heads that mix, products, edge features, cardinality preservation.

These functions are parsed, never run: names that are no parameters are operators of the program form or
constants bound when a program is made.
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations

from dacergnn.frontends.programs import edge_softmax


def pair_softmax(g, name):
    for p in g.dst_pairs():
        p["largest"] = -1e30
        p["total"] = 0.0
    for e in g.edges():
        e.dst_pair["largest"] = max(e.dst_pair["largest"], e[name])
    for e in g.edges():
        e[name] = exp(e[name] - detach(e.dst_pair["largest"]))
        e.dst_pair["total"] += e[name]
    for e in g.edges():
        e[name] = e[name] / e.dst_pair["total"]


def rgat_modes(g, x, W, q, k, edge_attr, lin_edge, edge_key, kept, copies, w, degree, l1, b1, l2, b2, bias):
    """Computes scores with one value for each of `rows` = heads x dim queries, and messages with `channels` for each.

    With `with_attention`, the weights of edges are a second result, as softmax returns them before any other use.
    """
    for e in g.edges():
        e["hs"] = reshape(linear(e.src.x, W[e.etype]), heads, channels)
        e["ht"] = reshape(linear(e.dst.x, W[e.etype]), width)
        e["query"] = linear(e["ht"], q)
        e["key"] = linear(reshape(e["hs"], width), k)
        if edge_attr:
            e["edge"] = linear(linear(e.edge_attr, lin_edge.T), edge_key)
        if additive:
            if edge_attr:
                e["att"] = leakyrelu(e["query"] + e["key"] + e["edge"], slope)
            else:
                e["att"] = leakyrelu(e["query"] + e["key"], slope)
        else:
            if edge_attr:
                e["att"] = e["query"] * e["key"] * e["edge"]
            else:
                e["att"] = e["query"] * e["key"]
    if within_relation:
        pair_softmax(g, "att")
    else:
        edge_softmax(g, "att")
    for e in g.edges():
        if with_attention:
            e["weights"] = e["att"]
        if mod == "f-additive":
            e["att"] = e["att"] + (e["att"] > 0.0)
        if mod == "f-scaled":
            e["att"] = e["att"] * e.dst.degree
        if kept:
            e["att"] = e["att"] * e.kept
        if dim > 1:
            e["part"] = reshape(linear(e["hs"], copies), rows, channels)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            if mod == "additive":
                n["out"] += e["att"] * e[message] + w * e[message]
            else:
                n["out"] += e["att"] * e[message]
        if mod == "scaled":
            n["size"] = linear(relu(n.degree * l1 + b1), l2) + b2
            n["out"] = n["out"] * reshape(n["size"], rows, channels)
        if bias:
            n["out"] = n["out"] + bias
    if with_attention:
        return out, weights
    else:
        return out
