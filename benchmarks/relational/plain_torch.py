"""Computes RGCN, RGAT and HGT in plain PyTorch, as an expert writes them without a compiler.

Variants of each: `edges` transforms one row per edge, `sources` one row per (source, edge type) pair.
`destinations` and `pairs` sum first, and transform one row per (destination, edge type) pair. `edges` and `pairs`
use index_add_; the others use sparse products, which are faster on a CPU. A matmul for each type runs over
contiguous rows. With many small types, it is faster to pad types of similar size and to batch them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.relational.candidate import Built, Candidate, Wrap, finish, leaf
from benchmarks.relational.parameters import Parameters, Slot
from benchmarks.relational.plain_layout import PlainLayout, Products
from benchmarks.relational.plain_matmul import typed_matmul
from benchmarks.relational.plain_ops import Pattern, aggregate, edge_dot, softmax
from benchmarks.relational.problem import Problem

Weights = Mapping[str, Tensor]
Forward = Callable[[Weights, Tensor, PlainLayout], Tensor]


def rgcn_edges(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    messages = typed_matmul(x.index_select(0, g.src), p["weight"], g.edges) * g.mean[:, None]
    return torch.addmm(p["bias"], x, p["root"]) + g.sum_edges(messages)


def rgcn_pairs(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    sums = x.new_zeros(len(g.v.node), x.shape[1]).index_add(0, g.v.of_edge, x.index_select(0, g.src) * g.mean[:, None])
    out = torch.addmm(p["bias"], x, p["root"])
    return out.index_add(0, g.v.node, g.v.matmul(sums, p["weight"]))


def rgcn_sources(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    rows = g.u.matmul(x.index_select(0, g.u.node), p["weight"])
    return torch.addmm(p["bias"], x, p["root"]) + aggregate(g.mean, rows, g.node_from_u)


def rgcn_destinations(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    rows = g.v.matmul(aggregate(g.mean, x, g.v_from_node), p["weight"])
    return torch.addmm(p["bias"], x, p["root"]) + g.sum_pairs(rows)


def _rgat_weights(source: Tensor, destination: Tensor, g: PlainLayout) -> Tensor:
    """Computes attention from the scores of every edge's two pairs."""
    return softmax(functional.leaky_relu(source + destination, 0.2), g.dst, g.n)


def _scores(vector: Tensor, x: Tensor, weight: Tensor, by_type: Pattern, of_edge: Tensor) -> Tensor:
    """Computes x @ weight @ vector once for every (node, edge type) pair, and gathers the results for every edge."""
    return edge_dot((weight @ vector).squeeze(-1), x, by_type).index_select(0, of_edge)


def rgat_edges(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    sent = typed_matmul(x.index_select(0, g.src), p["weight"], g.edges)
    held = typed_matmul(x.index_select(0, g.dst), p["weight"], g.edges)
    logits = functional.leaky_relu((held @ p["q"] + sent @ p["k"]).squeeze(-1), 0.2)
    return g.sum_edges(sent * softmax(logits, g.dst, g.n)[:, None]) + p["bias"]


def rgat_sources(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    rows = g.u.matmul(x.index_select(0, g.u.node), p["weight"])
    destination = _scores(p["q"], x, p["weight"], g.type_by_v, g.v_of_edge)
    alpha = _rgat_weights((rows @ p["k"]).squeeze(-1).index_select(0, g.u.of_edge), destination, g)
    return aggregate(alpha, rows, g.node_from_u) + p["bias"]


def rgat_destinations(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    source = _scores(p["k"], x, p["weight"], g.type_by_u, g.u_of_edge)
    destination = _scores(p["q"], x, p["weight"], g.type_by_v, g.v_of_edge)
    alpha = _rgat_weights(source, destination, g)
    return g.sum_pairs(g.v.matmul(aggregate(alpha, x, g.v_from_node), p["weight"])) + p["bias"]


def _hgt(p: Weights, x: Tensor, g: PlainLayout, messages: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Computes the projections around the relational part, which messages(k, q, v) computes."""
    ntype, d = g.problem.ntype, x.shape[1]
    parts = zip(p["kqv_weight"].split(d, dim=2), p["kqv_bias"].split(d, dim=1), strict=True)
    k, q, v = (typed_matmul(x, w, g.nodes) + b.index_select(0, ntype) for w, b in parts)
    summed = functional.gelu(messages(k, q, v))
    new = typed_matmul(summed, p["out_weight"], g.nodes) + p["out_bias"].index_select(0, ntype)
    return torch.lerp(x, new, torch.sigmoid(p["skip"]).index_select(0, ntype)[:, None])


def _hgt_weights(p: Weights, products: Tensor, g: PlainLayout, d: int) -> Tensor:
    return softmax(products * (p["pri"] / math.sqrt(d)).index_select(0, g.etype), g.dst, g.n)


def hgt_edges(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    def messages(k: Tensor, q: Tensor, v: Tensor) -> Tensor:
        keys = typed_matmul(k.index_select(0, g.src), p["att"], g.edges)
        alpha = _hgt_weights(p, (keys * q.index_select(0, g.dst)).sum(-1), g, x.shape[1])
        return g.sum_edges(typed_matmul(v.index_select(0, g.src), p["msg"], g.edges) * alpha[:, None])

    return _hgt(p, x, g, messages)


def hgt_sources(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    def messages(k: Tensor, q: Tensor, v: Tensor) -> Tensor:
        keys = g.u.matmul(k.index_select(0, g.u.node), p["att"])
        values = g.u.matmul(v.index_select(0, g.u.node), p["msg"])
        alpha = _hgt_weights(p, edge_dot(q, keys, g.node_from_u), g, x.shape[1])
        return aggregate(alpha, values, g.node_from_u)

    return _hgt(p, x, g, messages)


def hgt_destinations(p: Weights, x: Tensor, g: PlainLayout) -> Tensor:
    def messages(k: Tensor, q: Tensor, v: Tensor) -> Tensor:
        queries = g.v.matmul(q.index_select(0, g.v.node), p["att"].transpose(1, 2))
        alpha = _hgt_weights(p, edge_dot(queries, k, g.v_from_node), g, x.shape[1])
        return g.sum_pairs(g.v.matmul(aggregate(alpha, v, g.v_from_node), p["msg"]))

    return _hgt(p, x, g, messages)


FORWARDS: tuple[tuple[str, Forward], ...] = (
    ("rgcn", rgcn_edges),
    ("rgcn", rgcn_pairs),
    ("rgcn", rgcn_sources),
    ("rgcn", rgcn_destinations),
    ("rgat", rgat_edges),
    ("rgat", rgat_sources),
    ("rgat", rgat_destinations),
    ("hgt", hgt_edges),
    ("hgt", hgt_sources),
    ("hgt", hgt_destinations),
)


class PlainLayer(nn.Module):
    """Holds the parameters of one layer as the functions above expect them."""

    def __init__(self, forward: Forward, problem: Problem, shared: Parameters, layout: PlainLayout) -> None:
        super().__init__()
        self.tensors = {name: nn.Parameter(value.to(problem.x, copy=True)) for name, value in shared.items()}
        for name, value in self.tensors.items():
            self.register_parameter(name, value)
        self.layout, self.function = layout, forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.tensors, x, self.layout)


def _builder(
    forward: Forward, products: Products = "typed", *, scatter: bool = False
) -> Callable[[Problem, Parameters, Wrap], Built]:
    def build(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
        layer = PlainLayer(forward, problem, shared, PlainLayout(problem, products, scatter=scatter))
        x, run = leaf(problem.x), wrap(layer)
        slots = [Slot(name, value) for name, value in layer.tensors.items()]
        return finish(lambda: run(x), (x,), slots, shared, layer)

    return build


def candidates(model: str, library: str = "torch", device: str = "cpu") -> list[Candidate]:
    """Returns all variants of a model; `padded` ones run one batched matmul over types of similar size.

    On a CUDA device there are further ones that sum by index_add (`scatter`), which may be fastest there.

    Args:
        library: "torch", or "grouped" for variants whose typed products are those of torch._grouped_mm. Where torch
            has no grouped kernel for the element type, these fail, and their rows say so.
    """
    kinds: tuple[Products, ...] = ("grouped",) if library == "grouped" else ("typed", "padded")
    scatters = (False, True) if library == "grouped" or device != "cpu" else (False,)
    variants: list[Candidate] = []
    for name, forward in FORWARDS:
        label = forward.__name__.removeprefix(f"{name}_")
        for kind, scatter in product(kinds, scatters):
            if name == model and (label in ("sources", "destinations") or (kind == "typed" and not scatter)):
                parts = [label, *["padded"] * (kind == "padded"), *["scatter"] * scatter]
                variants.append(
                    Candidate(" ".join(parts), library, name, _builder(forward, kind, scatter=scatter), name)
                )
    return variants
