"""The CUDA expansion of SegmentGemm in emulation against the interpreter: every form of statement, with epilogues."""

from __future__ import annotations

import copy
import re

import dace
import pytest

from dacergnn import Config
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import parse
from dacergnn.runtime.cuda_executable import CUDAExecutable
from dacergnn.sdfg_passes import Context, SelectAdjacency
from dacergnn.sdfg_passes.gemm_epilogue_fusion import GemmEpilogueFusion
from tests.nodes.statements import products
from tests.nodes.test_expansions import Compiled, graphs
from tests.nodes.test_weight_products import PRODUCTS
from tests.nodes.test_weight_products import graphs as joined_graphs
from tests.support.emulated_device import emulated_device

__all__ = ["emulated_device"]

# Sums, rows of other arrays, values of a head, in place and not, with values that only the epilogue needs; a product of
# single elements.
EPILOGUES = """def program(
    g, x: NS[20], W: R[20, 6], Wh: R[2, 10, 17], P: T[20, 20], b: ONE[6], c: ND[6], s: E, q: R[2, 17], m: ND[20],
    y: NS[1], V: R[1, 1],
):
    for e in g.edges():
        e.dst["sum"] += e.s * linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["a"] = relu(n["sum"] + n.c + b)
    for p in g.src_pairs():
        p["h"] = linear(reshape(p.src.x, 2, 10), Wh[p.etype])
    for p in g.src_pairs():
        p["score"] = dot_prd(p["h"], q[p.etype])
    for n in g.dst_nodes():
        n["t"] = linear(n.m, P[n.ntype])
    for n in g.dst_nodes():
        n["u"] = tanh(n["t"]) * sum(n["t"])
    for n in g.dst_nodes():
        n["v"] = concat(slice(n["u"], 10, 20), slice(n["u"], 0, 10)) + sum(n["u"])
    for e in g.edges():
        e.dst["by_type"] += linear(e.src.x, P[e.dst.ntype])
    for n in g.dst_nodes():
        n["w"] = n["by_type"] * 2.0 + n.m
    for e in g.edges():
        e.dst["thin"] += linear(e.src.y, V[e.etype])
    for v in g.dst_pairs():
        v.dst.src["far"] += linear(v.dst.m, P[v.dst.ntype])
    return a, h, score, v, w, thin, far
"""


def compiled(text: str, dtype: Typeclass, index: Typeclass, *, fused: int = 0) -> Compiled:
    """The program for the interpreter, and for CUDA with at least so many statements in epilogues."""
    plain = parse(text, dtype=dtype)
    sdfg = copy.deepcopy(plain)
    assert GemmEpilogueFusion().run(sdfg, Context()) >= fused
    SelectAdjacency(index=index).run(sdfg, Context(implementation="cuda"))
    sdfg.validate()
    return Compiled(plain, CUDAExecutable(sdfg, architectures=(80,)), dtype, index)


def third(kind: str, first: int) -> str:
    """Every third loop of the products of a shape, from one of the first on: g++ takes long for many launches."""
    head, *loops = products([kind]).partition("\n    return ")[0].split("\n    for ")
    body = "".join(f"\n    for {loop}" for loop in loops[first::3])
    results = dict.fromkeys(re.findall(r"\br\d+\b", body))
    return f"{head}{body}\n    return {', '.join(results)}\n"


@pytest.mark.parametrize(
    ("kind", "first", "dtype", "index"),
    [
        ("odd", 0, dace.float32, dace.int32),
        ("heads", 1, dace.float64, dace.int64),
        ("odd", 2, dace.float64, dace.int32),
    ],
)
def test_statements(kind: str, first: int, dtype: Typeclass, index: Typeclass, emulated_device: Config) -> None:
    """Each form of product along each map is in one of the programs."""
    program = compiled(third(kind, first), dtype, index)
    long_sums = first == 0  # the last graph has them, and takes as long as all others
    for number, raw in enumerate(graphs()[4:] if long_sums else graphs()[4:-1]):
        program.check(raw, number)


def test_products_of_weights(emulated_device: Config) -> None:
    text = PRODUCTS
    for kind in ("y6", "S1", "S2"):  # of a traversal besides
        lines = (line for line in text.split("\n") if f'"{kind}"' not in line and f"        {kind}[" not in line)
        text = "\n".join(lines).replace(f" {kind},", "")
    program = compiled(text, dace.float64, dace.int32)
    for number, raw in enumerate(joined_graphs()):
        program.check(raw, number)


def test_epilogues(emulated_device: Config) -> None:
    program = compiled(EPILOGUES, dace.float32, dace.int64, fused=4)
    for number, raw in enumerate(graphs()[4:]):
        program.check(raw, number)
