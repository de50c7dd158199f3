"""RGCN, RGAT and HGT in program form.

These functions are parsed, never run: names that are no parameters are operators of the program form or
constants bound when a program is made; an array that is bound to None is false in an `if`.
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations


def edge_softmax(g, name):
    for n in g.dst_nodes():
        n["largest"] = -1e30
        n["total"] = 0.0
    for e in g.edges():
        e.dst["largest"] = max(e.dst["largest"], e[name])
    for e in g.edges():
        e[name] = exp(e[name] - detach(e.dst["largest"]))
        e.dst["total"] += e[name]
    for e in g.edges():
        e[name] = e[name] / e.dst["total"]


def rgcn(g, x, W, norm, root, bias):
    for e in g.edges():
        e["msg"] = linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            if norm:
                n["out"] += e.norm * e["msg"]
            else:
                n["out"] += e["msg"]
        if root:
            n["out"] = n["out"] + linear(n.x, root)
        if bias:
            n["out"] = n["out"] + bias
    return out


def rgat(g, x, W, q, k, bias):
    for e in g.edges():
        e["hs"] = reshape(linear(e.src.x, W[e.etype]), heads, channels)
        e["ht"] = reshape(linear(e.dst.x, W[e.etype]), heads, channels)
        e["att"] = leakyrelu(dot_prd(e["ht"], q) + dot_prd(e["hs"], k), slope)
    edge_softmax(g, "att")
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["att"] * e["hs"]
        if bias:
            n["out"] = n["out"] + bias
    return out


def hgt(g, x, W_k, W_q, W_v, W_att, W_msg, pri, A, skip):
    for n in g.src_nodes():
        n["k"] = reshape(linear(n.x, W_k[n.ntype]), heads, dim)
        n["v"] = reshape(linear(n.x, W_v[n.ntype]), heads, dim)
    for n in g.dst_nodes():
        n["q"] = reshape(linear(n.x, W_q[n.ntype]), heads, dim)
    for e in g.edges():
        e["att"] = dot_prd(linear(e.src.k, W_att[e.etype]), e.dst.q) * pri[e.etype] * scale
    edge_softmax(g, "att")
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["agg"] += e["att"] * linear(e.src.v, W_msg[e.etype])
        n["out"] = n.x + sigmoid(skip[n.ntype]) * (linear(reshape(n.agg, width), A[n.ntype]) - n.x)
    return out
