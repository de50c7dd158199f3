"""Makes RGCN, RGAT and HGT in every form that the compiler reads, with the same parameters on the same graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dgl
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.modules import HGT, RGAT, RGCN
from dacergnn.modules.graph_forward import compiled_forwards
from examples import dace_style, dgl_style, hgt, pyg_style, rgat, rgcn
from examples.dace_style import CHANNELS, HEADS, WIDTH

MODELS = ("rgcn", "rgat", "hgt")


@dataclass(frozen=True)
class Way:
    """Holds one form of a model: ``call()`` returns [ND, CHANNELS], ``layer()`` returns the layer that computes it."""

    call: Callable[[], Tensor]
    layer: Callable[[], Any]


def ways(model: str, g: Any, x: Tensor) -> tuple[dict[str, Way], list[Tensor]]:
    """Returns the forms of a model by the names of their front ends, and the parameters that they share.

    Args:
        g: A homogeneous DGL graph with types of nodes and edges, `dgl.NTYPE` and `dgl.ETYPE`.
        x: [NS, CHANNELS] node features.
    """
    graph = HeteroGraph.from_dgl(g)
    types, relations = graph.size("T"), graph.size("R")
    index, node_type, edge_type = torch.stack(g.edges()), g.ndata[dgl.NTYPE], g.edata[dgl.ETYPE]
    rest: list[Tensor] = []
    if model == "rgcn":
        own: Any = RGCN(CHANNELS, CHANNELS, relations)
        of_dgl: Any = dgl_style.RGCN(CHANNELS, CHANNELS, relations)
        of_pyg: Any = pyg_style.RGCN(CHANNELS, CHANNELS, relations)
        of_dgl.linear.W, of_dgl.root, of_dgl.bias = of_pyg.weight, of_pyg.root, of_pyg.bias = own.W, own.root, own.bias
        program, given = rgcn.layer, [edge_type]
        rest = [graph.from_canonical(graph.pair_mean_weights(x.dtype))]
    elif model == "rgat":
        own = RGAT(CHANNELS, WIDTH, relations, heads=HEADS)
        of_dgl = dgl_style.RGAT(CHANNELS, WIDTH, relations, heads=HEADS)
        of_pyg = pyg_style.RGAT(CHANNELS, WIDTH, relations, heads=HEADS)
        of_dgl.linear.W, of_dgl.q, of_dgl.k, of_dgl.bias = own.W, own.q, own.k, own.bias
        of_pyg.weight, of_pyg.q, of_pyg.k, of_pyg.bias = own.W, own.q, own.k, own.bias
        program, given = rgat.rgat(HEADS, WIDTH), [edge_type]
    else:
        own = HGT(CHANNELS, types, relations, heads=HEADS)
        of_dgl = dgl_style.HGT(CHANNELS, types, relations, heads=HEADS)
        of_pyg = pyg_style.HGT(CHANNELS, types, relations, heads=HEADS)
        of_dgl.keys.W, of_dgl.queries.W, of_dgl.values.W, of_dgl.out.W = own.W_k, own.W_q, own.W_v, own.A
        of_pyg.keys, of_pyg.queries, of_pyg.values, of_pyg.out = own.W_k, own.W_q, own.W_v, own.A
        for written in (of_dgl, of_pyg):
            written.attention, written.messages, written.prior, written.skip = own.W_att, own.W_msg, own.pri, own.skip
        program, given = hgt.hgt(HEADS, WIDTH), [node_type, edge_type]
    with torch.no_grad():
        for parameter in own.parameters():
            nn.init.normal_(parameter, std=CHANNELS**-0.5)
    of_dace, arrays = getattr(dace_style, model), own.arrays(graph)
    compiled = dacergnn.optimize(of_pyg, on_unsupported="error")
    found = {
        "built in": Way(lambda: own(x, graph), lambda: own),
        "program form": Way(lambda: program(graph, x=x, **arrays).flatten(1), lambda: program),
        "DGL": Way(lambda: of_dgl(g, x, *rest), lambda: compiled_forwards(of_dgl)[0]),
        "PyG": Way(lambda: compiled(x, index, *given, *rest), lambda: compiled),
        "DaCe": Way(lambda: of_dace(graph, x=x, **arrays).flatten(1), lambda: of_dace),
    }
    return found, list(own.parameters())
