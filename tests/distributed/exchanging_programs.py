"""Programs whose sources are in several processes, in program form."""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false, reportGeneralTypeIssues=false

from __future__ import annotations

import dacergnn


@dacergnn.compile
def gat(g, x: NS[32], W: ONE[32, 4], q: ONE[4], k: ONE[4]):
    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
        n["of_src"] = dot_prd(n["h"], q)
        n["of_dst"] = dot_prd(n["h"], k)
    for e in g.edges():
        e["power"] = exp(leakyrelu(e.src.of_src + e.dst.of_dst, 0.2))
    for n in g.dst_nodes():
        n["total"] = sum(e["power"] for e in n.incoming_edges())
    for e in g.edges():
        e["att"] = e["power"] / e.dst.total
    for n in g.dst_nodes():
        n["out"] = sum(e["att"] * e.src.h for e in n.incoming_edges())
    return out, att


@dacergnn.compile
def weighted_mean(g, x: NS[4], W: ONE[4, 32], own: ONE[4, 32], w: E):
    for n in g.dst_nodes():
        n["sum"] = sum(e.w * e.src.x for e in n.incoming_edges())
        n["weight"] = sum(e.w * e.w for e in n.incoming_edges())
        n["out"] = tanh(linear(n["sum"] / (1.0 + n["weight"]), W) + linear(n.x, own))
    return out


@dacergnn.compile
def projected(g, x: NS[32], W: R[32, 4], w: E[4]):
    for e in g.edges():
        e["h"] = e.w * linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["out"] = sum(e["h"] for e in n.incoming_edges())
    return out


@dacergnn.compile
def by_end(g, x: NS[32], W: T[32, 4], scale: T):
    for t in g.node_types():
        t["root"] = sqrt(abs(t.scale))
    for n in g.src_nodes():
        n["h"] = tanh(n.x) * root[n.ntype]
    for e in g.edges():
        e["message"] = linear(e.src.h, W[e.dst.ntype])
    for n in g.dst_nodes():
        n["sum"] = sum(e["message"] for e in n.incoming_edges())
        n["out"] = n["sum"] * n["sum"] * root[n.ntype]
    return out


@dacergnn.compile
def largest(g, x: NS[32], W: ONE[32, 4], y: ND[4]):
    for e in g.edges():
        e["h"] = linear(e.src.x - e.dst.x, W)
    for n in g.dst_nodes():
        n["out"] = max(e["h"] for e in n.incoming_edges()) + n.y
    return out


@dacergnn.compile
def of_sources(g, x: NS[32], W: ONE[32, 4]):
    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
    return h
