"""`@dace.program` functions: what they are in program form, what they compute, and what has no program form."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from dacergnn import HeteroGraph, ops
from dacergnn.errors import DacergnnError, UnsupportedCallError
from dacergnn.frontends.dace_program.lifting import lift
from dacergnn.frontends.dace_program.source import program_text
from tests.frontends import dace_layers

ATTENTION = """\
def attention(g, x: NS[6], W: R[6, 4], a: E):
    # SegmentGemm
    for e in g.edges():
        e["y"] = linear(e.src["x"], W[e.etype])
    # Traversal
    for e in g.edges():
        e["messages"] = tanh(e["y"])
    # Traversal
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["largest"] = max(n["largest"], e["a"])
    # Traversal
    for e in g.edges():
        e["y_0"] = exp(e["a"] - detach(e.dst["largest"]))
    # Traversal
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["total"] += e["y_0"]
    # Traversal
    for e in g.edges():
        e["y_1"] = e["y_0"] / e.dst["total"]
    # Traversal
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["y_2"] += e["y_1"] * e["messages"]
    # Traversal
    for n in g.dst_nodes():
        n["out"] = max(n["y_2"], 0.0)
    return out
"""


def test_program_form() -> None:
    assert lift(dace_layers.attention.to_sdfg(simplify=True), "attention") == ATTENTION


class Edges:
    """A graph's edges in canonical order, and what the operators mean in torch."""

    def __init__(self, graph: HeteroGraph) -> None:
        self.src, self.dst, self.etype = (graph.encoding(f"idx_E_{end}").long() for end in ("src", "dst", "etype"))
        self.ntype = graph.encoding("idx_NS_ntype").long()
        self.nodes = graph.size("NS")

    def reduce(self, rows: Tensor, how: str, end: str = "dst") -> Tensor:
        index = getattr(self, end)[:, None].expand(-1, rows.size(1))
        return rows.new_zeros(self.nodes, rows.size(1)).scatter_reduce(0, index, rows, how, include_self=False)

    def softmax(self, score: Tensor) -> Tensor:
        weight = (score - score.max()).exp()
        return weight / weight.new_zeros(self.nodes).index_add(0, self.dst, weight)[self.dst]


def attention(edges: Edges, x: Tensor, W: Tensor, a: Tensor) -> Any:
    messages = torch.einsum("ek,ekm->em", x[edges.src], W[edges.etype]).tanh()
    return edges.reduce(edges.softmax(a)[:, None] * messages, "sum").clamp(min=0.0)


def everything(edges: Edges, x: Tensor, W: Tensor, b: Tensor, L: Tensor, s: Tensor, t: Tensor, slope: Tensor) -> Any:
    scaled = 0.2 * torch.einsum("ek,ekm->em", x[edges.dst], W[edges.etype]) * s + b
    mean = edges.reduce((-scaled).exp() / (1.0 + scaled.abs()), "mean")
    heads = (x[edges.src] * x[edges.dst]).view(-1, 2, 2)
    return (mean.tanh() ** 2 + mean.abs().sqrt()) @ L * slope, (heads * t[:, :, None]).sum(2)


def neighbours(edges: Edges, x: Tensor, W: Tensor) -> Any:
    rows = torch.einsum("nk,nkm->nm", x, W[edges.ntype])
    return edges.reduce(rows[edges.src], "amax"), edges.reduce(rows[edges.src], "amin", "src")


def own_loops(edges: Edges, x: Tensor, a: Tensor, W: Tensor) -> Any:
    scaled = torch.nn.functional.leaky_relu(x[edges.src] * a[:, None], 0.1)
    return edges.reduce(scaled - x[edges.dst] * W.sum(2)[edges.etype], "sum")


def by_type(edges: Edges, x: Tensor, W: Tensor, a: Tensor, b: Tensor, t: Tensor) -> Any:
    rows = torch.einsum("nk,nkm->nm", x, W[edges.ntype]).view(-1, 2, 2)
    scores = a[edges.etype] + b[edges.ntype[edges.src]]
    flat = torch.einsum("nk,nkm->nm", rows.flatten(1), W[edges.ntype])
    steep = torch.where(scores > 0, scores, 0.5 * scores)
    return (
        flat * t[edges.ntype].sigmoid()[:, None],
        steep,
        edges.reduce((rows[edges.src] * scores[..., None]).flatten(1), "sum"),
    )


SHAPES: dict[Callable[..., Any], dict[str, tuple[str | int, ...]]] = {
    attention: {"x": ("NS", 6), "W": ("R", 6, 4), "a": ("E",)},
    everything: {
        "x": ("NS", 4),
        "W": ("R", 4, 4),
        "b": (4,),
        "L": (4, 3),
        "s": ("E", 1),
        "t": ("E", 2),
        "slope": (),
    },
    neighbours: {"x": ("NS", 4), "W": ("T", 4, 4)},
    own_loops: {"x": ("NS", 4), "a": ("E",), "W": ("R", 4, 4)},
    by_type: {"x": ("NS", 4), "W": ("T", 4, 4), "a": ("R", 2), "b": ("T", 2), "t": ("T",)},
}


@pytest.mark.parametrize("restatement", SHAPES, ids=lambda f: f.__name__)
def test_values_and_gradients(restatement: Callable[..., Any]) -> None:
    graph = make_graph()
    generator = torch.Generator().manual_seed(1)
    shapes = {n: [graph.size(d) if isinstance(d, str) else d for d in s] for n, s in SHAPES[restatement].items()}
    arrays = {n: torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for n, s in shapes.items()}
    compiled = dacergnn.compile(getattr(dace_layers, restatement.__name__))
    found, expected = compiled(graph, **arrays), restatement(Edges(graph), **arrays)
    found, expected = (r if isinstance(r, tuple) else (r,) for r in (found, expected))
    expected = tuple(e.view(f.shape) for e, f in zip(expected, found, strict=True))
    upstream = [torch.randn(e.shape, generator=generator, dtype=torch.float64) for e in expected]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad(r, list(arrays.values()), upstream) for r in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


def make_graph() -> HeteroGraph:
    """60 nodes of three types, one of them without edges, and 300 edges of five types, one of them empty."""
    generator = torch.Generator().manual_seed(5)
    edge_index = torch.randint(59, (2, 300), generator=generator)
    node_type = torch.arange(60) % 3
    etype = torch.randint(4, (300,), generator=generator)
    return HeteroGraph.from_arrays(
        edge_index, etype, num_nodes=60, num_edge_types=5, node_type=node_type, num_node_types=3
    )


NO_PROGRAM_FORM = {
    "chooses": "chooses: _where_: MergeLibraryNode has no program form.",
    "repeats": "repeats: loops and branches (LoopRegion, SDFGState) have no program form.",
    "powers": "dace_layers.py:N:M: powers: _Pow_: __in1 ** __in2 has no program form.",
    "columns": "dace_layers.py:N:M: columns: _Add_: b[__i2] is no row of the loop, aligned with its first axes.",
    "other_rows": (
        "dace_layers.py:N:M: other_rows: tests_frontends_dace_layers_N: x[NS - i - 1, j] is no row of the loop, "
        "aligned with its first axes."
    ),
    "maxima": "dace_layers.py:N:M: maxima: Reduce: rows are reduced by a sum over their last axis.",
    "mixed": "mixed mixes element types (double, float); a program has one.",
    "no_rows": (
        '"score" has the shape (10, 4); its first dimension is a row space of dacergnn.ops: NS, ND, E, U, V, R or T, '
        "or 1."
    ),
    "wrong_end": "gather: end is 'source'; for x with NS rows it is 'src' or 'dst'.",
    "of_edges": "gather: x has E rows; it needs rows over NS, ND, T or R.",
    "odd_heads": "typed_linear: heads is 3; use a divisor of the 4 columns of W.",
    "wrong_types": (
        "typed_linear: W has R rows and the product NS rows; matrices are those of edge types (R) for edges, of node "
        "types (T) for nodes."
    ),
    "wrong_reduction": "reduce is 'median'; use one of 'sum', 'mean', 'max', 'min'.",
}


@pytest.mark.parametrize("name", NO_PROGRAM_FORM)
def test_refusals(name: str) -> None:
    with pytest.raises(DacergnnError) as caught:
        program_text(getattr(dace_layers, name))
    message = str(caught.value).replace(f"{Path(dace_layers.__file__).parent}/", "")
    message = re.sub(r"py:\d+:\d+:", "py:N:M:", message)
    assert re.sub(r"layers_\d+", "layers_N", message) == NO_PROGRAM_FORM[name]


def test_operators_outside_of_a_program() -> None:
    message = r"dacergnn\.ops\.gather is part of a @dace\.program; it cannot run outside of one\."
    with pytest.raises(UnsupportedCallError, match=message):
        ops.gather(torch.ones(3, 2))
