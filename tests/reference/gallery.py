"""The models of `examples/`, restated from their formulas; each takes the parameters by name, the edges and x."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dacergnn import HeteroGraph
from tests.reference.scatter import scatter_count, scatter_softmax, scatter_sum, typed_linear

Parameters = Mapping[str, Tensor]


@dataclass
class Edges:
    src: Tensor
    dst: Tensor
    etype: Tensor
    ntype: Tensor
    count: int
    relations: int

    @classmethod
    def of(cls, graph: HeteroGraph) -> Edges:
        """Edges in the canonical order of a graph whose sources are its destinations."""
        ends = [graph.index("E", path).long() for path in ("src", "dst", "etype")]
        return cls(*ends, graph.index("NS", "ntype").long(), graph.size("ND"), graph.size("R"))

    @property
    def pair(self) -> Tensor:
        """[E]: the (destination, relation) pair of each edge, out of count * relations."""
        return self.etype * self.count + self.dst

    def sum(self, values: Tensor) -> Tensor:
        return scatter_sum(values, self.dst, self.count)

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / scatter_count(self.dst, self.count, values).clamp(min=1).unsqueeze(-1)

    def softmax(self, values: Tensor) -> Tensor:
        return scatter_softmax(values, self.dst, self.count)


def listing1(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    hs, ht = typed_linear(x[g.src], p["W"], g.etype), typed_linear(x[g.dst], p["W"], g.etype)
    score = (hs * p["w_s"][g.etype]).sum(-1) + (ht * p["w_t"][g.etype]).sum(-1)
    power = functional.leaky_relu(score, 0.01).exp()
    return g.sum((power / g.sum(power)[g.dst]).unsqueeze(-1) * hs)


def rgcn(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    degree = scatter_count(g.pair, g.count * g.relations, x)[g.pair].unsqueeze(-1)
    return g.sum(typed_linear(x[g.src], p["conv.W"], g.etype) / degree) + x @ p["conv.root"] + p["conv.bias"]


def rgat(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    q, k = p["conv.q"], p["conv.k"]
    hs = typed_linear(x[g.src], p["conv.W"], g.etype).view(-1, *q.shape)
    ht = typed_linear(x[g.dst], p["conv.W"], g.etype).view(-1, *q.shape)
    att = g.softmax(functional.leaky_relu((ht * q).sum(-1) + (hs * k).sum(-1), 0.2))
    return (g.sum(att.unsqueeze(-1) * hs) + p["conv.bias"]).mean(1)


def hgt(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    heads, width = p["conv.W_att"].shape[1:3]
    k, q, v = (typed_linear(x, p[f"conv.W_{n}"], g.ntype).view(-1, heads, width) for n in "kqv")
    score = (typed_linear(k[g.src], p["conv.W_att"], g.etype) * q[g.dst]).sum(-1)
    att = g.softmax(score * p["conv.pri"][g.etype] / width**0.5)
    agg = g.sum(att.unsqueeze(-1) * typed_linear(v[g.src], p["conv.W_msg"], g.etype)).flatten(1)
    gate = p["conv.skip"][g.ntype].sigmoid().unsqueeze(-1)
    out = x + gate * (typed_linear(agg, p["conv.A"], g.ntype) - x)
    return out @ p["classify.weight"].T + p["classify.bias"]


def sage(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    return g.mean(x[g.src]) @ p["W"] + x @ p["W_self"] + p["bias"]


def gin(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    h = (1 + p["eps"]) * x + g.sum(x[g.src])
    return (h @ p["W_1"] + p["b_1"]).relu() @ p["W_2"] + p["b_2"]


def gatv2(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    a = p["conv.a"]
    left, right = ((x @ p[f"conv.W_{n}"]).view(-1, *a.shape) for n in ("src", "dst"))
    att = g.softmax((functional.leaky_relu(left[g.src] + right[g.dst], 0.2) * a).sum(-1))
    return g.sum(att.unsqueeze(-1) * left[g.src]).mean(1)


def compgcn(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    return _compgcn(p, g, x, torch.sub)


def compgcn_multiplication(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    return _compgcn(p, g, x, torch.mul)


def _compgcn(p: Parameters, g: Edges, x: Tensor, compose: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    z = p["first.z"]
    for layer in ("first", "second"):
        x = x.relu() if layer == "second" else x
        messages = compose(x[g.src], z[g.etype]) @ p[f"{layer}.W"]
        x = g.mean(messages) + compose(x, p[f"{layer}.loop"]) @ p[f"{layer}.W_self"]
        z = z @ p[f"{layer}.W_rel"]
    return x


def rgin(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    h = (1 + p["eps"]) * (x @ p["W_self"]) + g.sum(typed_linear(x[g.src], p["W"], g.etype))
    return (h.relu() @ p["W_1"] + p["b_1"]).relu() @ p["W_2"] + p["b_2"]


def simple_hgn(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    a, a_rel = p["conv.a_src"], p["conv.a_rel"]
    h = (x @ p["conv.W"]).view(-1, *a.shape)
    relation = ((p["conv.rel"] @ p["conv.W_rel"]).view(-1, *a_rel.shape) * a_rel).sum(-1)
    score = (h * a).sum(-1)[g.src] + (h * p["conv.a_dst"]).sum(-1)[g.dst] + relation[g.etype]
    att = g.softmax(functional.leaky_relu(score, 0.05))
    residual = (x @ p["conv.W_res"]).view(-1, *a.shape)
    return functional.elu(g.sum(att.unsqueeze(-1) * h[g.src]) + residual).mean(1)


def han(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    h = typed_linear(x, p["conv.W"], g.ntype)
    score = (h[g.src] * p["conv.a_src"][g.etype]).sum(-1) + (h[g.dst] * p["conv.a_dst"][g.etype]).sum(-1)
    pairs = g.count * g.relations
    att = scatter_softmax(functional.leaky_relu(score, 0.2), g.pair, pairs)
    z = functional.elu(scatter_sum(att.unsqueeze(-1) * h[g.src], g.pair, pairs)).view(g.relations, g.count, -1)
    there = (scatter_count(g.pair, pairs, x) > 0).view(g.relations, g.count)
    semantic = ((z @ p["project.weight"].T + p["project.bias"]).tanh() @ p["query.weight"].T).squeeze(-1)
    beta = ((semantic * there).sum(1) / there.sum(1).clamp(min=1)).softmax(0)
    out = (beta.view(-1, 1, 1) * z * there.unsqueeze(-1)).sum(0)
    return functional.layer_norm(out, out.shape[1:], p["norm.weight"], p["norm.bias"])


def gated_graph(p: Parameters, g: Edges, x: Tensor) -> Tensor:
    for _ in range(2):
        m = g.sum(typed_linear(x[g.src], p["step.W"], g.etype))

        def gate(name: str, state: Tensor, m: Tensor = m) -> Tensor:
            return m @ p[f"step.W_{name}"] + state @ p[f"step.U_{name}"] + p[f"step.b_{name}"]

        r, z = gate("r", x).sigmoid(), gate("z", x).sigmoid()
        x = (1 - z) * gate("n", r * x).tanh() + z * x
    return x @ p["classify.weight"].T + p["classify.bias"]
