"""Traversal fusion: listings, what stays apart, and that it changes no value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dace
import numpy as np
import pytest

from dacergnn import HeteroGraph, parse, print_program
from dacergnn.errors import VerificationError
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes.form import Ref, Statement
from dacergnn.library_nodes.node import copied
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.program import Program, interpret, verify
from dacergnn.sdfg_passes import Context, GemmScaleFusion, differentiate
from dacergnn.sdfg_passes.traversal_fusion import TraversalFusion
from tests.program.golden import MODELS
from tests.support.random_programs import large_case, random_case
from tests.support.rewrites import on_graph, sizes

GOLDEN = Path(__file__).parent / "golden"
PROGRAMS, BATCH = 50, 25


def fused(text: str) -> tuple[int, dace.SDFG]:
    sdfg = parse(text)
    count = TraversalFusion().run(sdfg, Context())
    verify(sdfg)
    sdfg.validate()
    return count, sdfg


def bodies(sdfg: dace.SDFG) -> list[tuple[str, list[str]]]:
    """Mapping and targets of every operator."""
    return [(o.space, [s.target.name for s in o.statements]) for o in Program(sdfg).operators]


def model_programs(model: str) -> dict[str, dace.SDFG]:
    """Inference, training forward and backward of a model, fused."""
    source, bindings = MODELS[model]
    sdfg = parse(source, **bindings)
    GemmScaleFusion().run(sdfg, Context())
    gradient = differentiate(sdfg, [n for n, spec in bindings.items() if isinstance(spec, str) and n != "norm"])
    GemmScaleFusion().run(gradient.backward, Context())
    found = {"inference": sdfg, "forward": gradient.forward, "backward": gradient.backward}
    for one in found.values():
        TraversalFusion().run(one, Context())
        verify(one)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_listings(model: str, request: pytest.FixtureRequest) -> None:
    for role, sdfg in model_programs(model).items():
        path, text = GOLDEN / f"{model}_{role}.txt", print_program(sdfg)
        if request.config.getoption("--update-golden"):
            GOLDEN.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text()
        assert verify(parse(text)) is None


def test_softmax_and_sum_are_one_loop() -> None:
    count, sdfg = fused(
        """def p(g, q: E, h: U[8], bias: ONE[8]):
    for e in g.edges():
        e["att"] = leakyrelu(e.q, 0.2)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["largest"] = max(n["largest"], e["att"])
    for e in g.edges():
        e["exp"] = exp(e["att"] - detach(e.dst["largest"]))
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["total"] += e["exp"]
    for e in g.edges():
        e["weight"] = e["exp"] / e.dst["total"]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["weight"] * e.src_pair["h"]
    for n in g.dst_nodes():
        n["y"] = n["out"] + bias
    return y
"""
    )
    assert count == 6
    (operator,) = Program(sdfg).operators
    assert operator.space == "ND"
    assert sorted(operator.locals) == ["att", "exp", "largest", "out", "total", "weight"]
    assert set(operator.out_connectors) == {"_y"}
    assert not {n.data for n in Program(sdfg).state.data_nodes()} & set(operator.locals)
    assert (
        print_program(sdfg).split("bias, largest\n")[-1].splitlines()[2:]
        == """    for n in g.dst_nodes():
        for e in n.incoming_edges():
            e["att"] = leakyrelu(e["q"], 0.2)
            n["largest"] = max(n["largest"], e["att"])
        for e in n.incoming_edges():
            e["exp"] = exp(e["att"] - detach(n["largest"]))
            n["total"] += e["exp"]
        for e in n.incoming_edges():
            e["weight"] = e["exp"] / n["total"]
            n["out"] += e["weight"] * e.src_pair["h"]
        n["y"] = n["out"] + bias
    return y""".splitlines()
    )


def test_what_others_read_is_stored() -> None:
    _, sdfg = fused(
        """def p(g, a: E[64]):
    for e in g.edges():
        e["b"] = sum(e.a)
        e.dst["c"] += e["b"]
        e.dst["d"] += e["b"] * e.a
        e.src["f"] += e["b"] * e.dst["c"]
    return d, f
"""
    )
    # The sum over sources runs under another mapping, so both b and c are stored for it.
    assert bodies(sdfg) == [("ND", ["b", "c", "d"]), ("E", ["f"])]
    assert Program(sdfg).operators[0].locals == []


def test_narrow_rows_stay_in_the_order_of_edges() -> None:
    # Writing b in the order of destinations costs more than reading it once more.
    count, _ = fused(
        """def p(g, a: E):
    for e in g.edges():
        e["b"] = exp(e.a)
        e.dst["c"] += e["b"]
    return b, c
"""
    )
    assert count == 0


@pytest.mark.parametrize(
    "body",
    [
        # Read through the other end: not the own group.
        'e.dst["y"] += e.a; e["z"] = e.src["y"] * 2.0; return z',
        # A sum over types belongs to no group.
        'y[e.etype] += e.a; e["z"] = y[e.etype] * 2.0; return z',
        # Nothing in common.
        'e.dst["y"] += e.a; e.src["z"] += e.b; return y, z',
        # One over destinations, the other over sources.
        'e.dst["y"] += e.a; e.src["z"] += e.a; return y, z',
    ],
)
def test_stays_apart(body: str) -> None:
    *loop, result = body.split("; ")
    lines = "\n".join(f"        {line}" for line in loop)
    text = f"def p(g, a: E, b: E, y: NS):\n    for e in g.edges():\n{lines}\n    {result}\n"
    assert fused(text)[0] == 0


def test_product_between_keeps_traversals_apart() -> None:
    count, sdfg = fused(
        """def p(g, a: E[4], x: ND[4], W: R[4, 4]):
    for e in g.edges():
        e["b"] = e.a * e.dst.x
        e["c"] = linear(e["b"], W[e.etype])
        e["d"] = e["b"] + e["c"]
    return d
"""
    )
    assert (count, len(Program(sdfg).operators)) == (0, 3)


def test_names_of_locals_are_checked() -> None:
    _, sdfg = fused(
        """def p(g, a: E):
    for e in g.edges():
        e["b"] = exp(e.a)
        e["c"] = e["b"] * 2.0
    return c
"""
    )
    program = Program(sdfg)
    (operator,) = program.operators
    assert operator.locals == ["b"]
    program.drop_unused()
    assert "b" in sdfg.arrays
    program.add_array("other", "E", ())
    program.insert(Statement("E", Ref("other"), "=", Ref("b")))
    with pytest.raises(VerificationError, match=r"I5|I10"):
        verify(sdfg)


def test_wrong_nests_are_named() -> None:
    sdfg = parse(
        """def p(g, a: E):
    for e in g.edges():
        e.src["b"] += e.a
        e.dst["c"] += e.src["b"]
    return c
"""
    )
    program = Program(sdfg)
    first, second = (o.statements[0] for o in program.operators)
    program.replace(program.operators[1], [second])
    program.remove(program.operators[0])
    program.remove(program.operators[0])
    program.insert(first, second, mapping="ND")
    with pytest.raises(VerificationError, match="I9: c: "):
        verify(sdfg)


# Random programs


def check(sdfg: dace.SDFG, graph: HeteroGraph, inputs: dict[str, Any]) -> None:
    outputs = Program(sdfg).outputs
    if not outputs:
        return
    before = interpret(sdfg, graph, **inputs)
    after = copied(sdfg)
    operators = len(Program(after).operators)
    count = TraversalFusion().run(after, Context())
    verify(after)
    after.validate()
    assert len(Program(after).operators) == operators - count
    text = print_program(after)
    assert TraversalFusion().run(after, Context()) == 0
    assert print_program(after) == text
    again = copied(sdfg)
    TraversalFusion().run(again, Context())
    assert print_program(again) == text
    values, parsed = interpret(after, graph, **inputs), parse(text)
    printed = interpret(parsed, graph, **inputs)
    for name, other in zip(outputs, Program(parsed).outputs, strict=True):
        np.testing.assert_array_equal(values[name], before[name])
        np.testing.assert_allclose(printed[other], before[name], rtol=1e-10, atol=1e-10)


@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_random_programs(first: int) -> None:
    makers: list[tuple[Callable[[int], Any], int]] = [(random_case, seed) for seed in range(first, first + BATCH)]
    makers.append((large_case, first))
    for make, seed in makers:
        case = make(seed)
        graph, sdfg = case.graph.hetero(), parse(case.text)
        try:
            check(sdfg, graph, case.inputs)
            gradient = differentiate(sdfg, case.wrt)
            values = interpret(gradient.forward, graph, **case.inputs)
            backward, generator = Program(gradient.backward), np.random.default_rng(seed)
            for name in backward.inputs:
                shape = (graph.size(backward.space(name)), *backward.shape(name))
                values.setdefault(name, generator.standard_normal(shape))
            check(gradient.backward, graph, {n: values[n] for n in backward.inputs})
        except Exception as error:
            raise AssertionError(f"{make.__name__}({seed}):\n{case.text}") from error


@pytest.mark.parametrize(("types", "loops"), [(1, 1), (8, 6)])
def test_edges_of_one_type_are_in_order_of_their_destinations(types: int, loops: int) -> None:
    """Scores of several heads that the backward reads: streamed in the order of edges where that is another."""
    text = """def p(g, s: NS[8], t: NS[8], h: NS[8, 8]):
    for e in g.edges():
        e["score"] = leakyrelu(e.src.s + e.dst.t, 0.2)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["largest"] = max(n["largest"], e["score"])
    for e in g.edges():
        e["power"] = exp(e["score"] - detach(e.dst["largest"]))
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["total"] += e["power"]
    for e in g.edges():
        e["att"] = e["power"] / e.dst["total"]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["y"] += e["att"] * e.src.h
    return y, power, att
"""
    sdfg = parse(text)
    on_graph(TraversalFusion(), R=types)(sdfg)
    verify(sdfg)
    assert len(Program(sdfg).operators) == loops


def test_devices_sum_up_no_hub_in_a_loop_inside_of_another() -> None:
    """There, blocks of threads share the hubs of nests of two levels."""
    text = """def p(g, s: E):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["total"] += e.s
    for p in g.dst_pairs():
        for e in p.incoming_edges():
            p["share"] += e.s / e.dst["total"]
    return share
"""

    def levels(implementation: str, longest: int) -> int:
        sdfg = parse(text)
        profile = Profile(tuple(sizes().items()), hubs=(("dst", longest), ("dstpair", longest)))
        TraversalFusion().run(sdfg, Context(profile, implementation=implementation))
        verify(sdfg)
        return max(len(Levels.of(o.space, o.statements).spaces) for o in Program(sdfg).operators)

    assert levels("cuda", 1024) == levels("cpu", 1024) == levels("cpu", 50_000) == 3
    assert levels("cuda", 1025) == 2
