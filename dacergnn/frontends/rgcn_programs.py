"""Modes of RGCN beyond the plain program: blocks, featureless nodes, extreme values, separate destinations.

These functions are parsed, never run: names that are no parameters are operators of the program form or
constants bound when a program is made.
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations


def add_own(g, in_channels, blocks, width):
    """Root and bias; with blocks, out has one row of `width` features for each of them."""
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


def rgcn_modes(g, x, x_own, W, norm, root, bias):
    """Sums or means; a block-diagonal W holds one matrix for each block, x and out one part for each."""
    for e in g.edges():
        e["msg"] = linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            if norm:
                n["out"] += e.norm * e["msg"]
            else:
                n["out"] += e["msg"]
    add_own(g, in_channels, blocks, width)
    return out


def rgcn_featureless(g, W, norm, root, bias):
    """The features of a source are the unit vector of its id: its message is a row of W."""
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            if norm:
                n["out"] += e.norm * W[e.etype, e.src]
            else:
                n["out"] += W[e.etype, e.src]
    for n in g.dst_nodes():
        if root:
            n["out"] = n["out"] + n.root
        if bias:
            n["out"] = n["out"] + bias
    return out


def rgcn_extreme(g, x, x_own, W, root, bias):
    """The largest or smallest feature over the edges of a (destination, type) pair, then the typed linear."""
    for p in g.dst_pairs():
        for e in p.incoming_edges():
            if largest:
                p["h"] = max(p["h"], e.src.x)
            else:
                p["h"] = min(p["h"], e.src.x)
        p.dst["out"] += linear(p["h"], W[p.etype])
    add_own(g, in_channels, blocks, width)
    return out


def rgcn_featureless_extreme(g, W, root, bias):
    for p in g.dst_pairs():
        for e in p.incoming_edges():
            if largest:
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
