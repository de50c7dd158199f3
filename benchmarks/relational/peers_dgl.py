"""Wraps the layers of DGL that compute RGCN, RGAT and HGT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
from dgl.nn import pytorch as dgl_nn
from torch import nn

from benchmarks.relational.candidate import Built, Candidate, WithRoot, Wrap, finish, hetero_memory, leaf, typed_leaves
from benchmarks.relational.parameters import Parameters, Slot
from benchmarks.relational.problem import Problem

library: Any = dgl_nn
_dgl: Any = dgl


def _graph(problem: Problem) -> Any:
    graph = _dgl.graph((problem.src, problem.dst), num_nodes=problem.num_nodes)
    return graph.formats(["coo", "csr", "csc"])


def _heterograph(problem: Problem) -> Any:
    edges = {(f"t{s}", f"r{r}", f"t{d}"): tuple(problem.edges_of(r)) for r, (s, d) in enumerate(problem.relations)}
    return _dgl.heterograph(edges, num_nodes_dict={f"t{i}": n for i, n in enumerate(problem.ntype_sizes)})


def _rel_graph_conv(presorted: bool) -> Any:
    def build(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
        layer: Any = library.RelGraphConv(problem.hidden, problem.hidden, problem.num_etypes).to(problem.x)
        slots = [
            Slot("weight", layer.linear_r.W),
            Slot("root", layer.loop_weight),
            Slot("bias", layer.h_bias),
        ]
        x, graph, share, run = leaf(problem.x), _graph(problem), problem.mean_weight[:, None], wrap(layer)
        return finish(lambda: run(graph, x, problem.etype, share, presorted=presorted), (x,), slots, shared, layer)

    return build


def _with_root(problem: Problem, conv: Callable[[], nn.Module], root: bool) -> WithRoot:
    convs = library.HeteroGraphConv({f"r{r}": conv() for r in range(problem.num_etypes)})
    return WithRoot(convs, problem.hidden, root, lambda layer, xs, graph: layer(graph, xs)).to(problem.x)


def _hetero_mean(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
    d = problem.hidden
    layer = _with_root(problem, lambda: library.GraphConv(d, d, norm="right", bias=False), root=True)
    assert layer.root is not None
    slots = [Slot("root", layer.root.weight, transposed=True), Slot("bias", layer.root.bias)]
    slots += [Slot("weight", layer.convs.mods[f"r{r}"].weight, r) for r in range(problem.num_etypes)]
    return _finish_hetero(problem, layer, slots, shared, wrap)


def _hetero_gat(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
    d = problem.hidden
    layer = _with_root(problem, lambda: library.GATConv(d, d, 1, bias=False), root=False)
    return _finish_hetero(problem, layer, [], shared, wrap)


def _finish_hetero(problem: Problem, layer: WithRoot, slots: list[Slot], shared: Parameters, wrap: Wrap) -> Built:
    xs, graph, run = typed_leaves(problem), _heterograph(problem), wrap(layer)
    return finish(lambda: run(xs, graph), tuple(xs.values()), slots, shared, layer)


def _hgt(presorted: bool) -> Any:
    def build(problem: Problem, shared: Parameters, wrap: Wrap) -> Built:
        d = problem.hidden
        layer: Any = library.HGTConv(d, d, 1, problem.num_ntypes, problem.num_etypes, dropout=0.0).to(problem.x)
        slots = [
            Slot("att", layer.relation_att[0].W),
            Slot("msg", layer.relation_msg[0].W),
            Slot("pri", layer.relation_pri[0]),
            Slot("skip", layer.skip),
            Slot("out_weight", layer.linear_a.W),
        ]
        slots += [
            Slot("kqv_weight", linear.W, columns=(i * d, (i + 1) * d))
            for i, linear in enumerate((layer.linear_k, layer.linear_q, layer.linear_v))
        ]
        x, graph, ntype, etype, run = leaf(problem.x), _graph(problem), problem.ntype, problem.etype, wrap(layer)
        return finish(lambda: run(graph, x, ntype, etype, presorted=presorted), (x,), slots, shared, layer)

    return build


ALL = (
    Candidate("RelGraphConv", "dgl", "rgcn", _rel_graph_conv(presorted=False), "rgcn"),
    Candidate("RelGraphConv presorted", "dgl", "rgcn", _rel_graph_conv(presorted=True), "rgcn"),
    Candidate("HeteroGraphConv(GraphConv)", "dgl", "rgcn", _hetero_mean, "rgcn", hetero_memory),
    Candidate("HeteroGraphConv(GATConv)", "dgl", "rgat", _hetero_gat, "", hetero_memory),
    Candidate("HGTConv", "dgl", "hgt", _hgt(presorted=False), "hgt_linear"),
    Candidate("HGTConv presorted", "dgl", "hgt", _hgt(presorted=True), "hgt_linear"),
)
"""Every way in which the library computes these models."""
