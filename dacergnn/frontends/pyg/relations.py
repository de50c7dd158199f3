"""The layer of one relation of a `HeteroConv`: which of its class, with which options, and where its weights are."""

from __future__ import annotations

from dataclasses import dataclass
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
_LINEAR = "torch_geometric.nn.dense.linear.Linear"
WEIGHTED = (GRAPH, GCN)
"""Those of them whose calls take weights of edges."""
_ANY = ("add", "mean", "max", "min")
_AGGREGATIONS = {SAGE: _ANY, GRAPH: _ANY, GCN: ("add",), GAT: ("add",)}
CONVS = tuple(_AGGREGATIONS)
"""Layers that can stand for a relation."""
_WEIGHTS = {SAGE: ("lin_l.weight",), GRAPH: ("lin_rel.weight",), GCN: ("lin.weight",)}
_BIASES = {SAGE: "lin_l.bias", GRAPH: "lin_rel.bias", GCN: "bias", GAT: "bias"}
_ROOTS = {SAGE: "lin_r.weight", GRAPH: "lin_root.weight", GAT: "res.weight"}
_REFUSED: dict[str, dict[str, str]] = {
    SAGE: {
        "normalize": "normalize the result of the model's layer instead",
        "project": "project the features before the layer",
    },
    GCN: {"cached": "leave it False; the encoded graph and its coefficients are kept anyway"},
    GAT: {"dropout": "set it to 0 to have one program for all relations"},
}


class Attention(NamedTuple):
    """Options that the attention of all relations shares."""

    heads: int
    channels: int
    concat: bool
    slope: float


@dataclass(frozen=True)
class Relation:
    """How a relation's messages are weighted and reduced, and the paths of its parameters.

    `rule` is "add", "mean", "max", "min" (weights of edges, reduced), "gcn" (symmetric norm) or "attention". A bias
    or root weight that the layer does not have is None; `loops` is the weight of self loops to be added, 0 for none.
    """

    key: EdgeType
    place: str
    rule: str
    weighted: bool
    loops: float
    weight: str
    weight_dst: str
    root: str | None
    bias: str | None
    out_channels: int
    attention: Attention | None

    @property
    def matrices(self) -> tuple[tuple[str, str | None], ...]:
        """Node types, and the path of a matrix that their features are multiplied with."""
        source, _, destination = self.key
        own = self.weight_dst if self.attention else None
        return (source, self.weight), (destination, own), (destination, self.root)

    @property
    def reduce(self) -> str:
        """How the program reduces over the edges of a (destination, type) pair."""
        return self.rule if self.rule in ("max", "min") else "sum"

    def parameter(self, convs: Any, path: str | None) -> Tensor | None:
        """The parameter of this relation's layer at `path`, None where there is none."""
        return None if path is None else _at(convs._modules[self.place], path)

    @classmethod
    def of(cls, key: EdgeType, place: str, conv: Any) -> Relation:
        """UnsupportedLayerError if the layer is none of the four, or has an option that no program expresses."""

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
        rule, weight, weight_dst, attention = aggr, *_WEIGHTS.get(kind, ("",)) * 2, None
        out_channels: int = conv.out_channels
        if kind == GCN and conv.normalize:
            rule = "gcn"
        elif kind == GAT:
            rule, heads = "attention", conv.heads
            attention = Attention(heads, out_channels, conv.concat or heads == 1, float(conv.negative_slope))
            out_channels *= heads if conv.concat else 1
            weight, weight_dst = ("lin_src.weight", "lin_dst.weight") if conv.lin is None else ("lin.weight",) * 2
        root, bias = _ROOTS.get(kind), _BIASES[kind]
        return cls(
            key, place, rule, kind in WEIGHTED, loops * (2.0 if getattr(conv, "improved", False) else 1.0),
            weight, weight_dst, None if root is None or _at(conv, root) is None else root,
            None if _at(conv, bias) is None else bias, out_channels, attention,
        )  # fmt: skip


def _at(module: Any, path: str) -> Tensor | None:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module
