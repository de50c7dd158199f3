"""Layers on every sparse format: values and gradients of a convolution and of attention, against float64 torch."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from dacergnn import Config, HeteroGraph
from tests.modules.functions import check, draw
from tests.nodes.test_expansions import hub_graph
from tests.reference.scatter import scatter_extreme, scatter_sum

RAW = hub_graph(random.Random(2), 80, 80, 1500)
GRAPH = HeteroGraph.from_arrays((RAW.src, RAW.dst), None, num_nodes=80)
SRC, DST = (GRAPH.index("E", path).long() for path in ("src", "dst"))
OWN = {"ell": "ell_E_dst_src", "hybrid": "hyb_E_src_dst"}
"""Encodings that only this format reads."""
NODES, EDGES = GRAPH.size("NS"), GRAPH.size("E")


def layers(g: Any, x, w, s, t, bias):
    for e in g.edges():
        e.dst["sum"] += e.w * e.src.x
    for n in g.dst_nodes():
        n.src["h"] = relu(n["sum"] + bias)
    for e in g.edges():
        e["score"] = leakyrelu(e.src.s + e.dst.t, 0.2)
        e.dst["large"] = max(e.dst["large"], detach(e["score"]))
        e["x"] = exp(e["score"] - e.dst["large"])
        e.dst["total"] += e["x"]
    for e in g.edges():
        e["att"] = e["x"] / e.dst["total"]
        e.dst["out"] += e["att"] * e.src["h"]
    return out, att


def reference(x: Tensor, w: Tensor, s: Tensor, t: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    h = (scatter_sum(w.unsqueeze(-1) * x[SRC], DST, NODES) + bias).relu()
    score = torch.nn.functional.leaky_relu(s[SRC] + t[DST], 0.2)
    score = (score - scatter_extreme(score.detach(), DST, NODES, "amax")[DST]).exp()
    att = score / scatter_sum(score, DST, NODES)[DST]
    return scatter_sum(att.unsqueeze(-1) * h[SRC], DST, NODES), att


@pytest.mark.parametrize("adjacency", ["csr", "csc", "coo", "ell", "hybrid", "auto"])
def test_values_and_gradients(adjacency: str) -> None:
    program = dacergnn.compile(config=Config(adjacency=adjacency))(layers)
    inputs = [draw(NODES, 6), draw(EDGES), draw(NODES), draw(NODES), draw(6)]
    check(program(GRAPH, *inputs), reference(*inputs), inputs)
    assert OWN.get(adjacency, "ptr_E_dst") in GRAPH.encoding_bytes()
