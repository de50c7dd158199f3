"""Steps of programs, for the tests of what the viewer shows."""

from __future__ import annotations

import dace

from dacergnn.config import Config
from dacergnn.program import parse
from dacergnn.sdfg_passes import PassStep, compile_program

ATTENTION = """
def attention(g, x: NS[8], W: R[8, 8], q: ONE[8], k: ONE[8]):
    for e in g.edges():
        e["hs"] = linear(e.src["x"], W[e.etype])
        e["ht"] = linear(e.dst["x"], W[e.etype])
        e["att"] = leakyrelu(dot_prd(e["ht"], q) + dot_prd(e["hs"], k), 0.2)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["largest"] = max(n["largest"], e["att"])
    for e in g.edges():
        e["p"] = exp(e["att"] - detach(e.dst["largest"]))
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["total"] += e["p"]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["p"] / n["total"] * e["hs"]
    return out
"""
LEARNED = ["x", "W", "q", "k"]


def steps_of_program(text: str, wrt: list[str]) -> list[PassStep]:
    """All steps of the compilation of a program."""
    return compile_program(parse(text), wrt, Config(), dace.int32).steps
