"""Propagation postponing: listings before and after, what it keeps away from, and that it changes no value."""

from __future__ import annotations

import random
from dataclasses import replace

import dace
import numpy as np
import pytest
import torch

from dacergnn import parse, print_program
from dacergnn.library_nodes.node import copied
from dacergnn.program import Program, verify
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes import Context, differentiate
from dacergnn.sdfg_passes.propagation_postponing import PropagationPostponing, postpone
from tests.program.test_random_programs import Checked, assert_close
from tests.support.random_graphs import random_graph
from tests.support.random_programs import Case, random_case


def listing(sdfg: dace.SDFG) -> str:
    """The loops of a program, without its head and the comments."""
    lines = print_program(sdfg).splitlines()
    return "\n".join(line[4:] for line in lines[1:] if "#" not in line)


def postponed(text: str) -> tuple[int, str]:
    sdfg = parse(text)
    fired = PropagationPostponing().run(sdfg, Context())
    verify(sdfg)
    sdfg.validate()
    assert PropagationPostponing().run(sdfg, Context()) == 0
    return fired, listing(sdfg)


GAT = """def gat(g, x: NS[16], W: ONE[16, 16], a: ONE[2, 16]):
    for e in g.edges():
        e["hs"] = reshape(linear(e.src.x, W), 2, 8)
        e["ht"] = reshape(linear(e.dst.x, W), 2, 8)
        e["att"] = leakyrelu(dot_prd(concat(e["hs"], e["ht"]), a), 0.2)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["att"] * e["hs"]
    return out
"""
GCN = """def gcn(g, x: NS[16], W: ONE[16, 4], norm: E):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.norm * linear(e.src.x, W)
    return out
"""
EDGECONV = """def edgeconv(g, x: NS[16], W: ONE[16, 4]):
    for e in g.edges():
        e["m"] = relu(linear(e.src.x - e.dst.x, W))
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] = max(n["out"], e["m"])
    return out
"""
AFTER_GAT = """for n in g.src_nodes():
    n["hs"] = reshape(linear(n["x"], W), 2, 8)
for o in g.once():
    o["a_0_8"] = slice(o["a"], 0, 8)
for n in g.src_nodes():
    n["tmp_src"] = dot_prd(n["hs"], a_0_8)
for o in g.once():
    o["a_8_16"] = slice(o["a"], 8, 16)
for n in g.dst_nodes():
    n["tmp_dst"] = dot_prd(n["hs"], a_8_16)
for e in g.edges():
    e["tmp"] = e.src["tmp_src"] + e.dst["tmp_dst"]
for e in g.edges():
    e["att"] = leakyrelu(e["tmp"], 0.2)
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out"] += e["att"] * e.src["hs"]
return out"""
AFTER_GCN = """for n in g.src_nodes():
    n["out_src"] = linear(n["x"], W)
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out"] += e["norm"] * e.src["out_src"]
return out"""
AFTER_EDGECONV = """for n in g.src_nodes():
    n["tmp_1_src"] = linear(n["x"], W)
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out_max"] = max(n["out_max"], e.src["tmp_1_src"])
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["degree"] += 1.0
for n in g.dst_nodes():
    n["out"] = relu((n["out_max"] - n["tmp_1_src"]) * clamp_max(n["degree"], 1.0))
return out"""


@pytest.mark.parametrize(
    ("before", "fired", "after"),
    [(GAT, 4, AFTER_GAT), (GCN, 1, AFTER_GCN), (EDGECONV, 3, AFTER_EDGECONV)],
    ids=["gat", "gcn", "edgeconv"],
)
def test_listings(before: str, fired: int, after: str) -> None:
    assert postponed(before) == (fired, after)


def body(*lines: str) -> str:
    loop = "".join(f"        {line}\n" for line in lines)
    return (
        "def p(g, x: NS[4], z: ND[4], f: E[4], s: E, t: T, w: ONE[4], W: ONE[4, 2], Z: ONE[8, 2], R1: R[4, 2], "
        f"R2: R[8, 2]):\n    for e in g.edges():\n{loop}    return y\n"
    )


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        # Another end of a concatenation stays on edges.
        (
            ['e["y"] = tanh(linear(concat(e.src.x, e.f), Z))'],
            [
                'o["Z_0_4"] = take_rows(o["Z"], 0, 4)', 'n["tmp_1_src"] = linear(n["x"], Z_0_4)',
                'o["Z_4_8"] = take_rows(o["Z"], 4, 8)', 'e["tmp_1_edge"] = linear(e["f"], Z_4_8)',
                'e["tmp_1"] = e.src["tmp_1_src"] + e["tmp_1_edge"]', 'e["y"] = tanh(e["tmp_1"])',
            ],
        ),
        # A factor of edges is taken out of the product, a constant one goes with the node.
        (
            ['e["y"] = 2.0 * linear(e.s * e.src.x, W)'],
            [
                'n["tmp_1_src"] = linear(n["x"], W)', 'e["tmp_1"] = e["s"] * e.src["tmp_1_src"]',
                'e["y"] = 2.0 * e["tmp_1"]',
            ],
        ),
        # Parts by type hang on pairs, which compaction looks for.
        (
            ['e["y"] = linear(concat(e.src.x, e.dst.z), R2[e.etype])'],
            [
                'r["R2_0_4"] = take_rows(r["R2"], 0, 4)', 'e["y_srcpair"] = linear(e.src["x"], R2_0_4[e.etype])',
                'r["R2_4_8"] = take_rows(r["R2"], 4, 8)', 'e["y_dstpair"] = linear(e.dst["z"], R2_4_8[e.etype])',
                'e["y"] = e["y_srcpair"] + e["y_dstpair"]',
            ],
        ),
        # Both operands of a dot product; the type of a source is one of nodes.
        (
            ['e["y"] = dot_prd(w, t[e.src.ntype] * e.src.x - e.dst.z)'],
            [
                'n["y_src"] = dot_prd(t[n.ntype] * n["x"], w)', 'n["y_dst"] = dot_prd(n["z"], w)',
                'e["y"] = e.src["y_src"] - e.dst["y_dst"]',
            ],
        ),
        # A result of edges keeps a copy; element-wise ones are not worth it.
        (['e["y"] = linear(e.src.x, W)'], ['n["y_src"] = linear(n["x"], W)', 'e["y"] = e.src["y_src"]']),
        (['e["y"] = tanh(e.src.x)'], ['e["y"] = tanh(e.src["x"])']),
        # Copies are forwarded, with their views.
        (
            ['e["c"] = reshape(e.src.x, 2, 2)', 'e["y"] = e.s * e["c"] + reshape(e["c"], 2, 2)'],
            ['e["y"] = e["s"] * reshape(e.src["x"], 2, 2) + reshape(e.src["x"], 2, 2)'],
        ),
        # Weights by relation are no matter of nodes, sums with values of edges no gain.
        (['e["y"] = linear(e.src.x, R1[e.etype])'], ['e["y"] = linear(e.src["x"], R1[e.etype])']),
        (
            ['e["y"] = linear(e.src.x - e.dst.z, R1[e.etype])'],
            ['e["tmp"] = e.src["x"] - e.dst["z"]', 'e["y"] = linear(e["tmp"], R1[e.etype])'],
        ),
        (
            ['e["y"] = linear(e.src.x + e.f, W)'],
            ['e["tmp"] = e.src["x"] + e["f"]', 'e["y"] = linear(e["tmp"], W)'],
        ),
        # A product scales by values of its own rows.
        (
            ['e["c"] = tanh(sum(e.dst.z))', 'e["y"] = e["c"] * linear(e.f, W)'],
            ['n["tmp"] = sum(n["z"])', 'e["c"] = tanh(e.dst["tmp"])', 'e["y"] = e["c"] * linear(e["f"], W)'],
        ),
    ],
)  # fmt: skip
def test_cases(lines: list[str], after: list[str]) -> None:
    found = [line.strip() for line in postponed(body(*lines))[1].splitlines()]
    found = [line for line in found if not line.startswith(("for ", "return"))]
    assert found == after


def test_pairs_and_their_readers() -> None:
    text = """def p(g, x: NS[4], W: ONE[4, 2], t: T):
    for u in g.src_pairs():
        u["h"] = linear(u.src.x, W)
        u["k"] = u.src.x
    for e in g.edges():
        e["y"] = e.src_pair["h"] * t[e.dst.ntype] + sum(e.src_pair["k"])
    return y
"""
    fired, after = postponed(text)
    assert fired == 3
    assert after.splitlines()[:2] == ["for n in g.src_nodes():", '    n["h"] = linear(n["x"], W)']
    assert 'e.src["h"] * t[e.dst.ntype]' in after
    assert "src_pair" not in after


@pytest.mark.parametrize("inverse", ["1.0 / n.d", "sqrt(n.d)", "log(n.d)"])
def test_nothing_is_computed_for_nodes_that_only_edges_have_a_value_for(inverse: str) -> None:
    """A node without edges has degree 0; gradients of weights would become NaN there."""
    text = f"""def p(g, x: NS[4], d: NS, W: ONE[4, 2]):
    for n in g.src_nodes():
        n["i"] = {inverse}
    for e in g.edges():
        e["m"] = e.src.i * e.src.x
        e["h"] = tanh(linear(e["m"], W))
        e.dst["out"] += e["h"] / e.src.d
    return out
"""
    assert postponed(text) == (0, listing(parse(text)))


def test_listing_is_rewritten_in_place() -> None:
    found = Listing.of(parse(GCN))
    assert postpone(found) == 1
    assert found.space("out_src") == "NS"
    assert postpone(found) == 0


def check(case: Case, seed: int) -> int:
    """The pass keeps values and gradients, and finds nothing the second time; returns how often it fired."""
    checked = Checked(case, seed)
    before = checked.gradients(differentiate(checked.sdfg, case.wrt))
    after = copied(checked.sdfg)
    fired = PropagationPostponing().run(after, Context())
    verify(after)
    assert PropagationPostponing().run(after, Context()) == 0
    if fired:
        assert print_program(parse(print_program(after))) == print_program(after)
        checked.forward(after)
        gradient = differentiate(after, case.wrt)
        values = checked.gradients(gradient)
        for name, value in before.items():
            assert_close(values[name], value, 1e-10, f"gradient of {name}")
        backward = copied(gradient.backward)
        if PropagationPostponing().run(backward, Context()):
            verify(backward)
            checked.gradients(replace(gradient, backward=backward))
    return fired


@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, 80, 40))
def test_random_programs(first: int) -> None:
    fired = 0
    for seed in range(first, first + 40):
        case = random_case(seed)
        try:
            fired += check(case, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{case.text}") from error
    assert fired > 8


def combination(rng: random.Random, width: int, depth: int) -> str:
    """A sum, difference, multiple or concatenation of values of ends and edges."""
    kind = rng.choice(["leaf", "add", "sub", "scale", "divide", "neg", "concat", "concat"]) if depth else "leaf"
    if kind in ("add", "sub"):
        sign = "+" if kind == "add" else "-"
        return f"({combination(rng, width, depth - 1)} {sign} {combination(rng, width, depth - 1)})"
    if kind == "scale":
        return f"{rng.choice(['e.s', '0.5', 't[e.src.ntype]', 'e.dst.d'])} * {combination(rng, width, depth - 1)}"
    if kind == "divide":
        return f"({combination(rng, width, depth - 1)}) / (2.0 + e.s * e.s)"
    if kind == "neg":
        return f"-({combination(rng, width, depth - 1)})"
    if kind == "concat" and width > 1:
        cut = rng.randint(1, width - 1)
        return f"concat({combination(rng, cut, depth - 1)}, {combination(rng, width - cut, depth - 1)})"
    value = rng.choice(["e.src.x", "e.dst.x", "e.dst.z", "e.src_pair.u", "e.f", "w", "e.src.x", "tanh(e.src.x)"])
    return f"slice({value}, 0, {width})" if width < 6 else value


@pytest.mark.no_cover
def test_random_combinations() -> None:
    fired = 0
    for seed in range(25):
        rng = random.Random(seed)
        lines = []
        for number in range(3):
            value = combination(rng, 6, 3)
            if rng.random() < 0.4:
                lines.append(f'e["c{number}"] = {value}')
                value = f'e["c{number}"]'
            weights = rng.choice(["W", "W", "W2[e.etype]", "W3[e.src.ntype]", "W4.T"])
            whole = rng.choice([f"linear({value}, {weights})", f"expand(dot_prd(q, {value}), 4)"])
            if rng.random() < 0.3:
                whole = f"e.s * {whole}"
            lines.append(f'e["y{number}"] = {rng.choice([whole, f"tanh({whole})"])}')
            lines.append(f'e.dst["o{number}"] += e["y{number}"]')
        text = (
            "def p(g, x: NS[6], z: ND[6], u: U[6], f: E[6], s: E, d: ND, t: T, w: ONE[6], q: ONE[6], W: ONE[6, 4], "
            "W2: R[6, 4], W3: T[6, 4], W4: ONE[4, 6]):\n    for e in g.edges():\n"
            + "".join(f"        {line}\n" for line in lines)
            + f"    return o0, o1, o2{rng.choice(['', ', y0'])}\n"
        )
        graph = random_graph(rng, bipartite=False)
        program, sizes = Program(parse(text)), graph.maps()[1]
        generator = torch.Generator().manual_seed(seed)
        inputs = {
            n: torch.randn(sizes[program.space(n)], *program.shape(n), generator=generator, dtype=torch.float64)
            for n in program.inputs
        }
        try:
            fired += check(Case(text, graph, inputs, list(inputs), smooth=True), seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{text}") from error
    assert fired > 25


def test_models_keep_their_values() -> None:
    rng = np.random.default_rng(0)
    for text in (GAT, GCN, EDGECONV):
        program = Program(parse(text))
        graph = random_graph(random.Random(7), bipartite=False)
        sizes = graph.maps()[1]
        inputs = {
            n: torch.from_numpy(rng.standard_normal((sizes[program.space(n)], *program.shape(n))))
            for n in program.inputs
        }
        assert check(Case(text, graph, inputs, list(inputs), smooth=True), 0) > 0
