"""Wraps the layers of PyTorch Geometric that compute RGCN, RGAT and HGT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from benchmarks.relational.candidate import Built, Candidate, WithRoot, Wrap, finish, hetero_memory, leaf, typed_leaves
from benchmarks.relational.parameters import Parameters, Slot
from benchmarks.relational.problem import Problem

library: Any = pyg


def edge_key(problem: Problem, etype: int) -> tuple[str, str, str]:
    """Returns the name of an edge type, as (source type, relation, destination type)."""
    s, d = problem.relations[etype]
    return f"t{s}", f"r{etype}", f"t{d}"


def _gathered_weights(copies: int) -> Callable[[Problem, bool], int]:
    """Returns an estimator of memory: the layer gathers a weight matrix per edge, and `copies` more in training."""

    def estimate(problem: Problem, train: bool) -> int:
        return problem.num_edges * problem.hidden**2 * 4 * (1 + copies * train)

    return estimate


def _homogeneous(make: Callable[[Problem], nn.Module], names: tuple[str, ...]) -> Any:
    def build(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
        layer: Any = make(problem).to(problem.x)
        slots = [Slot(name, getattr(layer, name)) for name in names]
        x, edge_index = leaf(problem.x), torch.stack([problem.src, problem.dst])
        run = wrap(layer)
        return finish(lambda: run(x, edge_index, problem.etype), (x,), slots, shared, layer)

    return build


def _rgcn(problem: Problem) -> nn.Module:
    return library.RGCNConv(problem.hidden, problem.hidden, problem.num_etypes)


def _fast_rgcn(problem: Problem) -> nn.Module:
    return library.FastRGCNConv(problem.hidden, problem.hidden, problem.num_etypes)


def _rgat(problem: Problem) -> nn.Module:
    return library.RGATConv(problem.hidden, problem.hidden, problem.num_etypes)


def _with_root(problem: Problem, conv: Callable[[], nn.Module], root: bool) -> WithRoot:
    convs = library.HeteroConv({edge_key(problem, r): conv() for r in range(problem.num_etypes)})
    return WithRoot(convs, problem.hidden, root, lambda layer, xs, edges: layer(xs, edges)).to(problem.x)


def _typed_edges(problem: Problem, sparse: bool) -> dict[tuple[str, str, str], Tensor]:
    edges: dict[tuple[str, str, str], Tensor] = {}
    for r, (s, d) in enumerate(problem.relations):
        pair = problem.edges_of(r)
        if sparse:  # the transposed adjacency: PyG multiplies by it instead of gathering
            shape = (problem.ntype_sizes[d], problem.ntype_sizes[s])
            ptr = pair.new_zeros(shape[0] + 1)
            ptr[1:] = torch.bincount(pair[1], minlength=shape[0]).cumsum(0)
            ones = problem.x.new_ones(pair.shape[1])
            pair = torch.sparse_csr_tensor(ptr, pair[0], ones, shape, check_invariants=False)
        edges[edge_key(problem, r)] = pair
    return edges


def _hetero_sage(sparse: bool) -> Any:
    def build(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
        d = problem.hidden
        layer = _with_root(problem, lambda: library.SAGEConv(d, d, root_weight=False, bias=False), root=True)
        assert layer.root is not None
        slots = [Slot("root", layer.root.weight, transposed=True), Slot("bias", layer.root.bias)]
        for r in range(problem.num_etypes):
            conv = layer.convs.convs[edge_key(problem, r)]
            slots.append(Slot("weight", conv.lin_l.weight, r, transposed=True))
        xs, edges, run = typed_leaves(problem), _typed_edges(problem, sparse), wrap(layer)
        return finish(lambda: run(xs, edges), tuple(xs.values()), slots, shared, layer)

    return build


def _hetero_gat(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
    d = problem.hidden
    layer = _with_root(problem, lambda: library.GATConv(d, d, add_self_loops=False, bias=False), root=False)
    xs, edges, run = typed_leaves(problem), _typed_edges(problem, sparse=False), wrap(layer)
    return finish(lambda: run(xs, edges), tuple(xs.values()), [], shared, layer)


def _hgt(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
    d, types = problem.hidden, [f"t{i}" for i in range(problem.num_ntypes)]
    keys = [edge_key(problem, r) for r in range(problem.num_etypes)]
    layer: Any = library.HGTConv(d, d, (types, keys), heads=1).to(problem.x)
    slots = [Slot("att", layer.k_rel.weight), Slot("msg", layer.v_rel.weight)]
    slots += [Slot("pri", layer.p_rel["__".join(key)], r) for r, key in enumerate(keys)]
    for i, name in enumerate(types):
        kqv, out = layer.kqv_lin.lins[name], layer.out_lin.lins[name]
        slots += [
            Slot("kqv_weight", kqv.weight, i, transposed=True),
            Slot("kqv_bias", kqv.bias, i),
            Slot("out_weight", out.weight, i, transposed=True),
            Slot("out_bias", out.bias, i),
            Slot("skip", layer.skip[name], i),
        ]
    xs, edges, run = typed_leaves(problem), _typed_edges(problem, sparse=False), wrap(layer)
    return finish(lambda: run(xs, edges), tuple(xs.values()), slots, shared, layer)


def _hgt_memory(problem: Problem, train: bool) -> int:
    """Estimates bytes: one row for every (edge type, node of its source type) pair besides the edges' rows."""
    rows = sum(problem.ntype_sizes[s] for s, _ in problem.relations)
    return (rows + problem.num_edges) * problem.hidden * 4 * (10 if train else 6)


_RGCN_NAMES = ("weight", "root", "bias")
_RGAT_NAMES = ("weight", "q", "k", "bias")

ALL = (
    Candidate("RGCNConv", "pyg", "rgcn", _homogeneous(_rgcn, _RGCN_NAMES), "rgcn"),
    Candidate("FastRGCNConv", "pyg", "rgcn", _homogeneous(_fast_rgcn, _RGCN_NAMES), "rgcn", _gathered_weights(1)),
    Candidate("HeteroConv(SAGEConv)", "pyg", "rgcn", _hetero_sage(sparse=False), "rgcn", hetero_memory),
    Candidate("HeteroConv(SAGEConv) CSR", "pyg", "rgcn", _hetero_sage(sparse=True), "rgcn", hetero_memory),
    Candidate("RGATConv", "pyg", "rgat", _homogeneous(_rgat, _RGAT_NAMES), "rgat", _gathered_weights(2)),
    Candidate("HeteroConv(GATConv)", "pyg", "rgat", _hetero_gat, "", hetero_memory),
    Candidate("HGTConv", "pyg", "hgt", _hgt, "hgt", _hgt_memory),
)
"""Every way in which the library computes these models; ours replaces the first one of each model."""
