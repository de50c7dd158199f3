"""Traversals on every sparse format against the interpreter, and from run to run on several threads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import dace
import pytest
import torch

from dacergnn import Config, Plan, parse
from dacergnn.library_nodes import Statement, Traversal
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, verify
from dacergnn.program.view import StatementGroup
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import Context, SelectAdjacency, compile_program
from dacergnn.sdfg_passes.questions import Questions
from tests.nodes.test_expansions import Compiled, compiled, graphs, hub_graph
from tests.nodes.test_hubs import HUBS, results
from tests.support.random_graphs import RawGraph

FORMATS = ("csc", "coo", "ell", "hybrid")
INPUTS = "a: E, c: E[2], b: NS[5], x: NS[20], l: NS, m: ND, q: ND[20], w: ND[2], h: V, k: U[3]"
NESTS = {
    # A weighted sum of wide rows with what follows; edge values that others read; a count.
    "g": (
        "ND",
        """    for e in g.edges():
        e["g_w"] = e.a * e.dst.m
        e.dst["g_sum"] += e["g_w"] * e.src.x
        e.dst["g_deg"] += e.a
    for n in g.dst_nodes():
        n["g_y"] = relu(n["g_sum"]) + n["g_deg"] * n.q
        n.src["g_out"] = n["g_y"] + n["g_sum"]
""",
        ["g_w", "g_deg", "g_out"],
    ),
    # The same the other way; everything is narrow.
    "t": (
        "NS",
        """    for e in g.edges():
        e["t_w"] = e.c * e.dst.w
        e.src["t_sum"] += e["t_w"] * e.src.l
    for n in g.src_nodes():
        n["t_out"] = n["t_sum"] - n.l
""",
        ["t_out"],
    ),
    # Softmax: three loops over a group, values of edges between them, some stored.
    "s": (
        "ND",
        """    for e in g.edges():
        e["s_x"] = leakyrelu(e.a + e.dst.m, 0.2)
        e.dst["s_large"] = max(e.dst["s_large"], e["s_x"])
        e.dst["s_small"] = min(e.dst["s_small"], e.c)
    for e in g.edges():
        e["s_e"] = exp(e["s_x"] - e.dst["s_large"])
        e.dst["s_total"] += e["s_e"]
        e["s_wide"] = e.src.x * e["s_x"]
    for e in g.edges():
        e["s_att"] = e["s_e"] / e.dst["s_total"]
        e.dst["s_sum"] += e["s_att"] * e.src.b
        e.dst["s_more"] += e["s_wide"] * e["s_att"]
    for n in g.dst_nodes():
        n["s_out"] = n["s_sum"] + n["s_large"]
""",
        ["s_att", "s_small", "s_out", "s_more"],
    ),
    "p": (
        "V",
        """    for e in g.edges():
        e["p_x"] = e.a * e.dst_pair.h
        e.dst_pair["p_large"] = max(e.dst_pair["p_large"], e["p_x"])
    for e in g.edges():
        e.dst_pair["p_sum"] += (e["p_x"] - e.dst_pair["p_large"]) * e.src.x
""",
        ["p_sum", "p_large"],
    ),
    "u": (
        "U",
        """    for e in g.edges():
        e.src_pair["u_sum"] += e.a * e.dst.q
    for p in g.src_pairs():
        p["u_out"] = sum(p["u_sum"]) * p.k
""",
        ["u_out"],
    ),
    # Three levels: stays in compressed rows.
    "v": (
        "ND",
        """    for e in g.edges():
        e.dst_pair["v_sum"] += e.a * e.src.b
    for p in g.dst_pairs():
        p.dst["v_out"] += p["v_sum"] * p.h
""",
        ["v_out"],
    ),
    "d": ("E", '    for e in g.edges():\n        e.dst["d_sum"] += e.src.x\n', ["d_sum"]),
    "f": ("E", '    for e in g.edges():\n        e.src["f_sum"] += e.c * e.dst.w\n', ["f_sum"]),
    "e": ("E", '    for e in g.edges():\n        e.dst["e_low"] = min(e.dst["e_low"], e.c)\n', ["e_low"]),
    "r": ("E", "    for e in g.edges():\n        r_sum[e.etype] += e.a\n", ["r_sum"]),
}
"""Prefix of a nest's arrays -> its mapping, its loops and its results."""
COLUMNS = {"g", "t", "d", "f"}
"""Nests that compressed columns fit: sums into nodes in one loop over the edges."""


def everything(dtype: Typeclass) -> dace.SDFG:
    """All the nests, each an operator."""
    outputs = [name for _, _, names in NESTS.values() for name in names]
    body = "".join(text for _, text, _ in NESTS.values())
    sdfg = parse(f"def p(g, {INPUTS}):\n{body}    return {', '.join(outputs)}\n", dtype=dtype)
    program = Program(sdfg)
    bodies: dict[str, list[Statement]] = {}
    values: list[Statement] = []  # a value without a name of its own comes right before what it is for
    for statement in (s for o in program.operators for s in o.statements):
        values.append(statement)
        if not statement.target.name.startswith("tmp"):
            bodies.setdefault(statement.target.name.split("_")[0], []).extend(values)
            values = []
    groups: list[StatementGroup] = []
    for key, statements in bodies.items():
        local = tuple(s.target.name for s in statements if s.target.name not in program.outputs)
        groups.append(StatementGroup(tuple(statements), NESTS[key][0], local))
    program.regroup(groups)
    verify(sdfg)
    return sdfg


def formats_of(sdfg: dace.SDFG) -> dict[str, str]:
    """Format of every nest, by prefix."""
    traversals = [o for o in Program(sdfg).operators if isinstance(o, Traversal)]
    return {o.written_arrays[0].split("_")[0]: o.adjacency for o in traversals}


def raw_graphs() -> list[RawGraph]:
    """Empty ones, isolated nodes, duplicate edges, hubs; more rows than fit a tile, and ranges that cut them."""
    return [*graphs(), hub_graph(random.Random(1), 40, 30, 3000), HUBS["two and short ones"], HUBS["out of one"]]


@pytest.fixture
def threads() -> Iterator[None]:
    """Puts the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("adjacency", "dtype", "index", "schedule"),
    [
        ("csc", dace.float64, dace.int32, "groups"),
        ("csc", dace.bfloat16, dace.int32, "groups"),
        ("coo", dace.float32, dace.int64, "groups"),
        ("coo", dace.float64, dace.int32, "edges"),
        ("coo", dace.float16, dace.int32, "edges"),
        ("ell", dace.float64, dace.int32, "edges"),
        ("hybrid", dace.float32, dace.int32, "groups"),
        ("hybrid", dace.float64, dace.int64, "edges"),
        ("ell", dace.bfloat16, dace.int64, "groups"),
    ],
)
def test_results(adjacency: str, dtype: Typeclass, index: Typeclass, schedule: str, threads: None) -> None:
    sdfg = everything(dtype)
    for operator in Program(sdfg).operators:
        operator.schedule_by = schedule
    program = compiled(sdfg, "cpu", dtype, index, adjacency)
    fits = COLUMNS if adjacency == "csc" else NESTS.keys() - {"v", "r"}
    assert formats_of(sdfg) == {key: adjacency if key in fits else "csr" for key in NESTS}
    for number, raw in enumerate(raw_graphs()):
        torch.set_num_threads(1 + number % 3)
        program.check(raw, number)
    if index == dace.int32:
        check_threads(program)


def test_formats_agree() -> None:
    """The same sum on each of them, in one program: the five results pairwise."""
    formats = ("csr", *FORMATS)
    sums = "".join(f'        e.dst["{form}"] += e.a * e.src.x\n' for form in formats)
    text = f"def p(g, a: E, x: NS[20]):\n    for e in g.edges():\n{sums}    return {', '.join(formats)}\n"
    sdfg = parse(text, dtype=dace.float64)
    SelectAdjacency().run(sdfg, Context(questions=Questions(Plan.of({form: form for form in formats}))))
    assert formats_of(sdfg) == {form: form for form in formats}
    executable = Executable(sdfg)
    for raw in raw_graphs():
        graph = raw.hetero()
        given = [torch.randn(shape, dtype=torch.float64) for shape in (graph.size("E"), (graph.size("NS"), 20))]
        found = dict(zip(formats, executable(executable.prepare(graph), given), strict=True))
        for one, other in combinations(formats, 2):
            assert torch.allclose(found[one], found[other], rtol=1e-11, atol=1e-11), f"{one} and {other}"


def check_threads(program: Compiled) -> None:
    """The same bits for any number of threads."""
    for raw in (HUBS["two and short ones"], hub_graph(random.Random(1), 40, 30, 3000)):
        expected = results(program, raw, 1)
        for number in (2, 2, 3):
            found = results(program, raw, number)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("asked", ["coo", "hybrid"])
def test_coordinates_need_an_array_with_a_row_for_each_group(asked: str) -> None:
    """Sums of pairs that stay inside a loop leave nothing that tells how many pairs there are."""
    text = """def share(g, a: E):
    for e in g.edges():
        e.dst_pair["s"] += e.a
    for e in g.edges():
        e["y"] = e.a / e.dst_pair["s"]
    return y
"""
    found = compile_program(parse(text), [], Config(adjacency=asked), dace.int32, keep=False).forward
    (operator,) = Program(found).operators
    assert (operator.space, operator.adjacency) == ("V", "csr" if asked == "coo" else asked)
    assert "V" in lower(found).signature
