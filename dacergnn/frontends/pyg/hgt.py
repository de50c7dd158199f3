"""Front end for PyG's `HGTConv`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear
from torch.nn.parameter import UninitializedParameter

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs, Program, spec
from dacergnn.frontends.hgt_programs import hgt_attention, hgt_biased
from dacergnn.frontends.pyg.message_passing import (
    MessagePassingFrontend,
    check_edge_index,
    check_features,
    plain,
)
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import check_range

Range = tuple[int, int]


class HGTFrontend(MessagePassingFrontend):
    """Nodes of all types stand one after the other in the order of the layer's metadata.

    Where node types have features of different sizes, their projections and the output layer stay torch's,
    and the program holds the attention.
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
        self.uniform = len(set(self.channels.values())) == 1
        self.has_skip = self.uniform and self.channels[self.node_types[0]] == self.out_channels

    def edges(self, x_dict: Any, edge_index_dict: Any) -> GraphKey:
        known = "which the layer does not know"
        if not edge_index_dict or not x_dict:
            raise UnsupportedCallError("x_dict or edge_index_dict is empty; pass at least one type in each.")
        for name, x in x_dict.items():
            if name not in self.channels:
                raise UnsupportedCallError(f"x_dict holds node type {name!r}, {known}.")
            check_features(f"x_dict[{name!r}]", x, self.channels[name])
        for key, edge_index in edge_index_dict.items():
            if key not in self.edge_types:
                raise UnsupportedCallError(f"edge_index_dict holds edge type {key!r}, {known}.")
            if key[0] not in x_dict or key[-1] not in x_dict:
                raise UnsupportedCallError(f"x_dict lacks a node type of edge type {key!r}.")
            check_edge_index(edge_index)
        sizes = tuple(x_dict[name].size(0) if name in x_dict else -1 for name in self.node_types)
        return tuple(edge_index_dict.values()), (*sizes, *edge_index_dict)

    def graph_owner(self) -> object:
        return tuple(self.node_types), tuple(self.edge_types)

    def result(self, x_dict: Any, edge_index_dict: Any) -> dict[str, tuple[int, int]]:
        names = [name for name in self.output_types if name in x_dict]
        return {name: (x_dict[name].size(0), self.out_channels) for name in names}

    def graph(self, x_dict: Any, edge_index_dict: Any) -> HeteroGraph:
        ranges = self._ranges(x_dict)
        device = next(iter(edge_index_dict.values())).device
        parts: list[Tensor] = []
        for key, edge_index in edge_index_dict.items():
            (start, stop), (start_dst, stop_dst) = ranges[key[0]], ranges[key[-1]]
            edges = plain(edge_index)
            # Here, because ids count within their type: with the offsets, a wrong one hits another type.
            check_range(f"edge_index_dict[{key!r}][0]", edges[0], stop - start, f"{key[0]} nodes", "x_dict")
            check_range(f"edge_index_dict[{key!r}][1]", edges[1], stop_dst - start_dst, f"{key[-1]} nodes", "x_dict")
            offsets = torch.tensor([[start], [start_dst]], dtype=edges.dtype, device=device)
            parts.append(edges + offsets)
        counts = torch.tensor([p.size(1) for p in parts], device=device)
        types = torch.tensor([self.edge_types[key] for key in edge_index_dict], device=device)
        sizes = [stop - start for start, stop in (ranges.get(name, (0, 0)) for name in self.node_types)]
        return HeteroGraph.from_arrays(
            torch.cat(parts, dim=1), types.repeat_interleave(counts), num_nodes=sum(sizes),
            num_edge_types=len(self.edge_types), num_node_types=len(sizes),
            node_type=torch.arange(len(sizes), device=device).repeat_interleave(
                torch.tensor(sizes, device=device)
            ),
            edge_type_names=["__".join(key) for key in self.edge_types], node_type_names=self.node_types,
        )  # fmt: skip

    def bind(self, graph: HeteroGraph, x_dict: Any, edge_index_dict: Any) -> Binding:
        parts = self.module._modules  # without the cost of attribute access on a module
        priors = parts["p_rel"]._parameters
        arrays = {
            "W_att": self._relation_weights(parts["k_rel"]._parameters["weight"]),
            "W_msg": self._relation_weights(parts["v_rel"]._parameters["weight"]),
            "pri": torch.cat([priors[key] for key in self.prior_keys]),
        }
        if not self.uniform:
            arrays |= self._projections(x_dict)
            program = self.program("attention", self._attention)
            return Binding(program, arrays, partial(self._finish_torch, x_dict))
        arrays["x"] = torch.cat([x_dict[name] for name in self.node_types if name in x_dict])
        f, count = self.out_channels, len(self.node_types)
        weights, biases = self._stacked(parts["kqv_lin"])
        out_weights, out_biases = self._stacked(parts["out_lin"])
        arrays["W_k"], arrays["W_q"], arrays["W_v"] = weights.view(count, 3, f, -1).transpose(0, 1).contiguous()
        biases = biases.view(count, 3, f).transpose(0, 1).contiguous()
        arrays["k_bias"], arrays["q_bias"], arrays["v_bias"] = biases
        arrays["A"], arrays["a_bias"] = out_weights.view(count, f, f), out_biases.view(count, f)
        if self.has_skip:
            skips = parts["skip"]._parameters
            arrays["skip"] = torch.cat([skips[key] for key in self.skip_keys])
        program = self.program("biased", self._biased)
        return Binding(program, arrays, partial(self._finish, self._ranges(x_dict)))

    def _stacked(self, hetero: Any) -> tuple[Tensor, Tensor]:
        """Weights [T * out, in] and biases [T * out] of a linear layer for each node type, in their order."""
        lins = hetero._modules["lins"]._modules
        parameters = [lins[name]._parameters for name in self.node_types]
        return torch.cat([p["weight"] for p in parameters]), torch.cat([p["bias"] for p in parameters])

    def _ranges(self, x_dict: dict[str, Tensor]) -> dict[str, Range]:
        """First and last + 1 node of each type that x_dict has."""
        ranges: dict[str, Range] = {}
        start = 0
        for name in self.node_types:
            if name in x_dict:
                ranges[name] = (start, start + x_dict[name].size(0))
                start = ranges[name][1]
        return ranges

    def _relation_weights(self, weight: Tensor) -> Tensor:
        """[R, H, D, D] from PyG's [H * R, D, D]."""
        d = self.out_channels // self.heads
        return weight.view(self.heads, -1, d, d).transpose(0, 1).contiguous()

    def _projections(self, x_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """k, q and v, [N, F] each, by one torch linear for each node type."""
        lins = self.module.kqv_lin.lins
        names = [name for name in self.node_types if name in x_dict]
        parts = [linear(x_dict[name], lins[name].weight, lins[name].bias).split(self.out_channels, 1) for name in names]
        return {key: torch.cat([part[i] for part in parts]) for i, key in enumerate("kqv")}

    def _finish(self, ranges: dict[str, Range], outputs: Outputs) -> dict[str, Tensor]:
        # One split, whose gradient is put together once; that of a slice would be as large as all rows.
        parts = dict(zip(ranges, outputs[0].split([stop - start for start, stop in ranges.values()]), strict=True))
        return {name: parts[name] for name in self.output_types if name in ranges}

    def _finish_torch(self, x_dict: dict[str, Tensor], outputs: Outputs) -> dict[str, Tensor]:
        layer = self.module
        parts = self._finish(self._ranges(x_dict), (outputs[0].view(-1, self.out_channels),))
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

    def _attention(self) -> Program:
        h, d = self.heads, self.out_channels // self.heads
        return Program.of(hgt_attention, k=spec("NS", h, d), q=spec("ND", h, d), v=spec("NS", h, d), **self._common())

    def _biased(self) -> Program:
        k, f = self.channels[self.node_types[0]], self.out_channels
        arrays: dict[str, object] = {name: spec("T", f, k) for name in ("W_k", "W_q", "W_v")}
        arrays |= {name: spec("T", f) for name in ("k_bias", "q_bias", "v_bias", "a_bias")}
        arrays |= {"x": spec("NS", k), "A": spec("T", f, f), "skip": spec("T") if self.has_skip else None}
        return Program.of(
            hgt_biased,
            heads=self.heads,
            dim=f // self.heads,
            width=f,
            **arrays,
            **self._common(),
        )
