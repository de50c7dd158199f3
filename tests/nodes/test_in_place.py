"""Which arrays a loop nest may write in the place of others, and that it computes the same there."""

from __future__ import annotations

import dace
import numpy as np
import pytest
import torch

from dacergnn import parse
from dacergnn.library_nodes import SegmentGemm, Traversal
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, interpret
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.gemm_epilogue_fusion import GemmEpilogueFusion
from tests.nodes.test_expansions import compiled, graphs, with_index
from tests.nodes.test_fused_traversals import as_one

Pairs = set[tuple[str, str]]
# A mapping, the program, and the pairs of what may lie in the place of what, among arrays of several elements.
BODIES: dict[str, tuple[str, str, Pairs]] = {
    "rows that are summed, once all edges have read them": (
        "NS",
        """def p(g, f: NS[4, 8], o: ND[4, 8], a: E[4]):
    for e in g.edges():
        e["b"] = dot_prd(e.dst.o, e.src.f)
        e.src["s"] += e.dst.o * e.a
    return b, s
""",
        {("f", "s")},
    ),
    "rows that later edges read": (
        "ND",
        """def p(g, f: ND[20], o: NS[20]):
    for e in g.edges():
        e.dst["s"] += e.src.o * e.dst.f
    for e in g.edges():
        e.dst["t"] += e.src.o * e.dst["s"] - e.dst.f
    return s, t
""",
        {("f", "t")},
    ),
    "rows of other nodes": (
        "ND",
        """def p(g, f: NS[20], a: ND[20]):
    for e in g.edges():
        e.dst["s"] += e.src.f
    for n in g.dst_nodes():
        n["t"] = n["s"] * n.a
    return s, t
""",
        {("a", "t")},
    ),
    "elements of edges": (
        "ND",
        """def p(g, a: E[4], b: E[4], c: E[4], d: ND[4]):
    for e in g.edges():
        e["s"] = (e.a - e.dst.d) * e.b
        e["r"] = e["s"] + concat(slice(e.c, 2, 4), slice(e.c, 0, 2))
        e.dst["t"] += e["s"] * e.b
    return s, r, t
""",
        {("a", "s"), ("a", "r"), ("d", "t")},
    ),
    "elements of nodes": (
        "ND",
        """def p(g, a: ND[4], b: ND[4], c: ND[2, 2]):
    for n in g.dst_nodes():
        n["s"] = n.a + n.b
        n["t"] = n["s"] * n.b + reshape(n.c, 4)
        n["u"] = n["t"] + n.a
    return s, t, u
""",
        {("b", "t"), ("a", "u"), ("b", "u"), ("c", "u")},
    ),
}

# Programs that become one product with an epilogue, whose sums may start from another array.
PRODUCTS: dict[str, tuple[str, Pairs]] = {
    "one term": (
        """def p(g, x: NS[8], W: R[8, 4], a: ND[4]):
    for e in g.edges():
        e.dst["s"] += linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["t"] = n.a + n["s"]
    return t
""",
        {("a", "t")},
    ),
    "several terms": (
        """def p(g, x: ND[8], W: R[4, 8], k: E, a: NS[4], b: NS[4], c: NS[2, 2]):
    for e in g.edges():
        e.src["s"] += e.k * linear(e.dst.x, W[e.etype].T)
    for n in g.src_nodes():
        n["t"] = n.b + n["s"] + n.a + reshape(n.c, 4)
        n["u"] = n["t"] * n.b
    return u
""",
        {("a", "u")},
    ),
    "factors": (
        """def p(g, x: NS[8], W: R[8, 4], a: ND[4]):
    for e in g.edges():
        e.dst["s"] += linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["t"] = n.a * n["s"]
    return t
""",
        set(),
    ),
    "sums that are read again": (
        """def p(g, x: NS[8], W: R[8, 4], a: ND[4]):
    for e in g.edges():
        e.dst["s"] += linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["t"] = n.a + n["s"]
        n["u"] = n["t"] * n["s"]
    return u
""",
        set(),
    ),
}


def product_of(text: str, dtype: Typeclass) -> dace.SDFG:
    sdfg = parse(text, dtype=dtype)
    GemmEpilogueFusion().run(sdfg, Context())
    return sdfg


def test_pairs_of_products() -> None:
    for name, (text, pairs) in PRODUCTS.items():
        sdfg = product_of(text, dace.float32)
        (operator,) = Program(sdfg).operators
        assert isinstance(operator, SegmentGemm)
        arrays = operator.arrays(sdfg, next(iter(sdfg.states())))
        assert operator.plan("cpu", arrays).in_place == pairs, name
        assert operator.plan("cuda", arrays).in_place == set()


def test_pairs() -> None:
    for name, (mapping, text, pairs) in BODIES.items():
        sdfg = as_one(parse(text, dtype=dace.float32), mapping)
        (operator,) = Program(sdfg).operators
        assert isinstance(operator, Traversal)
        arrays = operator.arrays(sdfg, next(iter(sdfg.states())))
        assert operator.plan("cpu", arrays).in_place == pairs, name
        assert operator.plan("cuda", arrays).in_place == set()
        operator.split_hubs = True
        assert operator.plan("cpu", arrays).in_place == pairs, name
        operator.adjacency = "coo"  # threads share rows
        assert operator.plan("cpu", arrays).in_place == set()


@pytest.mark.parametrize("name", [*BODIES, *PRODUCTS])
def test_written_in_place(name: str) -> None:
    if name in BODIES:
        mapping, text, pairs = BODIES[name]
        sdfg = as_one(parse(text, dtype=dace.float64), mapping)
    else:
        text, pairs = PRODUCTS[name]
        sdfg = product_of(text, dace.float64)
    program = compiled(sdfg, "cpu", dace.float64, dace.int32)
    executable = program.executable
    rng = np.random.default_rng(3)
    for raw in graphs():
        graph = with_index(raw.hetero(), torch.int32)
        prepared = executable.prepare(graph)
        given = [torch.from_numpy(rng.normal(size=prepared.inputs.shape(n))) for n in prepared.inputs.names]
        expected = executable(prepared, given)
        arrays = dict(zip(prepared.inputs.names, (t.numpy() for t in given), strict=True))
        values = interpret(program.plain, graph, **arrays)
        for own, buffer in zip(expected, executable.lowered.outputs, strict=True):
            np.testing.assert_allclose(own.numpy(), values[buffer.name], rtol=1e-10, atol=1e-10)
        for read, written in pairs:
            copies = [g.clone() for g in given]
            arguments, address, _ = executable.frame(prepared)
            kept = prepared.inputs.place(copies, arguments)
            place = copies[prepared.inputs.names.index(read)]
            results = [torch.empty(shape, dtype=torch.float64) for _, shape, _ in prepared.outputs]
            names = [b.name for b in executable.lowered.outputs]
            results[names.index(written)] = place.view(results[names.index(written)].shape)
            for (position, _, _), tensor in zip(prepared.outputs, results, strict=True):
                arguments[position] = tensor.data_ptr()
            executable._function(address)  # pyright: ignore[reportPrivateUsage]
            del kept
            for own, other in zip(results, expected, strict=True):
                assert torch.equal(own, other), (read, written)
