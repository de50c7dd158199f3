"""Programs for tests of `dacergnn.compile`: those of the front ends, one of two results; their graph and inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import dacergnn
from examples.attention import edge_softmax
from tests.modules.layers import hetero_graph, weighted

GRAPH = hetero_graph()
SRC, DST, ETYPE = (GRAPH.index("E", path).long() for path in ("src", "dst", "etype"))
NTYPE = GRAPH.index("NS", "ntype").long()
ND = GRAPH.size("ND")
HEADS, SLOPE = 2, 0.2  # read by programs


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


def check(found: Any, expected: Any, inputs: list[Tensor]) -> None:
    """Values and gradients agree."""
    found, expected = (v if isinstance(v, tuple) else (v,) for v in (found, expected))
    assert len(found) == len(expected)
    total, other = (sum(weighted(v) for v in values) for values in (found, expected))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    for a, b in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(other, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@dacergnn.compile(heads=HEADS, channels=4, slope=SLOPE)
def rgat(g, x, W, q, k, bias):
    for e in g.edges():
        e["hs"] = reshape(linear(e.src.x, W[e.etype]), heads, channels)
        e["ht"] = reshape(linear(e.dst.x, W[e.etype]), heads, channels)
        e["att"] = leakyrelu(dot_prd(e["ht"], q) + dot_prd(e["hs"], k), slope)
    edge_softmax(g, "att")
    for n in g.dst_nodes():
        n["out"] = sum(e["att"] * e["hs"] for e in n.incoming_edges())
        n["out"] = n["out"] + bias
    return out


@dacergnn.compile(config=dacergnn.Config("O2", adjacency="csr"))
def scaled(g, x, W, q):
    for e in g.edges():
        e["message"] = linear(e.src.x, W[e.etype])
        e["att"] = leakyrelu(
            dot_prd(e["message"], q),
            0.2,
        )
    for n in g.dst_nodes():
        n["out"] = sum(exp(e["att"]) * e["message"] for e in n.incoming_edges())
    return out


@dacergnn.compile
def rgcn(g, x, W, norm, root, bias):
    for e in g.edges():
        e["msg"] = e.src.x * W[e.etype]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.norm * e["msg"]
        n["out"] = n["out"] + linear(n.x, root)
        n["out"] = n["out"] + bias
    return out


@dacergnn.compile(heads=HEADS, dim=4, width=8, scale=0.5)
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
        n["agg"] = sum(e["att"] * linear(e.src.v, W_msg[e.etype]) for e in n.incoming_edges())
        n["out"] = n.x + sigmoid(skip[n.ntype]) * (linear(reshape(n.agg, width), A[n.ntype]) - n.x)
    return out


@dacergnn.compile
def two_results(g, x, W, b):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype]) + b
    for p in g.src_pairs():
        p["count"] = sum(1.0 for e in p.outgoing_edges())
    return count, m
