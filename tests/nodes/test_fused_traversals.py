"""Fused loop nests, compiled: every mapping and level by hand, models and random programs through the pass."""

from __future__ import annotations

import random
from collections.abc import Callable

import dace
import numpy as np
import pytest
import torch

from dacergnn import parse
from dacergnn.frontends.programs import hgt, rgat, rgcn
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, interpret, verify
from dacergnn.program.view import StatementGroup
from dacergnn.sdfg_passes import Context, GemmScaleFusion, differentiate
from dacergnn.sdfg_passes.traversal_fusion import TraversalFusion
from tests.nodes.test_expansions import compiled, graphs, hub_graph
from tests.support.random_graphs import RawGraph
from tests.support.random_programs import large_case

# Each program becomes one operator under its mapping. `{0}` results are read outside, the others are locals.
NESTS = {
    # Groups of edges: maxima, sums and minima that later loops read, wide rows in several loops, row statements
    # before, between and behind; destinations among the sources.
    "ND > E": (
        "ND",
        """def p(g, a: E, b: NS[3], c: E[2], d: E[2, 20], r: R[3], m: ND, w: ND[2, 20]):
    for n in g.dst_nodes():
        n["m2"] = n.m * 2.0
        for e in n.incoming_edges():
            e["s"] = leakyrelu(e.a + n["m2"], 0.2)
            n["large"] = max(n["large"], e["s"])
            n["small"] = min(n["small"], e.c)
        for e in n.incoming_edges():
            e["x"] = exp(e["s"] - n["large"])
            n["total"] += e["x"]
            e["v"] = e.c * n["large"] + n["small"]
            e["wide"] = e.d * e["v"] + n.w
            n["wsum"] += e["wide"]
        for e in n.incoming_edges():
            e["y"] = e["x"] / n["total"]
            n["out"] += e["y"] * e.src.b + r[e.etype]
            n["w2"] += e["wide"] * n["wsum"]
            e["kept"] = e["wide"] + e["y"]
        n["out2"] = n["out"] * n["m2"]
        n.src["o"] = n["out2"] + n["out"]
        for e in n.incoming_edges():
            n["last"] += e["kept"] * e["y"]
    return out2, o, w2, last, kept, s, large
""",
    ),
    "ND > V > E": (
        "ND",
        """def p(g, a: E, b: E[17], h: V[17], t: R[17], z: ND):
    for e in g.edges():
        e["s"] = e.a * e.dst.z + e.dst_pair.h * 0.0
        e.dst_pair["m"] = max(e.dst_pair["m"], e.a)
    for p in g.dst_pairs():
        p["m2"] = p["m"] + p.dst.z
        p.dst["largest"] = max(p.dst["largest"], p["m2"])
    for e in g.edges():
        e["x"] = exp(e.a + e.dst_pair["m2"] * 0.1 - e.dst["largest"])
        e.dst_pair["agg"] += e["x"] * e.b
        e.dst["total"] += e["x"]
    for p in g.dst_pairs():
        p["y"] = p["agg"] * t[p.etype] + p.h
        p.dst["out"] += p["y"] / p.dst["total"]
    for e in g.edges():
        e["back"] = dot_prd(e.dst["out"], e.dst_pair["y"]) * e["s"]
    for n in g.dst_nodes():
        n["out2"] = n["out"] + n.z
    return out2, back, y
""",
    ),
    "ND > V": (
        "ND",
        """def p(g, h: V[5], z: ND[5]):
    for p in g.dst_pairs():
        p["a"] = p.h * p.dst.z
        p.dst["b"] += p["a"]
    for p in g.dst_pairs():
        p["c"] = p["a"] + p.dst["b"]
        p.dst["d"] = min(p.dst["d"], p["c"])
    return b, d, c
""",
    ),
    "NS > U > E": (
        "NS",
        """def p(g, a: E, b: ND[6], h: U[6], z: NS[6]):
    for e in g.edges():
        e["s"] = e.a * 2.0
        e.src_pair["m"] += e["s"] * e.dst.b
    for p in g.src_pairs():
        p["q"] = p["m"] * p.h + p.src.z
        p.src["r"] += p["q"]
    for e in g.edges():
        e["t"] = dot_prd(e.src_pair["q"], e.src["r"]) * e["s"]
        e.src["u"] = max(e.src["u"], e["t"])
    for n in g.src_nodes():
        n["v"] = n["r"] * n["u"]
    return v, t
""",
    ),
    "NS > E": (
        "NS",
        """def p(g, a: E[2], b: ND[2, 3]):
    for e in g.edges():
        e["s"] = sigmoid(e.a)
        e.src["r"] += e["s"] * e.dst.b
        e.src["k"] += e["s"]
    for e in g.edges():
        e["t"] = e["s"] / e.src["k"]
    for n in g.src_nodes():
        n["v"] = n["r"] / (n["k"] + 1.0)
    return v, t, r
""",
    ),
    "V > E": (
        "V",
        """def p(g, a: E, b: NS[33], h: V[33]):
    for e in g.edges():
        e["s"] = exp(e.a)
        e.dst_pair["k"] += e["s"]
    for e in g.edges():
        e["t"] = e["s"] / e.dst_pair["k"]
        e.dst_pair["r"] += e["t"] * e.src.b
    for p in g.dst_pairs():
        p["v"] = p["r"] + p.h
    return v, k
""",
    ),
    "U > E": (
        "U",
        """def p(g, a: E, b: ND[4], h: U[4]):
    for e in g.edges():
        e["s"] = dot_prd(e.dst.b, e.src_pair.h)
        e.src_pair["k"] = max(e.src_pair["k"], e["s"])
    for e in g.edges():
        e.src_pair["r"] += (e["s"] - e.src_pair["k"]) * e.dst.b
    for p in g.src_pairs():
        p["v"] = p["r"] + p.h
    return v
""",
    ),
    "E": (
        "E",
        """def p(g, a: E, b: NS, c: E[7], t: R):
    for e in g.edges():
        e["s"] = exp(e.a) + e.src.b * t[e.etype]
        e["u"] = e["s"] * e["s"]
        e["w"] = e.c * e["u"]
        e["z"] = dot_prd(e["w"], e.c) + e["s"]
    return z, u
""",
    ),
    "ND": (
        "ND",
        """def p(g, a: ND, b: ND[70], c: ONE[70]):
    for n in g.dst_nodes():
        n["s"] = n.b + c
        n["u"] = n["s"] * n.a
        n.src["w"] = n["u"] + n["s"]
    return w
""",
    ),
}


def as_one(sdfg: dace.SDFG, mapping: str) -> dace.SDFG:
    """The program with its whole body in one operator."""
    program = Program(sdfg)
    statements = tuple(s for o in program.operators for s in o.statements)
    assert all(isinstance(o, Traversal) for o in program.operators)
    names = tuple(s.target.name for s in statements if s.target.name not in program.outputs)
    program.regroup([StatementGroup(statements, mapping, names)])
    verify(sdfg)
    sdfg.validate()
    return sdfg


def all_graphs() -> list[RawGraph]:
    """Also with groups longer than a tile."""
    return [*graphs(), hub_graph(random.Random(1), 40, 30, 3000)]


@pytest.mark.parametrize(
    ("nest", "implementation", "dtype", "index"),
    [
        *((nest, "cpu", dace.float64, dace.int32) for nest in NESTS if nest not in ("ND > E", "U > E")),
        ("ND > E", "cpu", dace.float32, dace.int64),
        ("U > E", "cpu", dace.float32, dace.int64),
        ("ND > V > E", "pure", dace.float64, dace.int64),
    ],
)
def test_nests(nest: str, implementation: str, dtype: Typeclass, index: Typeclass) -> None:
    mapping, text = NESTS[nest]
    program = compiled(as_one(parse(text, dtype=dtype), mapping), implementation, dtype, index)
    for number, raw in enumerate(all_graphs()):
        program.check(raw, number)


MODELS: dict[str, tuple[Callable[..., None], dict[str, object]]] = {
    "rgcn": (rgcn, {"x": "NS[7]", "W": "R[7, 9]", "norm": "E", "root": "ONE[7, 9]", "bias": "ONE[9]"}),
    "rgat": (
        rgat,
        {
            "x": "NS[10]", "W": "R[10, 15]", "q": "ONE[3, 5]", "k": "ONE[3, 5]", "bias": "ONE[3, 5]",
            "heads": 3, "channels": 5, "slope": 0.2,
        },
    ),
    "rgat one head": (
        rgat,
        {
            "x": "NS[16]", "W": "R[16, 19]", "q": "ONE[1, 19]", "k": "ONE[1, 19]", "bias": None,
            "heads": 1, "channels": 19, "slope": 0.2,
        },
    ),
    "hgt": (
        hgt,
        {
            "x": "NS[10]", "W_k": "T[10, 10]", "W_q": "T[10, 10]", "W_v": "T[10, 10]", "W_att": "R[2, 5, 5]",
            "W_msg": "R[2, 5, 5]", "pri": "R[2]", "A": "T[10, 10]", "skip": "T",
            "heads": 2, "dim": 5, "width": 10, "scale": 0.25,
        },
    ),
}  # fmt: skip


def check_gradient(sdfg: dace.SDFG, wrt: list[str], raws: list[RawGraph], seed: int) -> None:
    """Fused forward and backward on random inputs, the backward on what the forward saved."""
    GemmScaleFusion().run(sdfg, Context())
    gradient = differentiate(sdfg, wrt)
    GemmScaleFusion().run(gradient.backward, Context())
    fused = [TraversalFusion().run(sdfg, Context()) for sdfg in (gradient.forward, gradient.backward)]
    assert sum(fused) > 0
    forward = compiled(gradient.forward, "cpu", dace.float64, dace.int32)
    backward = compiled(gradient.backward, "cpu", dace.float64, dace.int32)
    for raw in raws:
        graph, generator = raw.hetero(), np.random.default_rng(seed)
        values: dict[str, torch.Tensor] = {}
        for sdfg, program in ((forward.plain, forward), (backward.plain, backward)):
            view = Program(sdfg)
            for name in view.inputs:
                shape = (graph.size(view.space(name)), *view.shape(name))
                if name not in values:
                    values[name] = torch.from_numpy(generator.uniform(-1, 1, shape))
            program.compare(graph, values)
            inputs = {name: values[name] for name in view.inputs}
            values |= {n: torch.from_numpy(v) for n, v in interpret(sdfg, graph, **inputs).items() if n in view.outputs}


@pytest.mark.parametrize("model", ["rgat one head", "hgt"])
def test_models(model: str) -> None:
    source, bindings = MODELS[model]
    wrt = [n for n, spec in bindings.items() if isinstance(spec, str) and n != "norm"]
    check_gradient(parse(source, dtype=dace.float64, **bindings), wrt, graphs(), 3)


@pytest.mark.no_cover
def test_large_random_programs() -> None:
    case = large_case(3)
    check_gradient(parse(case.text, dtype=dace.float64), case.wrt, [case.graph], 3)
