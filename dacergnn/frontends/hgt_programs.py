"""Modes of HGT beyond the plain program: biases, activation, projections from outside, residuals.

These functions are parsed, never run: names that are no parameters are operators of the program form or
constants bound when a program is made.
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations

from dacergnn.frontends.programs import edge_softmax


def attend(g, scale):
    for e in g.edges():
        e["att"] = dot_prd(linear(e.src.k, W_att[e.etype]), e.dst.q) * pri[e.etype] * scale
        e["msg"] = linear(e.src.v, W_msg[e.etype])
    edge_softmax(g, "att")
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["agg"] += e["att"] * e["msg"]


def hgt_attention(g, k, q, v, W_att, W_msg, pri):
    """Attends over projections that are made elsewhere; returns the aggregate of each head."""
    attend(g, scale)
    return agg


def hgt_biased(g, x, W_k, W_q, W_v, k_bias, q_bias, v_bias, W_att, W_msg, pri, A, a_bias, skip):
    """Takes weights as torch's linear layers have them, one [out, in] matrix for each node type."""
    for n in g.src_nodes():
        n["k"] = reshape(linear(n.x, W_k[n.ntype].T) + k_bias[n.ntype], heads, dim)
        n["v"] = reshape(linear(n.x, W_v[n.ntype].T) + v_bias[n.ntype], heads, dim)
    for n in g.dst_nodes():
        n["q"] = reshape(linear(n.x, W_q[n.ntype].T) + q_bias[n.ntype], heads, dim)
    attend(g, scale)
    for n in g.dst_nodes():
        n["out"] = linear(gelu(reshape(n.agg, width)), A[n.ntype].T) + a_bias[n.ntype]
        if skip:
            gate = sigmoid(skip[n.ntype])
            n["out"] = gate * n["out"] + (1.0 - gate) * n.x
    return out


def hgt_residual(g, x, W_k, W_q, W_v, W_att, W_msg, pri, A, skip, residual):
    """Returns the products with A; if `gated`, mixes them with the input through the residual matrix."""
    for n in g.src_nodes():
        n["k"] = reshape(linear(n.x, W_k[n.ntype]), heads, dim)
        n["v"] = reshape(linear(n.x, W_v[n.ntype]), heads, dim)
    for n in g.dst_nodes():
        n["q"] = reshape(linear(n.x, W_q[n.ntype]), heads, dim)
    attend(g, scale)
    for n in g.dst_nodes():
        n["out"] = linear(reshape(n.agg, width), A[n.ntype])
        if gated:
            gate = sigmoid(skip[n.ntype])
            n["out"] = gate * n["out"] + (1.0 - gate) * linear(n.x, residual)
    return out
