"""Relations with a layer each, summed over the relations into a node type.

This function is parsed, never run: names that are no parameters are operators of the program form or constants
bound when a program is made; an array that is bound to None is false in an `if`.
"""
# ruff: noqa: F821, ANN
# pyright: basic, reportUndefinedVariable=false, reportUnusedExpression=false

from __future__ import annotations

from dacergnn.frontends.rgat_programs import pair_softmax


def hetero(g, x, W, W_bias, W_key, W_key_bias, W_dst, W_dst_bias, q, k, attends, norm, root, bias, share):
    """Reduces messages over (destination, type) by `reduce`; each edge counts `norm` times.

    Scores of relations that attend are sums of the products of both ends with q and k. Without k, they are products of
    q with the sum of both ends; without q, products of a key of the source with the destination. Relations that do not
    attend have 0 in `attends`, the others 0 in `norm`. `share` is 1 over the number of relations into a node type.
    Weights stand as torch's linear layers have them, [out, in].
    """
    if reduce == "attention":
        for e in g.edges():
            e["hs"] = reshape(linear(e.src.x, W[e.etype].T), heads, channels)
            if W_bias:
                e["hs"] = e["hs"] + W_bias[e.etype]
            if W_dst:
                e["ht"] = reshape(linear(e.dst.x, W_dst[e.etype].T), heads, channels)
            else:
                e["ht"] = reshape(linear(e.dst.x, W[e.etype].T), heads, channels)
            if W_dst_bias:
                e["ht"] = e["ht"] + W_dst_bias[e.etype]
            if W_key:
                e["key"] = reshape(linear(e.src.x, W_key[e.etype].T), heads, channels)
                if W_key_bias:
                    e["key"] = e["key"] + W_key_bias[e.etype]
                e["att"] = scale * dot_prd(e["key"], e["ht"])
            elif k:
                e["att"] = leakyrelu(dot_prd(e["hs"], q[e.etype]) + dot_prd(e["ht"], k[e.etype]), slope)
            else:
                e["att"] = dot_prd(leakyrelu(e["hs"] + e["ht"], slope), q[e.etype])
        pair_softmax(g, "att")
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                if norm:
                    n["sum"] += (e["att"] * attends[e.etype] + e.norm) * e["hs"]
                else:
                    n["sum"] += e["att"] * e["hs"]
            n["out"] = reshape(n["sum"], width)
    if reduce == "sum":
        for e in g.edges():
            e["msg"] = linear(e.src.x, W[e.etype].T)
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                if norm:
                    n["out"] += e.norm * e["msg"]
                else:
                    n["out"] += e["msg"]
    if reduce == "max" or reduce == "min":
        for e in g.edges():
            if norm:
                e["msg"] = e.norm * e.src.x
            else:
                e["msg"] = e.src.x
        for p in g.dst_pairs():
            for e in p.incoming_edges():
                if reduce == "max":
                    p["h"] = max(p["h"], e["msg"])
                else:
                    p["h"] = min(p["h"], e["msg"])
            p.dst["out"] += linear(p["h"], W[p.etype].T)
    for n in g.dst_nodes():
        if root:
            n["out"] = n["out"] + linear(n.x, root[n.ntype].T)
        if bias:
            n["out"] = n["out"] + bias[n.ntype]
        if share:
            n["out"] = n["out"] * share[n.ntype]
    return out
