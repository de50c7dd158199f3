"""Programs for sparse features against those for dense ones, values and gradients, in the interpreter."""

from __future__ import annotations

import random
from dataclasses import replace
from textwrap import dedent, indent

import numpy as np
import pytest
import torch

from dacergnn import HeteroGraph, print_program
from dacergnn.errors import UnsupportedCallError
from dacergnn.program import Program, interpret, parse
from dacergnn.sdfg_passes import differentiate
from dacergnn.sdfg_passes.sparse_features import SparseProgram, sparse_features
from dacergnn.sdfg_passes.sparse_products import WeightRows
from tests.support.random_graphs import joined_graph
from tests.support.sparse import as_csr

K = 5
RELATIONS, TYPES = 3, 2
LEADING = {"ONE": (), "R": (RELATIONS,), "T": (TYPES,)}

PROGRAMS = {
    "gcn": ("x: NS[5], W: ONE[5, 4], norm: E, b: ONE[4]", """
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["s"] += e.norm * e.src.x
            n["y"] = relu(linear(n.s, W) + b)
     """),
    "sage": ("x: NS[5], W: ONE[4, 5], root: ONE[4, 5]", """
        for n in g.dst_nodes():
            n["mean"] = mean(e.src.x for e in n.incoming_edges())
            n["y"] = linear(n.mean, W.T) + linear(n.x, root.T)
     """),
    "gin": ("x: NS[5], W: ONE[5, 4], V: ONE[4, 3], eps: ONE", """
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["s"] += e.src.x
            n["y"] = linear(relu(linear((1.0 + eps) * n.x + n.s, W)), V)
     """),
    "gat": ("x: NS[5], W: ONE[5, 6], a: ONE[2, 3]", """
        for n in g.nodes():
            n["h"] = reshape(linear(n.x, W), 2, 3)
        for e in g.edges():
            e["w"] = exp(dot_prd(tanh(e.src.h + e.dst.h), a))
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["y"] += e.w * e.src.h
     """),
    "edge_conv": ("x: NS[5], W: ONE[10, 4], b: ONE[4]", """
        for e in g.edges():
            e["m"] = linear(concat(e.dst.x, e.src.x - e.dst.x), W) + b
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["y"] = max(n["y"], e["m"])
     """),
    "mixed": ("x: NS[5], z: E[2], W: ONE[7, 4]", """
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["y"] += linear(concat(-e.src.x / 2.0, e.z), W)
     """),
    "rgcn": ("x: NS[5], W: R[5, 4], norm: E, root: ONE[5, 4]", """
        for e in g.edges():
            e["m"] = linear(e.src.x, W[e.etype])
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["s"] += e.norm * e["m"]
            n["y"] = n.s + linear(n.x, root)
     """),
    "rgcn_by_pairs": ("x: NS[5], W: R[4, 5]", """
        for p in g.dst_pairs():
            for e in p.incoming_edges():
                p["s"] += e.src.x
            p.dst["y"] += linear(p["s"], W[p.etype].T)
     """),
    "rgat": ("x: NS[5], W: R[5, 4], q: ONE[1, 4], k: ONE[1, 4]", """
        for e in g.edges():
            e["hs"] = reshape(linear(e.src.x, W[e.etype]), 1, 4)
            e["ht"] = reshape(linear(e.dst.x, W[e.etype]), 1, 4)
            e["w"] = exp(leakyrelu(dot_prd(e["ht"], q) + dot_prd(e["hs"], k), 0.2))
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["y"] += e["w"] * e["hs"]
     """),
    "hgt": ("x: NS[5], Wk: T[5, 4], Wq: T[5, 4], att: R[2, 2, 2]", """
        for n in g.src_nodes():
            n["k"] = reshape(linear(n.x, Wk[n.ntype]), 2, 2)
        for n in g.dst_nodes():
            n["q"] = reshape(linear(n.x, Wq[n.ntype]), 2, 2)
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["y"] += dot_prd(linear(e.src.k, att[e.etype]), e.dst.q) * e.src.k
     """),
    "two_ends": ("x: NS[5], z: ND[3], W: ONE[5, 4], V: ONE[3, 4], R_: R[3, 4], T_: T[3, 4]", """
        for n in g.dst_nodes():
            n["own"] = linear(n.z, V) + linear(n.z, T_[n.ntype])
        for n in g.dst_nodes():
            for e in n.incoming_edges():
                n["s"] += linear(e.src.x, W) * (e.dst.own + linear(e.dst.z, R_[e.etype]))
            n["y"] = n.s + n.own
     """),
}  # fmt: skip
"""Arrays, and the loops that compute y."""


def text(name: str) -> str:
    arrays, body = PROGRAMS[name]
    return f"def {name}(g, {arrays}):\n{indent(dedent(body), '    ')}\n    return y\n"


def graph(bipartite: bool) -> HeteroGraph:
    raw = joined_graph(random.Random(5), 12, 40, RELATIONS, TYPES)
    return replace(raw, bipartite=bipartite).hetero()


def arrays_of(program: Program, graph: HeteroGraph, sparse: tuple[str, ...]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    made: dict[str, torch.Tensor] = {}
    for name in program.inputs:
        shape = (graph.size(program.space(name)), *program.shape(name))
        made[name] = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name in sparse:
            made[name] *= torch.rand(shape, generator=generator) < 0.3
    return made


def run(sdfg: object, graph: HeteroGraph, arrays: dict[str, torch.Tensor], wrt: list[str]) -> dict[str, np.ndarray]:
    """y, and the gradients of the sum of its squares."""
    gradient = differentiate(sdfg, wrt)
    found = interpret(gradient.forward, graph, **arrays)
    backward = interpret(gradient.backward, graph, **found, grad_y=2 * found["y"])
    outputs = Program(gradient.backward).outputs
    assert gradient.wrt == wrt
    return {"y": found["y"], **{n: backward[o] for n, o in zip(wrt, outputs, strict=True)}}


def rewritten(name: str, sparse: tuple[str, ...]) -> SparseProgram:
    return sparse_features(parse(text(name)), sparse)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str) -> None:
    sparse = ("x", "z") if name == "two_ends" else ("x",)
    dense = parse(text(name))
    own = graph(bipartite=name == "two_ends")
    arrays = arrays_of(Program(dense), own, sparse)
    weights = [n for n in Program(dense).inputs if n not in sparse]
    wanted = run(dense, own, arrays, weights)

    program = rewritten(name, sparse)
    tensors = {side: as_csr(arrays[n]) for n, side in program.sparse.items()}
    features = own.with_features(tensors["S"], tensors.get("D"))
    leaves = {n: arrays[n].clone().requires_grad_() for n in weights}
    given: dict[str, torch.Tensor] = {}
    for n, made in program.arrays.items():
        if isinstance(made, WeightRows):
            given[n] = made.of(leaves[made.source])
        else:
            given[n] = {"S": features.src, "D": features.dst}[program.sparse[n]] if n in sparse else leaves[n]
    plain = {n: t.detach() for n, t in given.items()}
    found = run(program.sdfg, features.graph, plain, [n for n in given if n not in sparse])
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-12, atol=1e-12)
    for n, value in given.items():
        if n not in sparse:
            value.backward(torch.from_numpy(found[n]).reshape(value.shape), retain_graph=True)
    for n, leaf in leaves.items():
        np.testing.assert_allclose(leaf.grad.numpy(), wanted[n].reshape(leaf.shape), rtol=1e-12, atol=1e-12)
    for space, shape in ((Program(program.sdfg).space(n), Program(program.sdfg).shape(n)) for n in program.sdfg.arrays):
        assert shape != (K,) or space not in ("NS", "ND", "E", "U", "V")
    assert print_program(parse(print_program(program.sdfg))) == print_program(program.sdfg)


def test_products_come_first() -> None:
    lines = print_program(rewritten("sage", ("x",)).sdfg).splitlines()
    assert "\n".join(line for line in lines if "#" not in line) == dedent("""\
        def sage(g, x: ZS, W: FS[4], root: FS[4]):
            for n in g.dst_nodes():
                for e in n.incoming_edges():
                    n["mean_degree"] += 1.0
            for z in g.src_nonzeros():
                z.row["x_W"] += z["x"] * z.column["W"]
            for n in g.dst_nodes():
                for e in n.incoming_edges():
                    n["mean_sum_W"] += e.src["x_W"]
            for n in g.dst_nodes():
                n["tmp"] = n["mean_sum_W"] / max(n["mean_degree"], 1.0)
            for z in g.src_nonzeros():
                z.row["x_root"] += z["x"] * z.column["root"]
            for n in g.dst_nodes():
                n["tmp_1"] = n["x_root"]
            for n in g.dst_nodes():
                n["y"] = n["tmp"] + n["tmp_1"]
            return y""")


@pytest.mark.parametrize(
    ("arrays", "body", "message"),
    [
        (
            "x: NS[5], W: ONE[5, 4]",
            'n["y"] = linear(relu(n.x), W)',
            r'x is sparse, but used in n\["y"\] = .*not linear',
        ),
        ("x: NS[5], W: ONE[5, 5]", 'n["y"] = n.x + linear(n.x, W)', r"only products with weights take it; pass x.to_d"),
        ("x: NS[5], W: ONE[5, 4]", 'n["y"] = linear(n.x * n.x, W)', "the product is not linear in it"),
        ("x: NS[5], W: ONE[5, 4]", 'n["y"] = linear(n.x + 1.0, W)', "the product is not linear in it"),
        ("x: NS[5], a: ONE[5]", 'n["y"] = dot_prd(n.x, a)', "only products with weights take it"),
        ("x: NS[5]", 'n["y"] = n.x', "only products with weights take it"),
        ("x: NS[2, 3], W: ONE[2, 3, 4]", 'n["y"] = linear(n.x, W)', r"x is sparse, but has rows NS\[2, 3\]"),
        ("x: NS[6], W: ONE[2, 3, 4]", 'n["y"] = linear(reshape(n.x, 2, 3), W)', "in the shape that they have"),
        (
            "x: NS[5], B: ONE[5, 3], C: ONE[3, 4]",
            'n["y"] = linear(n.x, W)',
            "W is no input; compute it before, with torch",
        ),
    ],
)
def test_what_is_refused(arrays: str, body: str, message: str) -> None:
    before = '    for o in g.once():\n        o["W"] = compose(B, C)\n' if "compute it" in message else ""
    source = f"def f(g, {arrays}):\n{before}    for n in g.nodes():\n        {body}\n    return y\n"
    with pytest.raises(UnsupportedCallError, match=message):
        sparse_features(parse(source), ["x"])


@pytest.mark.parametrize(
    ("arrays", "body", "message"),
    [
        (
            "x: E[5], W: ONE[5, 4]",
            'e.dst["y"] += linear(e.x, W)',
            r"x is sparse, but has rows E\[5\]; sparse features are",
        ),
        (
            "x: NS[5], W: T[5, 4]",
            'e.dst["y"] += linear(e.src.x, W[e.dst.ntype])',
            "by a type that is neither its own nor an edge's",
        ),
        ("x: NS[5], W: R[5, 4]", 'n["h"] = max(n["h"], e.src.x)', "can only be moved in front of sums"),
    ],
)
def test_what_is_refused_at_edges(arrays: str, body: str, message: str) -> None:
    if "max" in body:
        loops = f"    for n in g.dst_pairs():\n        for e in n.incoming_edges():\n            {body}\n"
        loops += '        n.dst["y"] += linear(n["h"], W[n.etype])\n'
    else:
        loops = f"    for e in g.edges():\n        {body}\n"
    with pytest.raises(UnsupportedCallError, match=message):
        sparse_features(parse(f"def f(g, {arrays}):\n{loops}    return y\n"), ["x"])


def test_two_sparse_arrays_of_one_end() -> None:
    source = (
        "def f(g, x: NS[5], z: NS[5], W: ONE[5, 4]):\n    for n in g.nodes():\n        n['y'] = linear(n.x + n.z, W)\n"
    )
    with pytest.raises(UnsupportedCallError, match=r"z is the second sparse array of NS rows; pass it as z.to_dense"):
        sparse_features(parse(f"{source}    return y\n"), ["x", "z"])
