"""Forwards over heterographs: a program for each relation, which relations that do the same share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")

from tests.frontends.dgl_forward import compared, hetero_graph, programs, rows  # noqa: E402

fn, edge_softmax = dgl.function, dgl.nn.functional.edge_softmax
SIZES = {"paper": 7, "author": 4, "topic": 3}
RELATIONS = ("cites", "writes", "has", "reviews")


def features(width: int) -> dict[str, Tensor]:
    return {kind: rows(count, width) for kind, count in SIZES.items()}


class Relations(nn.Module):
    def __init__(self, reduction: str, across: str) -> None:
        super().__init__()
        self.reduction, self.across = reduction, across
        self.weight = nn.ModuleDict({r: nn.Linear(3, 4) for r in RELATIONS})

    def forward(self, g: Any, x: dict[str, Tensor]) -> dict[str, Tensor]:
        with g.local_scope():
            functions: dict[Any, Any] = {}
            for source, relation, destination in g.canonical_etypes:
                g.srcnodes[source].data[f"h_{relation}"] = self.weight[relation](x[source])
                reduced = getattr(fn, self.reduction)("m", "h")
                functions[source, relation, destination] = (fn.copy_u(f"h_{relation}", "m"), reduced)
            g.multi_update_all(functions, self.across)
            return {t: g.dstnodes[t].data["h"] for t in ("paper", "topic")}


@pytest.mark.parametrize(("reduction", "across"), [("mean", "sum"), ("sum", "mean"), ("max", "max"), ("sum", "stack")])
def test_relations(reduction: str, across: str) -> None:
    found = programs(compared(Relations(reduction, across), hetero_graph(), features(3)))
    assert 0 < len(found) <= len(RELATIONS)


def test_block() -> None:
    g, x = hetero_graph(), features(3)
    seeds = {"paper": torch.tensor([4, 0, 2]), "topic": torch.tensor([1])}
    block = dgl.to_block(dgl.in_subgraph(g, seeds), seeds)
    compared(Relations("mean", "sum"), block, {t: x[t][block.srcnodes[t].data[dgl.NID]] for t in g.ntypes})


class Transformer(nn.Module):
    """Attention within each relation, keys, queries and values by node type."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.shape = (-1, heads, width // heads)
        self.key, self.query, self.value = (
            nn.ModuleDict({kind: nn.Linear(width, width) for kind in SIZES}) for _ in range(3)
        )
        matrix = (heads, width // heads, width // heads)
        self.attention = nn.ParameterDict({r: nn.Parameter(torch.randn(matrix)) for r in RELATIONS})
        self.message = nn.ParameterDict({r: nn.Parameter(torch.randn(matrix)) for r in RELATIONS})
        self.prior = nn.ParameterDict({r: nn.Parameter(torch.randn(heads)) for r in RELATIONS})

    def forward(self, g: Any, x: dict[str, Tensor]) -> dict[str, Tensor]:
        with g.local_scope():
            for source, relation, destination in g.canonical_etypes:
                part = g[source, relation, destination]
                key, value = (m[source](x[source]).view(self.shape) for m in (self.key, self.value))
                part.srcdata["k"] = torch.einsum("bij,ijk->bik", key, self.attention[relation])
                part.srcdata[f"v_{relation}"] = torch.einsum("bij,ijk->bik", value, self.message[relation])
                part.dstdata["q"] = self.query[destination](x[destination]).view(self.shape)
                part.apply_edges(fn.v_dot_u("q", "k", "t"))
                score = part.edata.pop("t").sum(-1) * self.prior[relation] / 2.0
                part.edata["t"] = edge_softmax(part, score).unsqueeze(-1)
            functions = {r: (fn.u_mul_e(f"v_{r}", "t", "m"), fn.sum("m", "t")) for _, r, _ in g.canonical_etypes}
            g.multi_update_all(functions, cross_reducer="mean", apply_node_func=lambda n: {"t": n.data["t"] * 2})
            return {kind: g.nodes[kind].data["t"] for kind in ("paper", "topic")}


def test_attention_in_each_relation() -> None:
    assert len(programs(compared(Transformer(4, 2), hetero_graph(), features(4)))) <= len(RELATIONS)


class Different(nn.Module):
    """Relations with other widths, functions and numbers."""

    def __init__(self, differ: str) -> None:
        super().__init__()
        self.differ = differ
        self.scale = nn.Parameter(torch.rand(2))

    def messages(self, relation: str) -> Any:
        factor = {"cites": 1.0, "has": 2.0}.get(relation, 3.0)
        if self.differ == "numbers":
            return lambda edges: {"m": edges.src["h"] * factor * self.scale}
        if self.differ == "operators" and relation == "cites":
            return lambda edges: {"m": torch.tanh(edges.src["h"])}
        if self.differ == "inputs":
            return lambda edges: {"m": edges.src["h"] * self.scale + edges.src["h"] * (1.0 if factor > 1 else 0.5)}
        return lambda edges: {"m": torch.sigmoid(edges.src["h"] * self.scale)}

    def forward(self, g: Any, x: dict[str, Tensor]) -> list[Tensor]:
        with g.local_scope():
            for kind, value in x.items():
                g.nodes[kind].data["h"] = value
            functions = {r: (self.messages(r), fn.sum("m", "h")) for r in RELATIONS}
            if self.differ == "reductions":
                functions["reviews"] = (self.messages("reviews"), fn.max("m", "h"))
            g.multi_update_all(functions, "sum")
            return [g.nodes[kind].data["h"] for kind in SIZES]


@pytest.mark.parametrize("differ", ["numbers", "operators", "inputs", "reductions"])
def test_relations_that_differ_run_one_by_one(differ: str) -> None:
    found = programs(compared(Different(differ), hetero_graph(), features(2)))
    assert all("etype" not in program for program in found)


def test_equal_messages() -> None:
    assert programs(compared(Different("nothing"), hetero_graph(), features(2)))


def test_modules_by_relation() -> None:
    module = dgl.nn.HeteroGraphConv({r: dgl.nn.SAGEConv(3, 2, "mean") for r in RELATIONS}, "sum")
    compared(module, hetero_graph(), features(3))
