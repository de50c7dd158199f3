"""`dacergnn.compile` on functions in program form: values and gradients, spaces from uses, modules, wrong calls."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config, HeteroGraph, print_program
from dacergnn.errors import ArrayError, DacergnnError, ProgramError
from dacergnn.modules.functions import ProgramFunction
from dacergnn.modules.native import NativeLayer
from examples.attention import edge_softmax
from tests.frontends.graphs import typed_edges
from tests.modules.layers import EDGES, K, M, R, assert_close, hetero_graph, native, weighted
from tests.reference.scatter import scatter_count, scatter_extreme, scatter_sum, typed_linear

GRAPH = hetero_graph()
SRC, DST, ETYPE = (GRAPH.index("E", path).long() for path in ("src", "dst", "etype"))
NTYPE = GRAPH.index("NS", "ntype").long()
ND = GRAPH.size("ND")
HEADS, SLOPE = 2, 0.2  # read by programs


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


def check(found: Any, expected: Any, inputs: list[Tensor]) -> None:
    """Values and gradients agree."""
    found, expected = (v if isinstance(v, tuple) else (v,) for v in (found, expected))
    assert len(found) == len(expected)
    total, other = (sum(weighted(v) for v in values) for values in (found, expected))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    for a, b in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(other, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


# Programs ---------------------------------------------------------------------------------------------------


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


# The front ends' programs -----------------------------------------------------------------------------------


@dacergnn.compile(heads=HEADS, channels=4, slope=SLOPE)
def rgat(g, x, W, q, k, bias):
    for e in g.edges():
        e["hs"] = reshape(linear(e.src.x, W[e.etype]), heads, channels)
        e["ht"] = reshape(linear(e.dst.x, W[e.etype]), heads, channels)
        e["att"] = leakyrelu(dot_prd(e["ht"], q) + dot_prd(e["hs"], k), slope)
    edge_softmax(g, "att")
    for n in g.dst_nodes():
        n["out"] = sum(e["att"] * e["hs"] for e in n.incoming_edges())
        n["out"] = n["out"] + bias
    return out


@dacergnn.compile
def rgcn(g, x, W, norm, root, bias):
    for e in g.edges():
        e["msg"] = e.src.x * W[e.etype]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.norm * e["msg"]
        n["out"] = n["out"] + linear(n.x, root)
        n["out"] = n["out"] + bias
    return out


@dacergnn.compile(heads=HEADS, dim=4, width=8, scale=0.5)
def hgt(g, x, W_k, W_q, W_v, W_att, W_msg, pri, A, skip):
    for n in g.src_nodes():
        n["k"] = reshape(linear(n.x, W_k[n.ntype]), heads, dim)
        n["v"] = reshape(linear(n.x, W_v[n.ntype]), heads, dim)
    for n in g.dst_nodes():
        n["q"] = reshape(linear(n.x, W_q[n.ntype]), heads, dim)
    for e in g.edges():
        e["att"] = dot_prd(linear(e.src.k, W_att[e.etype]), e.dst.q) * pri[e.etype] * scale
    edge_softmax(g, "att")
    for n in g.dst_nodes():
        n["agg"] = sum(e["att"] * linear(e.src.v, W_msg[e.etype]) for e in n.incoming_edges())
        n["out"] = n.x + sigmoid(skip[n.ntype]) * (linear(reshape(n.agg, width), A[n.ntype]) - n.x)
    return out


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
        plan = module.last_call[0].variants[-1].plan
        assert plan.backward is not None
        listings.append([print_program(plan.forward), print_program(plan.backward)])
    assert listings[0] == listings[1]


# Modules ----------------------------------------------------------------------------------------------------


def test_module_has_parameters_for_the_given_shapes() -> None:
    net = rgcn.module(GRAPH, W=(K, 3), root=(K, 3), bias=3)
    assert {n: tuple(p.shape) for n, p in net.named_parameters()} == {"W": (R, K, 3), "root": (K, 3), "bias": (3,)}
    assert not net.bias.any()
    assert 0 < net.W.abs().max() <= (6 / (K + 3)) ** 0.5
    x, norm = draw(EDGES.num_src, K, dtype=torch.float32), draw(len(SRC), dtype=torch.float32)
    expected = rgcn(GRAPH, x, net.W, norm, net.root, net.bias)
    assert_close(net(GRAPH, x, norm), expected)
    assert_close(net(GRAPH, norm=norm, x=x), expected)
    assert repr(net) == f"FunctionModule(rgcn: W [{R}, {K}, 3], root [{K}, 3], bias [3])"
    counted = rgcn.module(num_edge_types=R, W=(K, 3), root=(K, 3), bias=3)
    assert [p.shape for p in counted.parameters()] == [p.shape for p in net.parameters()]


def test_module_is_stored_and_copied() -> None:
    net, other = (rgcn.module(GRAPH, W=(K, 3), root=(K, 3), bias=3) for _ in range(2))
    args = GRAPH, draw(EDGES.num_src, K, dtype=torch.float32), draw(len(SRC), dtype=torch.float32)
    other.load_state_dict(net.state_dict(), strict=True)
    expected = net(*args)
    model = nn.ModuleDict({"conv": net})
    assert list(model.state_dict()) == ["conv.W", "conv.root", "conv.bias"]
    for copied in (other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert_close(copied(*args), expected)
    assert copy.deepcopy(rgcn) is rgcn
    double = net.double()(GRAPH, *(a.double() for a in args[1:]))
    assert double.dtype is torch.float64


def test_training_reaches_all_parameters() -> None:
    net = rgat.module(GRAPH, W=(K, 8), q=(2, 4), k=(2, 4), bias=(2, 4))
    net(GRAPH, draw(EDGES.num_src, K, dtype=torch.float32)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in net.parameters())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_compile() -> None:
    torch._dynamo.reset()
    net = rgcn.module(GRAPH, W=(K, 3), root=(K, 3), bias=3)
    x, norm = draw(EDGES.num_src, K, dtype=torch.float32), draw(len(SRC), dtype=torch.float32)
    fast = torch.compile(net, fullgraph=True, backend="aot_eager")
    assert_close(fast(GRAPH, x, norm), net(GRAPH, x, norm))
    inputs = [x, norm, *net.parameters()]
    found, expected = (torch.autograd.grad(weighted(f(GRAPH, x, norm)), inputs) for f in (fast, net))
    assert_close(list(found), list(expected))
    w, b = draw(R, K, 3, dtype=torch.float32), draw(3, dtype=torch.float32)
    many = torch.compile(lambda x: two_results(GRAPH, x, W=w, b=b)[0].relu(), fullgraph=True, backend="aot_eager")
    assert_close(many(x), two_results(GRAPH, x, W=w, b=b)[0].relu())
    torch._dynamo.reset()


@dacergnn.compile
def two_results(g, x, W, b):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype]) + b
    for p in g.src_pairs():
        p["count"] = sum(1.0 for e in p.outgoing_edges())
    return count, m


def test_reports_and_saved_steps(tmp_path: Path) -> None:
    config = Config("O0")
    function = dacergnn.compile(config=config)(rgcn.user.source)
    with pytest.raises(DacergnnError, match="this rgcn has not been called yet"):
        function.save_sdfg(tmp_path)
    net = function.module(GRAPH, W=(K, 3), root=(K, 3), bias=3)
    net(GRAPH, draw(EDGES.num_src, K, dtype=torch.float32), draw(len(SRC), dtype=torch.float32))
    assert net.config is config
    assert str(dacergnn.explain(net)).startswith("(model): rgcn compiled")
    assert next(p.name for p in net.save_sdfg(tmp_path)) == "00_frontend.sdfg"


def test_autocast_computes_in_single_precision() -> None:
    x, w = draw(EDGES.num_src, K, dtype=torch.float32), draw(R, K, 3, dtype=torch.float32)
    b = draw(3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = two_results(GRAPH, x.bfloat16(), w, b)[1]
    assert_close(found, two_results(GRAPH, x.bfloat16().float(), w, b)[1])


def test_other_shapes_are_compiled_anew() -> None:
    for k, m in ((K, 3), (3, K)):
        x, w = draw(EDGES.num_src, k, dtype=torch.float32), draw(R, k, m, dtype=torch.float32)
        assert_close(two_results(GRAPH, x, w, torch.zeros(m))[1], typed_linear(x[SRC], w, ETYPE))
    small = hetero_graph(typed_edges(7, 3))
    x, w = draw(small.size("NS"), K, dtype=torch.float32), draw(R, K, 3, dtype=torch.float32)
    ends = [small.index("E", path).long() for path in ("src", "etype")]
    assert_close(two_results(small, x, w, torch.zeros(3))[1], typed_linear(x[ends[0]], w, ends[1]))


# Wrong calls ------------------------------------------------------------------------------------------------

X, W3, B3 = torch.zeros(EDGES.num_src, K), torch.zeros(R, K, 3), torch.zeros(3)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((GRAPH, X), {"W": W3}, "b is missing; two_results takes x, W, b."),
    ((GRAPH, X, W3, B3, B3), {}, "two_results takes 3 arrays besides the graph (x, W, b), not 4."),
    ((GRAPH, X, W3), {"b": B3, "w": W3}, "w is no array of two_results; perhaps W is meant."),
    ((GRAPH, X, W3), {"x": X, "b": B3}, "x is given twice; leave it out."),
    (
        (GRAPH, X[1:], W3, B3),
        {},
        f"x has shape ({EDGES.num_src - 1}, {K}), but its rows are source nodes, of which the graph has "
        f"{EDGES.num_src}; it must have shape [{EDGES.num_src}, ...].",
    ),
    (
        (GRAPH, X, W3[1:], B3),
        {},
        f"W has shape ({R - 1}, {K}, 3), but its rows are edge types, of which the graph has {R}; it must have shape "
        f"[{R}, ...].",
    ),
    ((GRAPH, X, W3.double(), B3), {}, "W has dtype torch.float64, but x has torch.float32; use .to(torch.float32)."),
    ((GRAPH, X.long(), W3, B3), {}, "x has dtype torch.int64; it must be torch.float32 or torch.float64."),
    ((GRAPH, X, W3, 0.5), {}, "b is a float; it must be a tensor; give constants to compile."),
    ((X, X, W3, B3), {}, "graph is a Tensor; make a HeteroGraph of it with from_pyg, from_dgl or from_arrays."),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), CALLS, ids=[c[2][:20] for c in CALLS])
def test_wrong_call(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ArrayError) as caught:
        two_results(*args, **kwargs)
    assert str(caught.value) == message


def test_wrong_rows_on_a_graph_that_is_known() -> None:
    two_results(GRAPH, X, W3, B3)
    with pytest.raises(ArrayError, match=r"W has shape \(1, 6, 3\), but its rows are edge types"):
        two_results(GRAPH, X, W3[:1], B3)


def test_declared_shapes_are_checked() -> None:
    @dacergnn.compile(x=f"NS[{K}]")
    def program(g, x):
        for n in g.nodes():
            n["y"] = 2.0 * n.x
        return y

    with pytest.raises(ArrayError, match=rf"it must have shape \[{EDGES.num_src}, {K}\]"):
        program(GRAPH, X[:, 1:])


def test_graph_with_other_nodes_at_the_ends() -> None:
    graph = HeteroGraph.from_arrays(torch.tensor([[0, 1], [0, 0]]), None, num_nodes=(2, 2), bipartite=True)

    @dacergnn.compile
    def program(g, x):
        for e in g.edges():
            e["y"] = e.src.x + e.dst.x
        return y

    with pytest.raises(ArrayError, match="graph is bipartite, but program reads x at sources and at destinations"):
        program(graph, torch.zeros(2, 3))


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"slop": 0.2}, "compile: rgat has no array and reads no constant 'slop'; perhaps slope is meant."),
    ({"slope": [0.2]}, "compile: slope is of type list; it must be a number, text, truth value or tuple."),
    ({"x": 3}, 'compile: x is of type int; it must be a declaration like "NS[64]".'),
]


@pytest.mark.parametrize(("bindings", "message"), WRONG_SETTINGS)
def test_wrong_settings(bindings: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        dacergnn.compile(**bindings)(rgat.user.source)
    assert str(caught.value) == message


def test_what_is_no_program() -> None:
    def constant(g, x, heads=2): ...
    def many(g, *arrays): ...
    def none(): ...

    for wrong, message in (
        (constant, r"constant: heads=2 is no array; a program takes the graph and arrays"),
        (many, r"many: \*arrays is no array"),
        (none, r"none: a program takes the graph: def none\(g, x, \.\.\.\)"),
        ("text", r"compile takes a function in program form, not a str"),
    ):
        with pytest.raises(ProgramError, match=message):
            dacergnn.compile(wrong)  # type: ignore[arg-type]
    names: dict[str, Any] = {}
    exec("def unseen(g, x):\n    return x\n", names)
    with pytest.raises(ProgramError, match="cannot be read; define it with def in a file"):
        dacergnn.compile(names["unseen"])(GRAPH, X)


MODULES: list[tuple[dict[str, Any], str]] = [
    ({"x": K}, "x has a row for each of the graph's NS and is an input of the module; leave it out."),
    ({"w": (K, 3)}, "w is no array of two_results; perhaps W is meant."),
    ({"W": (K, 3), "b": 3, "type": 3}, "type is no array of two_results."),
    ({"W": (K, 3)}, "W has rows by type; give the module a graph, or num_edge_types and num_node_types."),
]


@pytest.mark.parametrize(("shapes", "message"), MODULES)
def test_wrong_modules(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArrayError) as caught:
        two_results.module(**shapes)
    assert str(caught.value) == message


def test_wrong_calls_of_modules() -> None:
    net = two_results.module(GRAPH, W=(K, 3), b=3)
    with pytest.raises(ArrayError, match=r"x is missing; two_results takes x\."):
        net(GRAPH)
    with pytest.raises(ArrayError, match=r"W is a parameter of this module already; leave it out\."):
        net(GRAPH, X, W=W3)


def test_names_that_modules_have_themselves() -> None:
    @dacergnn.compile
    def program(g, x, half):
        for n in g.nodes():
            n["y"] = n.x * half
        return y

    with pytest.raises(ArrayError, match="half is a name that modules of torch use themselves"):
        program.module(GRAPH, half=())
