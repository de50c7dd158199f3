"""The layer of one relation of a `HeteroConv`: its class, its options and the paths of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from dacergnn.errors import UnsupportedLayerError
from dacergnn.frontends.frontend import handled_class
from dacergnn.frontends.pyg.message_passing import check_options

EdgeType = tuple[str, str, str]
_CONV = "torch_geometric.nn.conv."
SAGE, GRAPH = _CONV + "sage_conv.SAGEConv", _CONV + "graph_conv.GraphConv"
GCN, GAT = _CONV + "gcn_conv.GCNConv", _CONV + "gat_conv.GATConv"
GATV2, TRANSFORMER = _CONV + "gatv2_conv.GATv2Conv", _CONV + "transformer_conv.TransformerConv"
_LINEAR = "torch_geometric.nn.dense.linear.Linear"
WEIGHTED = (GRAPH, GCN)
"""Layers whose calls take weights of edges."""
ATTENDING = (GAT, GATV2, TRANSFORMER)
"""Layers whose relations attend."""
_ANY = ("add", "mean", "max", "min")
_AGGREGATIONS = {SAGE: _ANY, GRAPH: _ANY, GCN: ("add",), **dict.fromkeys(ATTENDING, ("add",))}
CONVS = tuple(_AGGREGATIONS)
"""Layers that can stand for a relation."""
_PATHS = {
    SAGE: {"W": "lin_l.weight", "root": "lin_r.weight", "bias": "lin_l.bias"},
    GRAPH: {"W": "lin_rel.weight", "root": "lin_root.weight", "bias": "lin_rel.bias"},
    GCN: {"W": "lin.weight", "bias": "bias"},
    GAT: {
        "W": "lin_src.weight", "W_dst": "lin_dst.weight", "q": "att_src", "k": "att_dst",
        "root": "res.weight", "bias": "bias",
    },
    GATV2: {
        "W": "lin_l.weight", "W_bias": "lin_l.bias", "W_dst": "lin_r.weight", "W_dst_bias": "lin_r.bias", "q": "att",
        "root": "res.weight", "bias": "bias",
    },
    TRANSFORMER: {
        "W": "lin_value.weight", "W_bias": "lin_value.bias", "W_key": "lin_key.weight", "W_key_bias": "lin_key.bias",
        "W_dst": "lin_query.weight", "W_dst_bias": "lin_query.bias",
        "root": "lin_skip.weight", "bias": "lin_skip.bias",
    },
}  # fmt: skip
_SHARED_PATHS = {
    GAT: {"W": "lin.weight", "W_dst": "lin.weight"},
    GATV2: {"W_dst": "lin_l.weight", "W_dst_bias": "lin_l.bias"},
}
"""Paths that differ where both ends have one projection."""
_ENDS = {"W": 0, "W_key": 0, "W_dst": -1, "root": -1}
"""The end of an edge whose features a matrix is multiplied with."""
_DROPOUT = {"dropout": "set it to 0 to have one program for all relations"}
_REFUSED: dict[str, dict[str, str]] = {
    SAGE: {
        "normalize": "normalize the result of the model's layer instead",
        "project": "project the features before the layer",
    },
    GCN: {"cached": "leave it False; the encoded graph and its coefficients are kept anyway"},
    GAT: _DROPOUT,
    GATV2: _DROPOUT,
    TRANSFORMER: {
        **_DROPOUT,
        "beta": "leave it False to have one program for all relations",
        "edge_dim": "leave it None; calls with features of edges are one program for each relation",
    },
}


class Attention(NamedTuple):
    """Holds the options that the attention of all relations shares; `slope` is a LeakyReLU's, if there is one."""

    layer: str
    heads: int
    channels: int
    concat: bool
    slope: float


@dataclass(frozen=True)
class Relation:
    """Describes how a relation's messages are weighted and reduced, and where its parameters are.

    `rule` is "add", "mean", "max", "min" (weights of edges, reduced), "gcn" (symmetric norm) or "attention". `loops` is
    the weight of self loops to be added, 0 for none. `paths` maps names of the program's arrays to the paths of the
    parameters that the layer has.
    """

    key: EdgeType
    place: str
    rule: str
    weighted: bool
    loops: float
    paths: Mapping[str, str] = field(hash=False)
    out_channels: int
    attention: Attention | None

    @property
    def matrices(self) -> list[tuple[str, str]]:
        """Returns pairs of a node type and the path of a matrix that its features are multiplied with."""
        return [(self.key[end], self.paths[name]) for name, end in _ENDS.items() if name in self.paths]

    @property
    def reduce(self) -> str:
        """Returns the program's reduction over the edges of a (destination, type) pair."""
        return self.rule if self.rule in ("max", "min") else "sum"

    def loop_form(self, *, matrix: bool) -> tuple[bool, bool, bool]:
        """Returns a key of the edges that a layer makes of an index or ``matrix`` by adding self loops.

        Layers that attend replace the self loops of a matrix; other layers may add to them.
        """
        return matrix, self.loops > 0, matrix and self.loops > 0 and self.attention is not None

    def parameter(self, convs: Any, path: str) -> Tensor:
        """Returns the parameter of this relation's layer at `path`."""
        return attrgetter(path)(convs._modules[self.place])

    @classmethod
    def of(cls, key: EdgeType, place: str, conv: Any) -> Relation:
        """Returns the relation of a layer; raises UnsupportedLayerError for one that no program expresses."""

        def refuse(option: str, value: object, remedy: str) -> UnsupportedLayerError:
            return UnsupportedLayerError(option, value, remedy, f"{type(conv).__name__} of edge type {key!r}")

        kind = handled_class(conv, CONVS)
        if kind is None:
            known = ", ".join(name.rpartition(".")[2] for name in CONVS)
            raise UnsupportedLayerError("convs", type(conv).__name__, f"one program takes {known}", "HeteroConv")
        aggr = check_options(conv, refuse, _AGGREGATIONS[kind])
        for option, remedy in _REFUSED.get(kind, {}).items():
            if getattr(conv, option):
                raise refuse(option, getattr(conv, option), remedy)
        if any(isinstance(p, UninitializedParameter) for p in conv.parameters()):
            raise refuse("in_channels", -1, "run the model once before it is optimized")
        for name, child in conv.named_children():
            if name != "aggr_module" and handled_class(child, (_LINEAR,)) is None:
                raise refuse(name, type(child).__name__, "keep the Linear of the layer")
        for module in conv.modules():
            if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
                raise refuse("hooks", type(module).__name__, "put hooks on the HeteroConv")
        loops = bool(getattr(conv, "add_self_loops", False))
        if key[0] != key[-1] and (loops or kind == GCN):
            remedy = "GCNConv, and other layers with self loops, take edges between nodes of one type"
            raise UnsupportedLayerError("edge_type", key, remedy, type(conv).__name__)
        rule, out_channels, attention = aggr, int(conv.out_channels), None
        if kind == GCN and conv.normalize:
            rule = "gcn"
        elif kind in ATTENDING:
            rule, layer, heads = "attention", kind.rpartition(".")[2], conv.heads
            slope = float(getattr(conv, "negative_slope", 0.0))
            attention = Attention(layer, heads, out_channels, conv.concat or heads == 1, slope)
            out_channels *= heads if conv.concat else 1
        return cls(
            key, place, rule, kind in WEIGHTED, loops * (2.0 if getattr(conv, "improved", False) else 1.0),
            _paths(kind, conv, within=key[0] == key[-1]), out_channels, attention,
        )  # fmt: skip


def _paths(kind: str, conv: Any, *, within: bool) -> dict[str, str]:
    """Returns the paths of the parameters that a layer uses between nodes of one type (``within``) or of two."""
    paths = _PATHS[kind]
    if kind == GAT and conv.lin is not None:
        paths = paths | _SHARED_PATHS[kind]
    # With features of two types the layer calls both projections, even if its option says that it shares one.
    if kind == GATV2 and (conv.lin_r is conv.lin_l or (conv.share_weights and within)):
        paths = paths | _SHARED_PATHS[kind]
    if not getattr(conv, "root_weight", True):
        own, _, _ = paths["root"].partition(".")
        paths = {name: path for name, path in paths.items() if not path.startswith(f"{own}.")}
    return {name: path for name, path in paths.items() if _has(conv, path)}


def _has(module: Any, path: str) -> bool:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module is not None
