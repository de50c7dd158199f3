"""Front ends for PyG's `GATConv` and `GATv2Conv`."""

from __future__ import annotations

from types import FunctionType
from typing import Any, ClassVar

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.attention import gat, gatv2
from dacergnn.frontends.frontend import Binding, GraphKey
from dacergnn.frontends.pyg.attention import AttentionFrontend, Path
from dacergnn.frontends.pyg.given_edges import edge_features
from dacergnn.frontends.pyg.message_passing import ends
from dacergnn.graph import HeteroGraph


class GATFrontend(AttentionFrontend):
    """Runs `GATConv`; a score is the sum of one number for each end and one for the edge."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gat_conv.GATConv",)
    inlined = True
    source: ClassVar[FunctionType] = gat

    def paths(self) -> dict[str, Path | None]:
        layer = self.module
        separate = layer.lin is None
        return {
            "W": ("lin_src", "weight") if separate else ("lin", "weight"),
            "W_dst": ("lin_dst", "weight") if separate else None,
            "q": ("att_src",),
            "k": ("att_dst",),
            "W_edge": None if layer.lin_edge is None else ("lin_edge", "weight"),
            "q_edge": None if layer.lin_edge is None else ("att_edge",),
            **self.common_paths(),
        }

    def edges(
        self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, return_attention_weights: Any = None
    ) -> GraphKey:
        return self.key_of_call(x, edge_index, edge_attr, size, return_attention_weights)

    def result(
        self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, return_attention_weights: Any = None
    ) -> Any:
        return self.result_of_call(x, edge_index, size, return_attention_weights)

    def graph(
        self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, *_: Any, **__: Any
    ) -> HeteroGraph:
        return self.graph_of_call(x, edge_index, size)

    def bind(
        self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None,
        return_attention_weights: Any = None,
    ) -> Binding:  # fmt: skip
        return self.binding_of_call(graph, x, edge_index, edge_attr, size, return_attention_weights)


class GATv2Frontend(AttentionFrontend):
    """Runs `GATv2Conv`; scores are products with features of both ends, and the program adds biases of projections."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gatv2_conv.GATv2Conv",)
    inlined = True
    source: ClassVar[FunctionType] = gatv2

    def paths(self) -> dict[str, Path | None]:
        layer = self.module
        separate = not layer.share_weights
        return {
            "W": ("lin_l", "weight"),
            "W_bias": None if layer.lin_l.bias is None else ("lin_l", "bias"),
            "W_dst": ("lin_r", "weight") if separate else None,
            "W_dst_bias": ("lin_r", "bias") if separate and layer.lin_r.bias is not None else None,
            "q": ("att",),
            "W_edge": None if layer.lin_edge is None else ("lin_edge", "weight"),
            **self.common_paths(),
        }

    def edges(self, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None) -> GraphKey:
        if ends(x)[1] is None:
            raise UnsupportedCallError("x[1] is None; pass features of the destinations.")
        key = self.key_of_call(x, edge_index, edge_attr, None, return_attention_weights)
        if self.edge_dim is None and (edge_attr is not None or edge_features(edge_index) is not None):
            raise UnsupportedCallError("edge_attr is given to a layer without edge_dim.")
        return key

    def result(self, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None) -> Any:
        return self.result_of_call(x, edge_index, None, return_attention_weights)

    def graph(self, x: Any, edge_index: Any, *_: Any, **__: Any) -> HeteroGraph:
        return self.graph_of_call(x, edge_index)

    def bind(
        self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None
    ) -> Binding:
        return self.binding_of_call(graph, x, edge_index, edge_attr, None, return_attention_weights)
