"""Modes of RGCN beyond the plain program: blocks, featureless nodes, maxima, separate destinations.

These functions are parsed, never run: names that are no parameters are operators of the program form or
constants bound when a program is made.
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations


def rgcn_modes(g, x, x_own, W, norm, root, bias):
    """Reduces over (destination, type) by `reduce`; with blocks, x and out hold one row for each of them."""
    if reduce == "sum":
        for e in g.edges():
            e["msg"] = linear(e.src.x, W[e.etype])
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                if norm:
                    n["out"] += e.norm * e["msg"]
                else:
                    n["out"] += e["msg"]
    else:
        for p in g.dst_pairs():
            for e in p.incoming_edges():
                if reduce == "max":
                    p["h"] = max(p["h"], e.src.x)
                else:
                    p["h"] = min(p["h"], e.src.x)
            p.dst["out"] += linear(p["h"], W[p.etype])
    for n in g.dst_nodes():
        if root:
            if x_own:
                n["own"] = linear(n.x_own, root)
            else:
                n["own"] = linear(reshape(n.x, in_channels), root)
            if blocks:
                n["out"] = n["out"] + reshape(n["own"], blocks, width)
            else:
                n["out"] = n["out"] + n["own"]
        if bias:
            n["out"] = n["out"] + bias
    return out


def rgcn_featureless(g, W, norm, root, bias):
    """Takes the unit vector of a source's id as its features, so that its message is a row of W."""
    if reduce == "sum":
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                if norm:
                    n["out"] += e.norm * W[e.etype, e.src]
                else:
                    n["out"] += W[e.etype, e.src]
    else:
        for p in g.dst_pairs():
            for e in p.incoming_edges():
                if reduce == "max":
                    p["h"] = max(p["h"], W[e.etype, e.src])
                else:
                    p["h"] = min(p["h"], W[e.etype, e.src])
            p.dst["out"] += p["h"]
    for n in g.dst_nodes():
        if root:
            n["out"] = n["out"] + n.root
        if bias:
            n["out"] = n["out"] + bias
    return out
