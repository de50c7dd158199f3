"""Programs of 16 bits keep their statistics in float32, so that differences of nearly equal values vanish."""

from __future__ import annotations

import random

import dace
import pytest
import torch

from dacergnn import Config, parse
from dacergnn.graph.spaces import is_encoding
from dacergnn.modules.functions import ProgramFunction
from dacergnn.runtime.lower import lower
from dacergnn.runtime.statistics import with_exact_statistics
from dacergnn.sdfg_passes import compile_program
from tests.support.random_graphs import joined_graph

ATTENTION = """def attention(g, q: ND[2, 8], k: NS[2, 8], v: NS[2, 8]):
    for e in g.edges():
        e["score"] = 4 * dot_prd(e.dst.q, e.src.k)
    for n in g.dst_nodes():
        n["most"] = max(e["score"] for e in n.incoming_edges())
    for e in g.edges():
        e["weight"] = exp(e["score"] - e.dst["most"])
    for n in g.dst_nodes():
        n["total"] = sum(e["weight"] for e in n.incoming_edges())
    for e in g.edges():
        e["share"] = e["weight"] / e.dst["total"]
    for n in g.dst_nodes():
        n["out"] = sum(e["share"] * e.src.v for e in n.incoming_edges())
    return out
"""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_queries_vanish_where_messages_are_equal(dtype: torch.dtype) -> None:
    """The softmax is sharp: scores are as large as 100."""
    graph = joined_graph(random.Random(0), 40, 600, 3, 2).hetero()
    attention = ProgramFunction(ATTENTION, {}, Config())
    torch.manual_seed(0)
    q, k = (torch.randn(40, 2, 8).to(dtype).requires_grad_() for _ in range(2))
    v = torch.randn(1, 2, 8).expand(40, 2, 8).to(dtype).contiguous()
    seed = torch.randn(40, 2, 8).to(dtype)
    found = torch.autograd.grad(attention(graph, q, k, v), [q, k], seed)
    # Each is a sum of shares times (a - b) times a query or key: the terms a and b are equal, and of about this size.
    term = float((4 * (seed * v).sum(-1).abs().max() * torch.stack([q, k]).abs().max()).detach())
    assert max(float(g.abs().max()) for g in found) <= 1e-5 * term


def test_which_arrays_have_32_bits() -> None:
    sdfg = parse(ATTENTION.replace("2, 8", "2, 32"), dtype=dace.bfloat16)
    plan = compile_program(sdfg, ["q", "k", "v"], Config(), dace.int32)
    assert plan.backward is not None
    for part in (plan.forward, plan.backward):
        exact = with_exact_statistics(part, plan.saved)
        types = {name: desc.dtype for name, desc in exact.arrays.items() if not is_encoding(name)}
        wide = {name for name, dtype in types.items() if dtype == dace.float32}
        assert all(name not in wide for name in ("q", "k", "v", "out"))
        assert wide
        assert part.arrays.keys() == exact.arrays.keys()
    sizes = {b.name: b.shape for b in lower(plan.forward, plan.saved).outputs[1:]}
    assert sizes == {b: lower(plan.backward, plan.saved).spaces[b][1] for b in sizes}
