"""`dacergnn.compile` on functions in program form: values and gradients, spaces from uses, equal listings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import print_program
from dacergnn.modules.functions import ProgramFunction
from dacergnn.modules.native import NativeLayer
from tests.modules.functions import DST, ETYPE, GRAPH, ND, NTYPE, SLOPE, SRC, check, draw, hgt, rgat, rgcn
from tests.modules.layers import EDGES, K, M, R, assert_close, native
from tests.reference.scatter import scatter_count, scatter_extreme, scatter_sum, typed_linear


def gate(e: Any, a: Any) -> Any:
    return sigmoid(dot_prd(e["h"], a) * SLOPE)


@dacergnn.compile
def attend(g, x, W, norm, V, bias, q: ONE[3]):
    """Every kind of row space; a helper in the module, constants of the module."""
    for n in g.src_nodes():
        n["v"] = linear(n.x, V[n.ntype])
    for e in g.edges():
        e["h"] = e.src.x * W[e.etype]
        e["m"] = gate(e, q) * e["h"] * e.norm + linear(e.dst.x, V[e.dst.ntype]) - e.src.v
    for n in g.dst_nodes():
        n["out"] = sum(e["m"] for e in n.incoming_edges()) + bias
    return out, m


def test_values_and_gradients() -> None:
    x, w, norm, v = draw(EDGES.num_src, K), draw(R, K, 3), draw(len(SRC)), draw(4, K, 3)
    bias, q = draw(3), draw(3)
    h = typed_linear(x[SRC], w, ETYPE)
    m = ((h * q).sum(-1) * SLOPE).sigmoid().unsqueeze(-1) * h * norm.unsqueeze(-1)
    m = m + typed_linear(x[DST], v, NTYPE[DST]) - typed_linear(x, v, NTYPE)[SRC]
    expected = scatter_sum(m, DST, ND) + bias, m
    check(attend(GRAPH, x, W=w, norm=norm, V=v, bias=bias, q=q), expected, [x, w, norm, v, bias, q])
    assert torch.equal(attend(GRAPH, x, w, norm, v, bias, q)[1], attend(GRAPH, x, w, norm, v, bias, q=q)[1])


def test_row_spaces_follow_from_uses() -> None:
    @dacergnn.compile
    def program(g, x, y, s, p, u, W, N, Q, b, k):
        for n in g.dst_nodes():
            n["a"] = n.y + Q[n.ntype] + b
        for e in g.edges():
            e["z"] = e["s"] * e.src.x + e.src_pair.u + e.dst_pair["p"] + W[e.etype] + N[e.etype, e.src]
        for r in g.edge_types():
            r["c"] = 2.0 * r.k
        return a, z, c

    found = program.user.spaces(frozenset()).spaces
    assert found == {
        "x": "NS", "y": "ND", "s": "E", "p": "V", "u": "U", "W": "R", "N": "RNS", "Q": "T", "b": "ONE", "k": "R",
    }  # fmt: skip
    sizes = {name: [GRAPH.size(space)] for name, space in found.items()}
    sizes |= {"N": [R, EDGES.num_src], "b": []}
    a = {name: draw(*rows, *(() if name == "s" else (3,))) for name, rows in sizes.items()}
    z = a["s"].unsqueeze(-1) * a["x"][SRC] + a["u"][GRAPH.index("E", "srcpair").long()]
    z = z + a["p"][GRAPH.index("E", "dstpair").long()] + a["W"][ETYPE] + a["N"][ETYPE, SRC]
    check(program(GRAPH, **a), (a["y"] + a["Q"][NTYPE[:ND]] + a["b"], z, 2 * a["k"]), list(a.values()))


def test_an_array_at_both_ends_has_the_rows_of_the_sources() -> None:
    @dacergnn.compile
    def program(g, x, y):
        for e in g.edges():
            e["a"] = e.dst.x * e.dst.y
        for n in g.src_nodes():
            n["b"] = n.x
        return a, b

    spaces = program.user.spaces(frozenset())
    assert spaces.spaces == {"x": "NS", "y": "ND"}
    assert spaces.prefixed == ["x"]


def test_aggregations() -> None:
    @dacergnn.compile
    def program(g, x):
        for n in g.dst_nodes():
            n["a"] = mean(e.src.x for e in n.incoming_edges())
            n["b"] = max(e.src.x for e in n.incoming_edges()) - min(2.0 * e.src.x for e in n.incoming_edges())
        for n in g.src_nodes():
            n["c"] = tanh(sum(e.dst.a for e in n.outgoing_edges())) * n.x
            n["x"] = mean(e.dst["x"] for e in n.outgoing_edges())
        for p in g.dst_pairs():
            p["d"] = mean(e.src.x for e in p.incoming_edges())
        return a, b, c, d

    x = draw(EDGES.num_src, 3)
    count = EDGES.num_src

    def average(values: Tensor, index: Tensor, rows: int) -> Tensor:
        return scatter_sum(values, index, rows) / scatter_count(index, rows, x).clamp(min=1).unsqueeze(-1)

    a = average(x[SRC], DST, ND)
    b = scatter_extreme(x[SRC], DST, ND, "amax") - scatter_extreme(2 * x[SRC], DST, ND, "amin")
    c = scatter_sum(a[DST], SRC, count).tanh() * x
    d = average(average(x[DST], SRC, count)[SRC], GRAPH.index("E", "dstpair").long(), GRAPH.size("V"))
    check(program(GRAPH, x), (a, b, c, d), [x])
    isolated = ~torch.isin(torch.arange(ND), DST)
    assert isolated.any()
    assert not program(GRAPH, x)[1][isolated].any()  # nodes without edges hold 0


OPERATORS = {
    "exp(a)": torch.exp, "log(abs(a) + 1.0)": lambda a: (a.abs() + 1).log(),
    "sqrt(a * a + 1.0)": lambda a: (a * a + 1).sqrt(),
    "leakyrelu(a)": nn.functional.leaky_relu, "leakyrelu(a, 0.3)": lambda a: nn.functional.leaky_relu(a, 0.3),
    "relu(a)": torch.relu, "elu(a)": nn.functional.elu, "elu(a, 0.5)": lambda a: nn.functional.elu(a, 0.5),
    "sigmoid(a)": torch.sigmoid, "tanh(a)": torch.tanh, "abs(a)": torch.abs, "gelu(a)": nn.functional.gelu,
    "max(a, 0.1)": lambda a: a.clamp(min=0.1), "min(a, 0.1)": lambda a: a.clamp(max=0.1), "-a / 2.0": lambda a: -a / 2,
    "a * (a > 0.0)": lambda a: a * (a > 0), "concat(a, reshape(a, 4), a)": lambda a: torch.cat([a, a, a], -1),
    "concat([a, 2.0 * a])": lambda a: torch.cat([a, 2 * a], -1), "sum(a) * a": lambda a: a.sum(-1, keepdim=True) * a,
    "dot_prd(a, a) * a": lambda a: (a * a).sum(-1, keepdim=True) * a, "dot_prod(a, a)": lambda a: (a * a).sum(-1),
    "reshape(a, 2, 2 * 1)": lambda a: a.view(-1, 2, 2),
    "outer_prod(a, tanh(a))": lambda a: a.unsqueeze(-1) * a.tanh().unsqueeze(-2),
    "sum(outer_prod(a, a) * outer_prod(a, a))": lambda a: (a.unsqueeze(-1) * a.unsqueeze(-2)).square().sum(-1),
}  # fmt: skip


def test_every_operator(tmp_path: Path) -> None:
    """One program with all of them; its text is made here, so it is read from a file."""
    lines = "\n".join(f'        n["y{i}"] = {text}' for i, text in enumerate(OPERATORS))
    results = ", ".join(f"y{i}" for i in range(len(OPERATORS)))
    path = tmp_path / "operators.py"
    path.write_text(f"def program(g, x):\n    for n in g.nodes():\n        a = n.x\n{lines}\n    return {results}\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    x = draw(EDGES.num_src, 4)
    check(dacergnn.compile(names["program"])(GRAPH, x), tuple(f(x) for f in OPERATORS.values()), [x])


def test_constants_of_the_closure_and_keywords() -> None:
    def make(factor: float, parts: tuple[int, int]) -> ProgramFunction:
        def scaled(value: Any, by: Any = 1.0) -> Any:
            return value * by * factor

        def add(g: Any, name: Any, shift: Any = 0.5) -> None:
            for n in g.nodes():
                n[name] = n[name] + shift * factor

        @dacergnn.compile(kind="double", y="NS[parts[0], parts[1]]")
        def program(g, y, x=None):
            for n in g.nodes():
                n["out"] = scaled(reshape(n.y, parts[0] * parts[1]), by=2.0 if kind == "double" else 1.0)
                if x:
                    n["out"] += n.x
            add(g, "out")
            add(g, name="out", shift=1.0)
            return out

        return program

    y, x = draw(EDGES.num_src, 3, 2), draw(EDGES.num_src, 6)
    check(make(3.0, (3, 2))(GRAPH, y), y.flatten(1) * 6 + 4.5, [y])
    check(make(0.5, (3, 2))(GRAPH, y, x=x), y.flatten(1) + x + 0.75, [y, x])


@pytest.mark.parametrize(("name", "function"), [("RGCN", rgcn), ("RGAT", rgat), ("HGT", hgt)])
def test_the_same_listing_and_values_as_the_native_layer(name: str, function: ProgramFunction) -> None:
    layer = native(name)
    assert isinstance(layer, NativeLayer)
    x = draw(EDGES.num_src, M if name == "HGT" else K, dtype=torch.float32)
    expected = layer(x, GRAPH)
    found = function(GRAPH, **{"x": x, **layer.arrays(GRAPH)})
    assert_close(found.flatten(1), expected)
    listings: list[list[str]] = []
    for module in (function, layer):
        assert module.last_call is not None
        plan = module.last_call[0].variants[-1].compilation
        assert plan.backward is not None
        listings.append([print_program(plan.forward), print_program(plan.backward)])
    assert listings[0] == listings[1]


@dacergnn.compile
def named_like_spaces(g, E, V, U):
    for e in g.edges():
        e["R"] = linear(e.src.E, U[e.etype])
        e.dst["T"] += dot_prd(e["R"], e.dst.V) * e["R"]
    return T


def test_arrays_named_like_row_spaces() -> None:
    """Compiled programs have arguments of these names for the numbers of rows."""
    x, y, w = draw(EDGES.num_src, K), draw(EDGES.num_dst, 3), draw(R, K, 3)
    h = typed_linear(x[SRC], w, ETYPE)
    expected = scatter_sum((h * y[DST]).sum(-1, keepdim=True) * h, DST, ND)
    check(named_like_spaces(GRAPH, x, V=y, U=w), (expected,), [x, y, w])
