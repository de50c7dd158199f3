"""Front ends for DGL's `GATConv` and `GATv2Conv`."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.attention import attention_program, gat, gatv2, kept_weights
from dacergnn.frontends.dgl.graphs import check_in_degrees, check_pair, check_rows, encode_relation, relation_sizes
from dacergnn.frontends.features import dropped, drops
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, Outputs, ProgramSource, only
from dacergnn.frontends.linear import is_torch
from dacergnn.frontends.parameters import Parameters
from dacergnn.graph import HeteroGraph

Path = tuple[str, ...]


class _AttentionFrontend(Frontend):
    """Expresses attention layers; torch computes the dropout of features, and the masks for dropout of attention."""

    source: ClassVar[FunctionType]
    called: ClassVar[tuple[str, ...] | None] = ("feat_drop", "activation")

    def __init__(self, module: nn.Module) -> None:
        """Raises UnsupportedLayerError if scores have another activation than leaky ReLU."""
        super().__init__(module)
        layer = self.module
        self.in_feats: tuple[int, int] = (layer._in_src_feats, layer._in_dst_feats)
        self.heads: int = layer._num_heads
        self.channels: int = layer._out_feats
        if type(layer.leaky_relu) is not nn.LeakyReLU:
            raise self.refuse("leaky_relu", type(layer.leaky_relu).__name__, "use a torch.nn.LeakyReLU")
        self.slope = float(layer.leaky_relu.negative_slope)
        self.has_residual: bool = layer.res_fc is not None
        paths = {name: path for name, path in self.paths().items() if path is not None}
        if isinstance(layer.res_fc, nn.Linear):
            paths["res"] = ("res_fc", "weight")
            if getattr(layer.res_fc, "bias", None) is not None:
                paths["res_bias"] = ("res_fc", "bias")
        self.names = list(paths)
        self._own_parameters = Parameters(layer, list(paths.values()))

    @abstractmethod
    def paths(self) -> dict[str, Path | None]:
        """Returns the paths of the parameters by their names in the program; None for parameters that are not there."""

    def _key(self, graph: Any, feat: Any, edge_weight: Any = None) -> GraphKey:
        sizes, pair = relation_sizes(graph), check_pair(graph, feat)
        check_rows("feat[0]" if pair else "feat", feat[0] if pair else feat, sizes[0], self.in_feats[0])
        if pair:
            check_rows("feat[1]", feat[1], sizes[1], self.in_feats[1])
        if edge_weight is not None and (not isinstance(edge_weight, Tensor) or edge_weight.shape != (sizes[2],)):
            raise UnsupportedCallError(f"edge_weight must be a tensor [{sizes[2]}], one value for each edge.")
        return (graph,), (*sizes, pair, False)

    def _shapes(self, graph: Any, get_attention: bool) -> Any:
        shape = int(graph.num_dst_nodes()), self.heads, self.channels
        return [shape, (int(graph.num_edges()), self.heads, 1)] if get_attention else shape

    def graph_owner(self) -> object:
        return "dgl", "one type"

    def graph(self, graph: Any, feat: Any, *_: Any, **__: Any) -> HeteroGraph:
        return encode_relation(graph, bipartite=isinstance(feat, tuple))

    @property
    def repeatable(self) -> bool:
        layer = self.module
        return is_torch(layer.activation) and not (drops(layer.feat_drop) or drops(layer.attn_drop))

    def _binding(self, encoded: HeteroGraph, graph: Any, feat: Any, edge_weight: Any, get_attention: bool) -> Binding:
        layer = self.module
        check_in_degrees(layer, encoded, graph, feat)
        arrays = dict(zip(self.names, self._own_parameters.read(layer), strict=True))
        drops_weights = drops(layer.attn_drop)  # refuses other modules before random numbers are drawn
        if isinstance(feat, tuple):
            arrays["x"], arrays["x_dst"] = (dropped(layer.feat_drop, x) for x in feat)
        else:
            arrays["x"] = dropped(layer.feat_drop, feat)
        if drops_weights:
            shape = (encoded.size("E"), self.heads, 1)
            arrays["kept"] = kept_weights(encoded, layer.attn_drop.p, shape, arrays["x"])
        if edge_weight is not None:
            arrays["edge_weight"] = edge_weight.contiguous()
        made = {} if edge_weight is None else {"edge_weight": encoded.to_canonical}
        program = self.program((*arrays, get_attention), lambda: self._program(arrays, attention=bool(get_attention)))
        if get_attention:
            return Binding(program, arrays, partial(self._with_attention, encoded), made=made, repeats=True)
        return Binding(program, arrays, only, made=made, reshapes=True, activation=layer.activation)

    def _program(self, arrays: dict[str, Tensor], *, attention: bool) -> ProgramSource:
        return attention_program(
            type(self).source, arrays, heads=self.heads, channels=self.channels, slope=self.slope,
            residual=self.has_residual, attention=attention,
        )  # fmt: skip

    def _with_attention(self, graph: HeteroGraph, outputs: Outputs) -> tuple[Tensor, Tensor]:
        activation = self.module.activation
        return activation(outputs[0]) if activation else outputs[0], graph.from_canonical(outputs[1]).unsqueeze(-1)


class DGLGATFrontend(_AttentionFrontend):
    """Expresses `GATConv`, whose scores are sums of a number for each end."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.gatconv.GATConv",)
    source: ClassVar[FunctionType] = gat

    def paths(self) -> dict[str, Path | None]:
        layer = self.module
        if layer.bias is None and getattr(layer, "has_explicit_bias", False):
            raise self.refuse("bias", None, "DGL reads it in each call; make the layer with bias=False")
        separate = not hasattr(layer, "fc")
        return {
            "W": ("fc_src", "weight") if separate else ("fc", "weight"),
            "W_dst": ("fc_dst", "weight") if separate else None,
            "q": ("attn_l",),
            "k": ("attn_r",),
            "bias": ("bias",) if isinstance(layer.bias, Tensor) else None,
        }

    def edges(self, graph: Any, feat: Any, edge_weight: Any = None, get_attention: bool = False) -> GraphKey:
        return self._key(graph, feat, edge_weight)

    def result(self, graph: Any, feat: Any, edge_weight: Any = None, get_attention: bool = False) -> Any:
        return self._shapes(graph, get_attention)

    def bind(
        self, encoded: HeteroGraph, /, graph: Any, feat: Any, edge_weight: Any = None, get_attention: bool = False
    ) -> Binding:
        return self._binding(encoded, graph, feat, edge_weight, get_attention)


class DGLGATv2Frontend(_AttentionFrontend):
    """Expresses `GATv2Conv`, whose scores are products with features of both ends, with biases of the projections."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.gatv2conv.GATv2Conv",)
    source: ClassVar[FunctionType] = gatv2

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        if self.module.share_weights and self.module.fc_dst is not self.module.fc_src:
            raise self.refuse("share_weights", True, "give in_feats as one number")

    def paths(self) -> dict[str, Path | None]:
        layer = self.module
        separate = layer.fc_dst is not layer.fc_src
        return {
            "W": ("fc_src", "weight"),
            "W_bias": None if layer.fc_src.bias is None else ("fc_src", "bias"),
            "W_dst": ("fc_dst", "weight") if separate else None,
            "W_dst_bias": ("fc_dst", "bias") if separate and layer.fc_dst.bias is not None else None,
            "q": ("attn",),
        }

    def edges(self, graph: Any, feat: Any, get_attention: bool = False) -> GraphKey:
        return self._key(graph, feat)

    def result(self, graph: Any, feat: Any, get_attention: bool = False) -> Any:
        return self._shapes(graph, get_attention)

    def bind(self, encoded: HeteroGraph, /, graph: Any, feat: Any, get_attention: bool = False) -> Binding:
        return self._binding(encoded, graph, feat, None, get_attention)
