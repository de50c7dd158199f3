"""Lists the layers that networks are made of, each with peers that compute the same function.

Peers take the parameters of a layer of PyG, and graphs in the form of their library; what a layer computes from that is
part of its time. DGL's layer for HGT computes another function, its GATv2 has no bias of the result, and PyG's
EdgeIndex and FastRGCNConv do not make these layers faster on these graphs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from benchmarks.caching.networks import Layer
from benchmarks.relational import plain_torch
from benchmarks.relational.peers_pyg import edge_key
from benchmarks.relational.plain_layout import PlainLayout
from benchmarks.relational.plain_matmul import typed_matmul
from benchmarks.relational.plain_ops import Adjacency, aggregate
from benchmarks.relational.problem import Problem

SIZE, HEADS, BASES = 64, 4, 30


@dataclass(frozen=True, eq=False)
class Graph:
    """Holds a graph or a batch as PyG's layers take it: features, and edges with their types, or both by type."""

    x: Any
    edges: tuple[Any, ...]
    num_relations: int

    def problem(self) -> Problem:
        """Returns edges in the order of their types, between nodes of all types."""
        x, edges = self.x, self.edges[0]
        if not isinstance(x, Mapping):
            etype = self.edges[1] if len(self.edges) > 1 else torch.zeros_like(edges[0])
            order = etype.argsort(stable=True)
            relations = ((0, 0),) * self.num_relations
            src, dst = edges[:, order]
            return Problem("", src, dst, etype[order], (len(x),), relations, x, etype)
        sizes, types = tuple(map(len, x.values())), {name: place for place, name in enumerate(x)}
        first = torch.tensor((0, *sizes)).cumsum(0)
        relations = tuple((types[s], types[d]) for s, _, d in edges)
        pairs = [pair + first[list(ends)][:, None] for pair, ends in zip(edges.values(), relations, strict=True)]
        etype = torch.arange(len(pairs)).repeat_interleave(torch.tensor([pair.shape[1] for pair in pairs]))
        src, dst = torch.cat(pairs, 1)
        return Problem("", src, dst, etype, sizes, relations, torch.cat(list(x.values())), etype)


def as_original(graph: Graph) -> tuple[Any, ...]:
    return graph.x, *graph.edges


@dataclass(frozen=True)
class Peer:
    """Describes a module made of a layer of PyG, which is called with what ``form`` returns."""

    name: str
    make: Callable[[Any], nn.Module]
    form: Callable[[Graph], tuple[Any, ...]] = as_original


@dataclass(frozen=True)
class Kind:
    """Describes a kind of layer.

    Args:
        form: The name of a layer in the suite of sampled batches that takes graphs in the same form.
        make: Makes a layer of PyG for a graph.
        to_hetero: Whether a network of such layers is made for one type, and divided by types as a whole.
    """

    form: str
    make: Callable[[Problem], nn.Module]
    peers: tuple[Peer, ...] = ()
    to_hetero: bool = False


class Plain(nn.Module):
    """Computes a layer in plain PyTorch by a function of parameters, rows of all types and an index structure."""

    def __init__(self, function: Any, prepare: Callable[[Graph], Any], tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.function, self.prepare, self.names = function, prepare, list(tensors)
        self.values = nn.ParameterList(value.detach().clone() for value in tensors.values())

    def forward(self, x: Any, graph: Graph) -> Any:
        tensors, made = dict(zip(self.names, self.values, strict=True)), self.prepare(graph)
        if not isinstance(x, Mapping):
            return self.function(tensors, x, made)
        out = self.function(tensors, torch.cat(list(x.values())), made)
        return dict(zip(x, out.split([*map(len, x.values())]), strict=True))


@lru_cache(maxsize=4)  # the layers of a network share it, and candidates that run in turns have graphs of their own
def layout(graph: Graph) -> PlainLayout:
    return PlainLayout(graph.problem(), "padded")


@lru_cache(maxsize=4)
def pattern(graph: Graph) -> tuple[Adjacency, Tensor]:
    src, dst = graph.edges[0]
    return Adjacency.make(dst, src, (len(graph.x), len(graph.x))), graph.edges[0]


def plain_hetero(p: Any, x: Tensor, g: PlainLayout) -> Tensor:
    ends = torch.tensor([destination for _, destination in g.problem.relations])
    zeros = {name: p[name].new_zeros(len(g.nodes), *p[name].shape[1:]) for name in ("root", "bias")}
    root, bias = (empty.index_add(0, ends, p[name]) for name, empty in zeros.items())
    sums = g.sum_pairs(g.v.matmul(aggregate(g.mean, x, g.v_from_node), p["weight"]))
    return typed_matmul(x, root, g.nodes) + bias[g.problem.ntype] + sums


def plain_gcn(p: Any, x: Tensor, made: tuple[Adjacency, Tensor]) -> Tensor:
    adjacency, (_, dst) = made
    scale = (1.0 + torch.bincount(dst, minlength=len(x))).rsqrt()[:, None]
    rows = (x @ p["lin.weight"].t()) * scale
    return (rows + aggregate(x.new_ones(len(dst)), rows, adjacency)) * scale + p["bias"]


def plain_gated(p: Any, x: Tensor, made: tuple[Adjacency, Tensor]) -> Tensor:
    adjacency, (src, dst) = made
    h = torch.addmm(p["lin.bias"], x, p["lin.weight"].t())
    held, sent = (h @ p["gate.weight"].view(2, -1).t()).unbind(1)
    gate = torch.sigmoid(held.index_select(0, dst) + sent.index_select(0, src) + p["gate.bias"])
    return h + aggregate(gate, h, adjacency)


def with_bases(forward: Any, p: Any, x: Tensor, g: PlainLayout) -> Tensor:
    return forward({**p, "weight": torch.einsum("rb,bio->rio", p["comp"], p["weight"])} if "comp" in p else p, x, g)


def stacked(parts: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.stack([*values]) for name, values in parts.items()}


def hgt_parameters(conv: Any) -> dict[str, Tensor]:
    linears = {"kqv": conv.kqv_lin.lins.values(), "out": conv.out_lin.lins.values()}
    weights = {f"{name}_weight": (one.weight.t() for one in lins) for name, lins in linears.items()}
    biases = {f"{name}_bias": (one.bias for one in lins) for name, lins in linears.items()}
    single = {"pri": conv.p_rel.values(), "skip": conv.skip.values()}
    scalars = {name: (value.flatten()[0] for value in values) for name, values in single.items()}
    return {**stacked(weights | biases | scalars), "att": conv.k_rel.weight, "msg": conv.v_rel.weight}


def hetero_parameters(conv: Any) -> dict[str, Tensor]:
    convs = list(conv.convs.values())
    parts = {"root": [one.lin_r.weight.t() for one in convs], "bias": [one.lin_l.bias for one in convs]}
    return stacked({**parts, "weight": [one.lin_l.weight.t() for one in convs]})


def named(conv: nn.Module) -> dict[str, Tensor]:
    return dict(conv.named_parameters())


def plain(function: Any, parameters: Callable[[Any], Any] = named, prepare: Callable[[Graph], Any] = layout) -> Peer:
    return Peer("plain", lambda conv: Plain(function, prepare, parameters(conv)), lambda graph: (graph.x, graph))


def both(name: str, parameters: Callable[[Any], Any] = named) -> tuple[Peer, ...]:
    """Returns the plain variants that transform rows of sources, and of destinations."""
    forwards = (getattr(plain_torch, f"{name}_{side}") for side in ("sources", "destinations"))
    return tuple(plain(partial(with_bases, forward), parameters) for forward in forwards)


class Swapped(nn.Module):
    """Calls a layer of DGL with the features first, as PyG's layers are."""

    def __init__(self, layer: nn.Module, **options: Any) -> None:
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, x: Any, graph: Any, *others: Any) -> Any:
        return self.layer(graph, x, *others, **self.options)


def dgl_relational(conv: Any) -> nn.Module:
    from dgl.nn import pytorch as dgl

    bases: dict[str, Any] = {"regularizer": "basis", "num_bases": conv.num_bases} if conv.num_bases else {}
    layer = dgl.RelGraphConv(SIZE, SIZE, conv.num_relations, **bases)
    state = {"linear_r.W": conv.weight, "loop_weight": conv.root, "h_bias": conv.bias}
    layer.load_state_dict(state | ({"linear_r.coeff": conv.comp} if bases else {}))
    return Swapped(layer, presorted=True)


def dgl_relational_arguments(graph: Graph) -> tuple[Any, ...]:
    import dgl

    problem = graph.problem()
    made = dgl.graph((problem.src, problem.dst), num_nodes=problem.num_nodes)
    return graph.x, made, problem.etype, problem.mean_weight[:, None]


def dgl_plain(model: str, conv: Any) -> nn.Module:
    from benchmarks.caching import dgl

    heads = HEADS if model == "gat" else 1
    layer = dgl.make_layer(model, Layer(SIZE, SIZE // heads, heads, last=False))
    layer.load_state_dict(dgl.parameters_of(model, conv), strict=False)
    return Swapped(layer)


def dgl_plain_arguments(loops: bool, graph: Graph) -> tuple[Any, ...]:
    import dgl

    made = dgl.graph(tuple(graph.edges[0]), num_nodes=len(graph.x))
    return graph.x, dgl.add_self_loop(dgl.remove_self_loop(made)) if loops else made


def dgl_peer(model: str, loops: bool = False) -> Peer:
    return Peer("DGL", partial(dgl_plain, model), partial(dgl_plain_arguments, loops))


def cached(conv: Any) -> nn.Module:
    """Returns a layer that keeps its normalization, for a single graph alone."""
    made = copy.deepcopy(conv)
    made.cached = True
    return made


class Gated(pyg.MessagePassing):
    """Represents a layer as a user writes it: messages are weighted by a gate of both ends."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin, self.gate = nn.Linear(SIZE, SIZE), nn.Linear(2 * SIZE, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.lin(x)
        return h + self.propagate(edge_index, h=h)

    def message(self, h_i: Tensor, h_j: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.sigmoid(self.gate(torch.cat([h_i, h_j], dim=-1))) * h_j


def keys_of(problem: Problem) -> list[tuple[str, str, str]]:
    return [edge_key(problem, etype) for etype in range(problem.num_etypes)]


def rgcn(bases: int | None, problem: Problem) -> nn.Module:
    fewer = bases and min(bases, max(problem.num_etypes // 2, 1))
    return pyg.RGCNConv(SIZE, SIZE, problem.num_etypes, num_bases=fewer)


def rgat(problem: Problem) -> nn.Module:
    return pyg.RGATConv(SIZE, SIZE, problem.num_etypes)


def types_of(problem: Problem) -> tuple[list[str], list[tuple[str, str, str]]]:
    return [f"t{place}" for place in range(problem.num_ntypes)], keys_of(problem)


def hgt(problem: Problem, heads: int = 1) -> nn.Module:
    return pyg.HGTConv(SIZE, SIZE, types_of(problem), heads)


def sage() -> pyg.MessagePassing:
    return pyg.SAGEConv((SIZE, SIZE), SIZE)


def gatv2() -> pyg.MessagePassing:
    return pyg.GATv2Conv(SIZE, SIZE // HEADS, HEADS, add_self_loops=False)


def hetero(make: Callable[[], pyg.MessagePassing], problem: Problem) -> nn.Module:
    return pyg.HeteroConv({key: make() for key in keys_of(problem)})


def plain_layer(make: Callable[[], nn.Module], *peers: Peer) -> Kind:
    return Kind("SAGEConv", lambda problem: make(), peers)


def with_heads(layer: Any) -> Callable[[], nn.Module]:
    return lambda: layer(SIZE, SIZE // HEADS, HEADS)


# DGL normalizes sources by their out-degrees, which is the same where edges go both ways, as in whole graphs here.
GCN_PEERS = (dgl_peer("gcn", loops=True), Peer("cached", cached), plain(plain_gcn, prepare=pattern))
RGCN_PEERS = (*both("rgcn"), Peer("DGL", dgl_relational, dgl_relational_arguments))
KINDS = {
    "GCN": plain_layer(lambda: pyg.GCNConv(SIZE, SIZE), *GCN_PEERS),
    "SAGE": plain_layer(lambda: pyg.SAGEConv(SIZE, SIZE), dgl_peer("sage")),
    "GIN": plain_layer(lambda: pyg.GINConv(nn.Linear(SIZE, SIZE)), dgl_peer("gin")),
    "GAT": plain_layer(with_heads(pyg.GATConv), dgl_peer("gat", loops=True)),
    "GATv2": plain_layer(with_heads(pyg.GATv2Conv)),
    "Transformer": plain_layer(with_heads(pyg.TransformerConv)),
    "RGCN": Kind("RGCNConv", partial(rgcn, None), RGCN_PEERS),
    "RGCN(bases)": Kind("RGCNConv", partial(rgcn, BASES), RGCN_PEERS),
    "RGAT": Kind("RGATConv", rgat, both("rgat")),
    "HGT": Kind("HGTConv", hgt, both("hgt", hgt_parameters)),
    "HeteroConv(SAGE)": Kind("HGTConv", partial(hetero, sage), (plain(plain_hetero, hetero_parameters),)),
    "HeteroConv(GATv2)": Kind("HGTConv", partial(hetero, gatv2)),
    "to_hetero(SAGE)": Kind("HGTConv", lambda problem: sage(), to_hetero=True),
    "own": plain_layer(Gated, plain(plain_gated, prepare=pattern)),
}
"""Kinds of layers by name; "own" is one that a user writes."""
