"""The layers that sequences are about: options of their constructors, attributes, and forms of calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch_geometric.nn as pyg
from dgl import nn as dglnn
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from tests.compatibility.kinds import KINDS, RELATIONS, DGLForward, F, M, R
from tests.fuzz.graphs import Graph

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Form = Callable[[Graph, Tensor, Tensor, Tensor], Arguments]
"""From a graph, two matrices of features, and weights of edges, which gradients are asked for."""
Values = dict[str, tuple[Any, ...]]
"""Names, and what stands for them; the first is what a layer has by itself."""

FORMS: dict[str, Form] = {
    "edges": lambda g, x, y, w: ((x, g.index), {}),
    "named": lambda g, x, y, w: ((), {"x": x, "edge_index": g.index}),
    "EdgeIndex": lambda g, x, y, w: ((x, g.edge_index), {}),
    "csr": lambda g, x, y, w: ((x, g.csr), {}),
    "coo": lambda g, x, y, w: ((x, g.coo), {}),
    "pair": lambda g, x, y, w: (((x, y), g.index), {}),
    "pair, None": lambda g, x, y, w: (((x, None), g.index), {}),
    "size": lambda g, x, y, w: (((x, y), g.index), {"size": (g.nodes, g.nodes)}),
    "weights": lambda g, x, y, w: ((x, g.index, w), {}),
    "named weights": lambda g, x, y, w: ((x, g.index), {"edge_weight": w}),
    "attention": lambda g, x, y, w: ((x, g.index), {"return_attention_weights": True}),
    "types": lambda g, x, y, w: ((x, g.index, g.types), {}),
    "named types": lambda g, x, y, w: ((x,), {"edge_index": g.index, "edge_type": g.types}),
    "EdgeIndex, types": lambda g, x, y, w: ((x, g.edge_index, g.types), {}),
    "pair, types": lambda g, x, y, w: (((x, y), g.index, g.types), {}),
    "positions": lambda g, x, y, w: ((x, g.index, g.positions), {}),
    "by type": lambda g, x, y, w: (({"a": x, "b": y}, g.relations), {}),
    "dgl": lambda g, x, y, w: ((g.dgl, x), {}),
    "dgl named": lambda g, x, y, w: ((g.dgl,), {"feat": x}),
    "dgl weights": lambda g, x, y, w: ((g.dgl, x), {"edge_weight": g.of_edges()}),
    "dgl attention": lambda g, x, y, w: ((g.dgl, x), {"get_attention": True}),
    "dgl types": lambda g, x, y, w: ((g.dgl, x, g.dgl_types), {}),
    "dgl all types": lambda g, x, y, w: ((g.dgl, x, g.node_types, g.dgl_types), {}),
    "dgl positions": lambda g, x, y, w: ((g.dgl, x, g.of_edges(2)), {}),
}
PLAIN = ("edges", "named", "EdgeIndex")
MATRICES = ("csr", "coo")
PAIRS = ("pair", "pair, None", "size")
TYPED = ("types", "named types", "EdgeIndex, types")
FLOW: Values = {"flow": ("source_to_target", "target_to_source"), "explain": (None, True, False)}
LOOPS: Values = {"allow_zero_in_degree": (True, False)}


@dataclass(frozen=True)
class Layer:
    """A kind of layer.

    Args:
        name: For reports.
        make: The constructor, which takes the options.
        options: What `make` may be given by keyword.
        attributes: What may be set on the layer later.
        forms: Names of the `FORMS` of its calls.
        compile: Gives the compiled module in place of `optimize`.
        second: Whether the second derivatives of the original are right: those of DGL's attention are not.
    """

    name: str
    make: Callable[..., nn.Module]
    forms: tuple[str, ...]
    options: Values = field(default_factory=dict)
    attributes: Values = field(default_factory=dict)
    compile: Callable[[nn.Module, Config], nn.Module] = lambda m, config: dacergnn.optimize(
        m, config=config, on_unsupported="ignore"
    )
    second: bool = True

    def original(self, options: dict[str, Any]) -> nn.Module:
        """The layer of the library, with parameters that are the same each time."""
        torch.manual_seed(0)
        module = self.make(**options).double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, dtype=torch.float64))
        return module


def _pyg(
    make: Callable[..., nn.Module], forms: tuple[str, ...], options: Values | None = None, **attributes: Any
) -> Layer:
    return Layer(f"pyg.{make.__name__}", make, forms, options or {}, {**FLOW, **attributes})


def _dgl(
    make: Callable[..., nn.Module], forms: tuple[str, ...], options: Values | None = None, *, second: bool = True,
    **attributes: Any,
) -> Layer:  # fmt: skip
    return Layer(f"dgl.{make.__name__}", make, forms, options or {}, attributes, second=second)


def _compatible(name: str, forms: tuple[str, ...], **attributes: Any) -> Layer:
    """A layer of the tests of compatibility."""
    return Layer(name, next(k.make for k in KINDS if k.name == name), forms, {}, attributes)


def _named(name: str, make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    make.__name__ = name
    return make


def _mlp(width: int = F) -> nn.Module:
    return nn.Sequential(nn.Linear(width, M), nn.Tanh(), nn.Linear(M, M))


class PlainForward(nn.Module):
    """A module whose forward takes a graph of DGL, as its author wrote it."""

    __init__ = DGLForward.__init__
    forward = DGLForward.forward.__wrapped__


FLAG = (True, False)
AGGREGATIONS = ("mean", "add", "max")
SLOPES: Values = {"negative_slope": (0.2, 0.9), "dropout": (0.0, 1.0)}
LAYERS = [
    _pyg(_named("RGCNConv", lambda **o: pyg.RGCNConv(F, 4, R, **o)), (*TYPED, "pair, types", "edges"),
         {"aggr": AGGREGATIONS, "num_bases": (None, 2), "root_weight": FLAG, "bias": FLAG}, aggr=AGGREGATIONS),
    _pyg(_named("RGCNConv-blocks", lambda **o: pyg.RGCNConv(F, 4, R, num_blocks=2, **o)), TYPED, {"bias": FLAG}),
    _pyg(_named("FastRGCNConv", lambda **o: pyg.FastRGCNConv(F, M, R, **o)), (*TYPED, "pair, types"),
         {"num_bases": (None, 2), "aggr": AGGREGATIONS}, aggr=AGGREGATIONS),
    _pyg(_named("RGATConv", lambda **o: pyg.RGATConv(F, M, R, **o)), TYPED,
         {"heads": (1, 2), "mod": (None, "additive", "f-scaled"), "concat": FLAG,
          "attention_mechanism": ("across-relation", "within-relation")},
         **SLOPES, attention_mode=("additive-self-attention", "multiplicative-self-attention"),
         mod=(None, "scaled", "additive")),
    _pyg(_named("HGTConv", lambda **o: pyg.HGTConv(F, F, (["a", "b"], RELATIONS), **o)), ("by type",),
         {"heads": (1, 2)}),
    _pyg(_named("GCNConv", lambda **o: pyg.GCNConv(F, M, **o)), (*PLAIN, *MATRICES, "weights", "named weights"),
         {"improved": FLAG[::-1], "normalize": FLAG, "cached": FLAG[::-1], "bias": FLAG},
         normalize=FLAG, improved=FLAG[::-1], add_self_loops=FLAG, aggr=("add", "mean", "max"), cached=FLAG[::-1]),
    _pyg(_named("SAGEConv", lambda **o: pyg.SAGEConv((F, F), M, **o)), (*PLAIN, *MATRICES, *PAIRS),
         {"aggr": AGGREGATIONS, "normalize": FLAG[::-1], "root_weight": FLAG, "project": FLAG[::-1]},
         normalize=FLAG[::-1], root_weight=FLAG, aggr=AGGREGATIONS),
    _pyg(_named("GINConv", lambda **o: pyg.GINConv(_mlp(), **o)), (*PLAIN, *MATRICES, *PAIRS), {"train_eps": FLAG},
         eps=(0.0, 0.5, torch.tensor(0.25, dtype=torch.float64)), nn=(nn.Identity(), None)),
    _pyg(_named("GATConv", lambda **o: pyg.GATConv(F, M, **o)), (*PLAIN, *MATRICES, "pair, None", "attention"),
         {"heads": (1, 2), "concat": FLAG, "add_self_loops": FLAG, "residual": FLAG[::-1], "bias": FLAG}, **SLOPES,
         add_self_loops=FLAG, concat=FLAG, fill_value=("mean", 1.0)),
    _pyg(_named("GATv2Conv", lambda **o: pyg.GATv2Conv(F, M, **o)), (*PLAIN, *MATRICES, "pair", "attention"),
         {"heads": (1, 2), "concat": FLAG, "share_weights": FLAG[::-1], "residual": FLAG[::-1]}, **SLOPES,
         add_self_loops=FLAG, share_weights=FLAG[::-1]),
    _pyg(_named("EdgeConv", lambda **o: pyg.EdgeConv(_mlp(2 * F), **o)), (*PLAIN, "coo", "pair"),
         {"aggr": ("max", "add", "mean")}, aggr=AGGREGATIONS),
    _pyg(_named("GMMConv", lambda **o: pyg.GMMConv(F, M, dim=2, kernel_size=2, **o)), ("positions",),
         {"separate_gaussians": FLAG[::-1], "aggr": AGGREGATIONS}),  # PyG's own fails without a root_weight
    _pyg(_named("TransformerConv", lambda **o: pyg.TransformerConv(F, M, **o)), (*PLAIN, "pair", "attention"),
         {"heads": (1, 2), "beta": FLAG[::-1], "root_weight": FLAG, "concat": FLAG}, root_weight=FLAG, concat=FLAG),
    _pyg(_named("GraphConv", lambda **o: pyg.GraphConv(F, M, **o)), (*PLAIN, *MATRICES, *PAIRS[1:], "weights"),
         {"aggr": AGGREGATIONS[::-1]}, aggr=AGGREGATIONS),
    _pyg(_named("ResGatedGraphConv", lambda **o: pyg.ResGatedGraphConv(F, M, **o)), (*PLAIN, "pair"),
         {"root_weight": FLAG, "bias": FLAG}, act=(nn.Sigmoid(), nn.Tanh(), None), root_weight=FLAG),
    _compatible("pyg.traced-UserLayer", PLAIN, scale=(2.0, -3.0), **FLOW),
    _compatible("pyg.HeteroConv-SAGEConv", ("by type",), aggr=("sum", "mean", "max", None, "cat")),
    _compatible("pyg.HeteroConv-GATConv", ("by type",), aggr=("sum", "mean", "max")),
    Layer("pyg.HeteroConv-GATv2Conv",
          lambda **o: pyg.HeteroConv({r: pyg.GATv2Conv((F, F), M, add_self_loops=False, **o) for r in RELATIONS}),
          ("by type",), {"heads": (1, 2), "concat": FLAG, "share_weights": FLAG[::-1], "residual": FLAG[::-1]},
          {"aggr": ("sum", "mean", "max")}),
    Layer("pyg.HeteroConv-TransformerConv",
          lambda **o: pyg.HeteroConv({r: pyg.TransformerConv((F, F), M, **o) for r in RELATIONS}),
          ("by type",), {"heads": (1, 2), "concat": FLAG, "root_weight": FLAG, "beta": FLAG[::-1]},
          {"aggr": ("sum", "mean", "max")}),
    _compatible("pyg.to_hetero-SAGEConv", ("by type",)),
    _dgl(_named("RelGraphConv", lambda **o: dglnn.RelGraphConv(F, M, R, **o)), ("dgl types",),
         {"num_bases": (None, 1), "self_loop": FLAG, "regularizer": ("basis", None), "layer_norm": FLAG[::-1]},
         activation=(None, torch.tanh), self_loop=FLAG),
    _dgl(_named("HGTConv", lambda **o: dglnn.HGTConv(F, 2, 2, 2, R, dropout=0.0, **o)), ("dgl all types",),
         {"use_norm": FLAG[::-1]}, second=False, use_norm=FLAG[::-1]),
    _dgl(_named("GraphConv", lambda **o: dglnn.GraphConv(F, M, **o)), ("dgl", "dgl named", "dgl weights"),
         {"norm": ("both", "right", "none", "left"), **LOOPS}, activation=(None, torch.tanh),
         _norm=("both", "left", "none"), _allow_zero_in_degree=FLAG),
    _dgl(_named("SAGEConv", lambda **o: dglnn.SAGEConv(F, M, **o)), ("dgl", "dgl named", "dgl weights"),
         {"aggregator_type": ("mean", "pool", "gcn")}, activation=(None, torch.tanh),
         norm=(None, nn.functional.normalize)),
    _dgl(_named("GINConv", lambda **o: dglnn.GINConv(_mlp(), **o)), ("dgl", "dgl named", "dgl weights"),
         {"aggregator_type": ("sum", "mean", "max"), "learn_eps": FLAG}, activation=(None, torch.tanh)),
    _dgl(_named("GATConv", lambda **o: dglnn.GATConv(F, M, 2, **o)), ("dgl", "dgl weights", "dgl attention"),
         {"residual": FLAG[::-1], **LOOPS}, second=False, activation=(None, torch.tanh), _allow_zero_in_degree=FLAG),
    _dgl(_named("GATv2Conv", lambda **o: dglnn.GATv2Conv(F, M, 2, **o)), ("dgl", "dgl named", "dgl attention"),
         {"residual": FLAG[::-1], "share_weights": FLAG[::-1], **LOOPS}, second=False, activation=(None, torch.tanh)),
    _dgl(_named("EdgeConv", lambda **o: dglnn.EdgeConv(F, M, **o)), ("dgl",), LOOPS),
    _dgl(_named("GMMConv", lambda **o: dglnn.GMMConv(F, M, 2, 2, **o)), ("dgl positions",),
         {"aggregator_type": ("sum", "mean", "max"), "residual": FLAG[::-1], **LOOPS}),
    Layer("compile-DGL-forward", PlainForward, ("dgl",), second=False,
          compile=lambda m, config: dacergnn.compile(m, config=config, on_unsupported="ignore")),
]  # fmt: skip
