"""Front end for PyG's `HGTConv`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear
from torch.nn.parameter import UninitializedParameter

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.features import is_sparse, joined
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs, ProgramSource, in_shape, spec
from dacergnn.frontends.hgt_programs import hgt_attention, hgt_biased
from dacergnn.frontends.missing_gradients import Reached, Results
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.given_edges import check_edges, identity, sources_and_destinations
from dacergnn.frontends.pyg.hgt_layout import NodeTypeLayout, make_layout
from dacergnn.frontends.pyg.message_passing import (
    MessagePassingFrontend,
    check_features,
)
from dacergnn.graph import HeteroGraph
from dacergnn.graph.typed_parts import Part
from dacergnn.runtime.stacks import Stack, stacks_of


class HGTFrontend(MessagePassingFrontend):
    """Runs `HGTConv` over the nodes of all types, which are ordered by type as in the layer's metadata.

    If node types have features of different sizes, or a projection has no bias, the program holds the attention only.
    The projections and the output layer are then torch's.
    """

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.hgt_conv.HGTConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.check_options("add")
        layer = self.module
        lins = layer.kqv_lin.lins
        if any(isinstance(lin.weight, UninitializedParameter) for lin in lins.values()):
            raise self.refuse("in_channels", -1, "run the model once before it is optimized")
        self.heads: int = layer.heads
        self.out_channels: int = layer.out_channels
        self.node_types: list[str] = list(layer.node_types)
        self.edge_types: dict[tuple[str, str, str], int] = dict(layer.edge_types_map)
        self.channels: dict[str, int] = {name: lins[name].weight.size(1) for name in self.node_types}
        internal: Callable[[str], str] = layer.skip.to_internal_key
        self.skip_keys = [internal(name) for name in self.node_types]
        self.prior_keys = [internal("__".join(key)) for key in self.edge_types]
        self.output_types: list[str] = [name for name in lins if name in layer.dst_node_types]
        biases = [lin.bias for lin in (*lins.values(), *layer.out_lin.lins.values())]
        self.uniform = len(set(self.channels.values())) == 1 and all(bias is not None for bias in biases)
        self.has_skip = self.uniform and self.channels[self.node_types[0]] == self.out_channels
        self.priors = stacks_of(Stack(("pri",), len(self.prior_keys)))
        self.weight_stacks = stacks_of(*self._weight_stacks())
        features = [Stack(("x",), count, typed=False) for count in range(len(self.node_types) + 1)]
        self.stacks = [stacks_of(*self.weight_stacks.stacks, stack) for stack in features]
        self._own_parameters = Parameters(layer, self._paths())
        self._layouts: dict[tuple[object, ...], NodeTypeLayout] = {}

    def edges(self, x_dict: Any, edge_index_dict: Any) -> GraphKey:
        if not edge_index_dict or not x_dict:
            raise UnsupportedCallError("x_dict or edge_index_dict is empty; pass at least one type in each.")
        for name, x in x_dict.items():
            if name not in self.channels:
                raise UnsupportedCallError(f"x_dict holds node type {name!r}, which the layer does not know.")
            check_features(f"x_dict[{name!r}]", x, self.channels[name])
        layout = self._layout(x_dict, edge_index_dict)
        for edge_index in edge_index_dict.values():
            check_edges(edge_index)
        parts = tuple([part for edges in edge_index_dict.values() for part in identity(edges)])
        return parts, (layout.names, layout.edge_types, layout.sizes(x_dict))

    def graph_owner(self) -> object:
        return tuple(self.node_types), tuple(self.edge_types)

    def result(self, x_dict: Any, edge_index_dict: Any) -> dict[str, tuple[int, int]]:
        layout = self._layout(x_dict, edge_index_dict)
        return {name: (x_dict[name].size(0), self.out_channels) for name, _ in layout.outputs}

    def graph(self, x_dict: Any, edge_index_dict: Any) -> HeteroGraph:
        places = {name: i for i, name in enumerate(self.node_types)}
        parts = [
            Part(
                sources_and_destinations(edges), self.edge_types[key], (places[key[0]], places[key[-1]]),
                f"edge_index_dict[{key!r}]",
            )
            for key, edges in edge_index_dict.items()
        ]  # fmt: skip
        counts = [x_dict[name].size(0) if name in x_dict else 0 for name in self.node_types]
        return HeteroGraph.of_parts(parts, counts, ["__".join(key) for key in self.edge_types], self.node_types)

    def bind(self, graph: HeteroGraph, x_dict: Any, edge_index_dict: Any) -> Binding:
        layout = self._layout(x_dict, edge_index_dict)
        if not self.uniform:
            for name, x in x_dict.items():
                if is_sparse(x) and self.channels[name] == self.out_channels:
                    raise UnsupportedCallError(f"x_dict[{name!r}] is sparse, but added to a result; pass it dense.")
            W_att, W_msg, *parts = self._own_parameters.read(self.module)
            arrays = {"W_att": W_att, "W_msg": W_msg, **self._projections(x_dict)}
            program = self.program("attention", self._attention)
            finish = partial(self._finish_torch, layout, x_dict)
            return Binding(program, arrays, finish, self.priors, parts, self._made, self._results(layout))
        W_att, W_msg, *parts = self._own_parameters.read(self.module)
        arrays, features = {"W_att": W_att, "W_msg": W_msg}, [x_dict[name] for name in layout.names]
        stacks = self.stacks[len(layout.names)]
        if any(map(is_sparse, features)):
            arrays["x"], features, stacks = joined(features, features[0].size(1)), [], self.weight_stacks
        return Binding(
            self.program("biased", self._biased), arrays, partial(self._finish, layout, layout.sizes(x_dict)),
            stacks, [*parts, *features], self._made, self._results(layout), repeats=True,
        )  # fmt: skip

    def _paths(self) -> list[tuple[str, ...]]:
        """Returns the paths of the program's weights, the weights of relations first."""
        paths = [("k_rel", "weight"), ("v_rel", "weight"), *[("p_rel", key) for key in self.prior_keys]]
        if self.uniform:
            for module, name in product(("kqv_lin", "out_lin"), ("weight", "bias")):
                paths += [(module, "lins", node_type, name) for node_type in self.node_types]
        if self.has_skip:
            paths += [("skip", key) for key in self.skip_keys]
        return paths

    @property
    def _made(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Returns the functions that bring the weights of relations into the program's layout."""
        return dict.fromkeys(("W_att", "W_msg"), self._relation_weights) if self.heads > 1 else {}

    def _layout(self, x_dict: Any, edge_index_dict: Any) -> NodeTypeLayout:
        """Returns the layout of a call; raises UnsupportedCallError if the layer does not know the types."""
        if torch.compiler.is_compiling():  # tracers guard on values that they read, and the cache changes
            return self._make_layout(x_dict, edge_index_dict)
        types = (*x_dict, None, *edge_index_dict)
        layout = self._layouts.get(types)
        if layout is None:
            layout = self._layouts[types] = self._make_layout(x_dict, edge_index_dict)
        return layout

    def _make_layout(self, x_dict: Any, edge_index_dict: Any) -> NodeTypeLayout:
        return make_layout(x_dict, edge_index_dict, self.node_types, self.edge_types, self.output_types)

    def _weight_stacks(self) -> list[Stack]:
        """Returns the arrays that the parameters are joined to, as stacks."""
        arrays = [("W_k", "W_q", "W_v"), ("k_bias", "q_bias", "v_bias"), ("A",), ("a_bias",)]
        if self.has_skip:
            arrays.append(("skip",))
        typed = [Stack(names, len(self.node_types)) for names in arrays]
        return [*self.priors.stacks, *typed]

    def _relation_weights(self, weight: Tensor) -> Tensor:
        """Returns weights [R, H, D, D] from PyG's [H * R, D, D]."""
        d = self.out_channels // self.heads
        return weight.view(self.heads, -1, d, d).transpose(0, 1).contiguous()

    def _projections(self, x_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Computes k, q and v, [N, F] each, by one torch linear for each node type."""
        lins = self.module.kqv_lin.lins
        names = [name for name in self.node_types if name in x_dict]
        parts = [linear(x_dict[name], lins[name].weight, lins[name].bias).split(self.out_channels, 1) for name in names]
        return {key: torch.cat([part[i] for part in parts]) for i, key in enumerate("kqv")}

    def _results(self, layout: NodeTypeLayout) -> Results:
        """Returns the results that each part leads to, as positions of node types in the order of the rows."""
        every, own = [i for _, i in layout.outputs], {name: [i] for name, i in layout.outputs}
        relations = [every if key in layout.edge_types else [] for key in self.edge_types]
        if not self.uniform:
            return Results(len(every), relations)
        inward = [every if name in layout.names else [] for name in self.node_types]
        outward = [own.get(name, []) for name in self.node_types]
        skips = outward if self.has_skip else []
        features = [every] * len(layout.names)
        return Results(len(every), [*relations, *inward, *inward, *outward, *outward, *skips, *features])

    def _finish(
        self, layout: NodeTypeLayout, sizes: list[int], outputs: Outputs, reached: Reached
    ) -> dict[str, Tensor]:
        parts = reached.split(outputs[0], sizes)
        return {name: parts[i] for name, i in layout.outputs}

    def _finish_torch(
        self, layout: NodeTypeLayout, x_dict: dict[str, Tensor], outputs: Outputs, reached: Reached
    ) -> dict[str, Tensor]:
        layer = self.module
        rows = in_shape(outputs[0], -1, self.out_channels)
        parts = self._finish(layout, layout.sizes(x_dict), (rows,), reached)
        for name, part in parts.items():
            lin = layer.out_lin.lins[name]
            out = linear(gelu(part), lin.weight, lin.bias)
            if self.channels[name] == self.out_channels:
                alpha = layer.skip[name].sigmoid()
                out = alpha * out + (1 - alpha) * x_dict[name]
            parts[name] = out
        return parts

    def _common(self) -> dict[str, object]:
        h, d = self.heads, self.out_channels // self.heads
        weights: dict[str, object] = {
            "W_att": spec("R", h, d, d),
            "W_msg": spec("R", h, d, d),
            "pri": spec("R", h),
        }
        return weights | {"scale": 1.0 / math.sqrt(d)}

    def _attention(self) -> ProgramSource:
        h, d = self.heads, self.out_channels // self.heads
        return ProgramSource.of(
            hgt_attention, k=spec("NS", h, d), q=spec("ND", h, d), v=spec("NS", h, d), **self._common()
        )

    def _biased(self) -> ProgramSource:
        k, f = self.channels[self.node_types[0]], self.out_channels
        arrays: dict[str, object] = {name: spec("T", f, k) for name in ("W_k", "W_q", "W_v")}
        arrays |= {name: spec("T", f) for name in ("k_bias", "q_bias", "v_bias", "a_bias")}
        arrays |= {"x": spec("NS", k), "A": spec("T", f, f), "skip": spec("T") if self.has_skip else None}
        return ProgramSource.of(
            hgt_biased,
            heads=self.heads,
            dim=f // self.heads,
            width=f,
            **arrays,
            **self._common(),
        )
