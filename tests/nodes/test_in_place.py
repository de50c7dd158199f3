"""Which arrays a loop nest may write in the place of others, and that it computes the same there."""

from __future__ import annotations

import dace
import numpy as np
import pytest
import torch

from dacergnn import parse
from dacergnn.library_nodes import Traversal
from dacergnn.program import Program
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


def test_pairs() -> None:
    for name, (mapping, text, pairs) in BODIES.items():
        sdfg = as_one(parse(text, dtype=dace.float32), mapping)
        (operator,) = Program(sdfg).operators
        assert isinstance(operator, Traversal)
        arrays = operator.arrays(sdfg, next(iter(sdfg.states())))
        assert operator.in_place("cpu", arrays) == pairs, name
        assert operator.in_place("cuda", arrays) == set()
        operator.split_hubs = True
        assert operator.in_place("cpu", arrays) == pairs, name
        operator.adjacency = "coo"  # threads share rows
        assert operator.in_place("cpu", arrays) == set()


@pytest.mark.parametrize("name", BODIES)
def test_written_in_place(name: str) -> None:
    mapping, text, pairs = BODIES[name]
    program = compiled(as_one(parse(text, dtype=dace.float64), mapping), "cpu", dace.float64, dace.int32)
    executable = program.executable
    rng = np.random.default_rng(3)
    for raw in graphs():
        graph = with_index(raw.hetero(), torch.int32)
        prepared = executable.prepare(graph)
        given = [torch.from_numpy(rng.normal(size=prepared.inputs.shapes[n])) for n in prepared.inputs.names]
        expected = executable(prepared, given)
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
