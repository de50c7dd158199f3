"""Forwards over DGL graphs, compiled, against DGL itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
import dacergnn  # noqa: E402
from tests.frontends.dgl_forward import (  # noqa: E402
    EDGES,
    NODES,
    RELATIONS,
    compared,
    programs,
    rows,
    small_graph,
)

fn, edge_softmax = dgl.function, dgl.nn.functional.edge_softmax
ENDS = {"u": "hu", "v": "hv", "e": "he"}
BINARY = [f"{a}_{op}_{b}" for op in ("add", "sub", "mul", "div", "dot") for a in "uve" for b in "uve" if a != b]


class Builtins(nn.Module):
    """Each message with the reductions that it is listed with, in one forward."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__()
        self.pairs = pairs
        self.scale = nn.Parameter(torch.rand(3) + 1)

    def forward(self, g: Any, x: Tensor, y: Tensor, w: Tensor) -> list[Tensor]:
        results: list[Tensor] = []
        with g.local_scope():
            g.srcdata["hu"] = x * self.scale
            g.dstdata["hv"] = y
            g.edata["he"] = w
            for message, reduction in self.pairs:
                if message.startswith("copy"):
                    made = getattr(fn, message)(ENDS[message[-1]], "m")
                else:
                    made = getattr(fn, message)(ENDS[message[0]], ENDS[message[-1]], "m")
                g.update_all(made, getattr(fn, reduction)("m", "out"))
                results.append(g.dstdata["out"])
        return results


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min"])
def test_messages_and_reductions(reduction: str) -> None:
    ahead = ["sum", "mean", "max", "min"].index(reduction)
    pairs = [(message, reduction) for message in ("copy_u", "copy_e", *BINARY[ahead::4])]
    args = (rows(NODES, 3), rows(NODES, 3).abs() + 1, rows(EDGES, 3).abs() + 1)
    compared(Builtins(pairs), small_graph(), *args)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 8)
        self.left, self.right = nn.Parameter(torch.randn(1, 2, 4)), nn.Parameter(torch.randn(1, 2, 4))

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            h = self.linear(x).view(-1, 2, 4)
            g.srcdata.update({"h": h, "el": (h * self.left).sum(-1, keepdim=True)})
            g.dstdata["er"] = (h * self.right).sum(-1, keepdim=True)
            g.apply_edges(fn.u_add_v("el", "er", "e"))
            g.edata["a"] = edge_softmax(g, F.leaky_relu(g.edata.pop("e"), 0.2))
            g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "out"))
            return g.dstdata["out"]


def test_edge_softmax_is_one_program() -> None:
    (program,) = programs(compared(Attention(), small_graph(), rows(NODES, 5)))
    assert "linear" in program


class Functions(nn.Module):
    """DGL's functions over graphs and types, and functions of the user."""

    def __init__(self) -> None:
        super().__init__()
        self.typed = dgl.nn.TypedLinear(3, 4, RELATIONS)
        self.weight = nn.Parameter(torch.randn(RELATIONS, 3, 4))
        self.scale = nn.Embedding(RELATIONS, 4)

    def messages(self, edges: Any) -> dict[str, Any]:
        types = edges.data["kind"]
        product = torch.bmm(edges.src["h"].unsqueeze(1), self.weight[types]).squeeze(1)
        return {"m": self.typed(edges.src["h"], types) * self.scale(types) + product - edges.dst["k"]}

    def forward(self, g: Any, x: Tensor, w: Tensor, kind: Tensor) -> list[Tensor]:
        with g.local_scope():
            g.ndata["h"], g.ndata["k"], g.edata["kind"] = x, x[:, :1] * 2, kind
            g.update_all(self.messages, lambda nodes: {"out": torch.relu(nodes.mailbox["m"].sum(1)) + nodes.data["k"]})
            by_source = edge_softmax(g, w, norm_by="src")
            g.edata["c"] = dgl.ops.gather_mm(dgl.ops.copy_u(g, x), self.weight, idx_b=kind)
            g.update_all(fn.copy_e("c", "m"), lambda nodes: {"c": nodes.mailbox["m"].mean(1)})
            return [g.ndata["out"], g.ndata["c"], dgl.ops.u_mul_e_sum(g, x, by_source), dgl.ops.copy_e_sum(g, w)]


def test_types_and_functions() -> None:
    kind = torch.arange(EDGES) * 7 % RELATIONS
    layer = compared(Functions(), small_graph(), rows(NODES, 3), rows(EDGES, 1), kind)
    assert any("R[3, 4]" in program for program in programs(layer))


class Mailbox(nn.Module):
    """Attention as a reduce function, extremes of messages, a function of nodes."""

    def messages(self, edges: Any) -> dict[str, Tensor]:
        return {"s": (edges.src["h"] * edges.dst["h"]).sum(-1), "v": edges.src["h"]}

    def reduce(self, nodes: Any) -> dict[str, Any]:
        score, value = nodes.mailbox["s"], nodes.mailbox["v"]
        weight = torch.softmax(score, dim=1)
        near = value - nodes.data["h"].unsqueeze(1)
        return {
            "a": torch.sum(weight.unsqueeze(-1) * value, dim=1),
            "b": near.max(dim=1)[0] + near.min(1).values,
            "c": (2.0 / (1 + value.exp())).mean(1),
        }

    def forward(self, g: Any, x: Tensor) -> tuple[Tensor, ...]:
        with g.local_scope():
            g.ndata["h"] = x
            g.update_all(self.messages, self.reduce)
            g.apply_nodes(lambda nodes: {"c": nodes.data["c"] * 2})
            return g.ndata["a"], g.ndata["b"], g.ndata["c"]


def test_reduce_functions() -> None:
    compared(Mailbox(), small_graph(), rows(NODES, 3))


class Quotients(nn.Module):
    """Divides by sums of messages, of which some nodes have none, and goes on with values of edges in torch."""

    def average(self, nodes: Any) -> dict[str, Tensor]:
        weights = nodes.mailbox["m"].exp()
        return {"a": (weights * nodes.mailbox["m"]).sum(1) / weights.sum(1), "b": nodes.data["h"] / weights.sum(1)}

    def forward(self, g: Any, x: Tensor) -> tuple[Tensor, ...]:
        with g.local_scope():
            g.ndata["h"] = x
            g.update_all(fn.copy_u("h", "m"), self.average)
            g.apply_edges(fn.u_add_v("h", "h", "m"))
            return g.ndata["a"], g.ndata["b"], g.edata["m"].cumsum(1)


def test_reduce_functions_see_no_nodes_without_edges() -> None:
    compared(Quotients(), small_graph(), rows(NODES, 3))


class Segments(nn.Module):
    """Edges sorted by type; types of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(RELATIONS, 3, 2))
        self.nodes = dgl.nn.TypedLinear(3, 3, 2)

    def forward(self, g: Any, x: Tensor, lengths: Tensor, kind: Tensor) -> Tensor:
        g = g.local_var()
        g.srcdata["h"] = self.nodes(x, kind)
        g.apply_edges(fn.copy_u("h", "h"))
        g.edata["m"] = dgl.ops.segment_mm(g.edata["h"], self.weight, lengths)
        g.update_all(fn.copy_e("m", "m"), fn.sum("m", "out"))
        return g.dstdata["out"]


def test_segments_and_node_types() -> None:
    lengths = torch.tensor([5, 0, EDGES - 5])
    layer = compared(Segments(), small_graph(), rows(NODES, 3), lengths, torch.arange(NODES) % 2)
    (program,) = programs(layer)
    assert "T[3, 3]" in program
    assert "R[3, 2]" in program


class Typed(nn.Module):
    """Products by type of node before and after messages; both ends of an edge read the same rows, or others."""

    def __init__(self, same: bool) -> None:
        super().__init__()
        self.before, self.after, self.same = dgl.nn.TypedLinear(3, 3, 2), dgl.nn.TypedLinear(3, 20, 2), same

    def forward(self, g: Any, x: Tensor, kind: Tensor) -> Tensor:
        with g.local_scope():
            count = g.num_dst_nodes()
            g.srcdata["h"] = self.before(x, kind)
            g.dstdata["k"] = (g.srcdata["h"] if self.same else x)[:count]
            g.update_all(fn.u_add_v("h", "k", "m"), fn.sum("m", "out"))
            return self.after(g.dstdata["out"], kind[:count])


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("blocks", [True, False])
def test_types_of_nodes(same: bool, blocks: bool) -> None:
    g, seeds = small_graph(), torch.tensor([3, 1, 6])
    g = dgl.to_block(dgl.in_subgraph(g, seeds), seeds) if blocks else g
    count = g.num_src_nodes()
    compared(Typed(same), g, rows(count, 3), torch.arange(count) % 2)


def test_homogeneous_block() -> None:
    class Sage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.others = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, block: Any, x: Tensor) -> Tensor:
            with block.local_scope():
                block.srcdata["h"] = self.others(x)
                block.dstdata["h"] = self.own(x[: block.num_dst_nodes()])
                block.update_all(fn.u_add_v("h", "h", "m"), fn.mean("m", "out"))
                return block.dstdata["out"] + block.in_degrees().unsqueeze(1)

    seeds = torch.tensor([3, 1, 6])
    block = dgl.to_block(dgl.in_subgraph(small_graph(), seeds), seeds)
    compared(Sage(), block, rows(block.num_src_nodes(), 3))


@pytest.mark.parametrize(
    "layer", ["GATConv", "GraphConv", "SAGEConv", "RelGraphConv", "HGTConv", "GMMConv", "EdgeConv"]
)
def test_layers_of_dgl(layer: str) -> None:
    g, x, made = small_graph(), rows(NODES, 6), getattr(dgl.nn, layer)
    kind, node = torch.arange(EDGES) % 3, torch.arange(NODES) % 2
    zero: dict[str, Any] = {"allow_zero_in_degree": True}
    module, *args = {
        "GATConv": lambda: (made(6, 4, 2, **zero),),
        "GraphConv": lambda: (made(6, 4, **zero),),
        "SAGEConv": lambda: (made(6, 4, "pool"),),
        "RelGraphConv": lambda: (made(6, 4, 3, "basis", 2), kind),
        "HGTConv": lambda: (made(6, 3, 2, 2, 3), node, kind),
        "GMMConv": lambda: (made(6, 4, 2, 2, **zero), rows(EDGES, 2)),
        "EdgeConv": lambda: (made(6, 4, **zero),),
    }[layer]()
    compared(module.eval(), g, x, *args)


def test_graphs_of_a_batch() -> None:
    class Counting(nn.Module):
        def forward(self, g: Any, x: Tensor) -> Tensor:
            with g.local_scope():
                g.ndata["h"] = x
                g.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
                return g.ndata["h"] * g.batch_size + g.batch_num_nodes().sum()

    parts = [dgl.rand_graph(5, 12), dgl.rand_graph(7, 20), dgl.rand_graph(3, 4)]
    module = Counting()
    fast = dacergnn.compile(Counting(), on_unsupported="error")
    for g in (parts[0], dgl.batch(parts), dgl.batch(parts[:2]), parts[1]):
        x = torch.randn(g.num_nodes(), 4)
        torch.testing.assert_close(fast(g, x), module(g, x))
