"""Makes layers of DGL with the parameters of PyG's layers."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from dgl.nn import pytorch as dgl_nn
from torch import Tensor, nn

from benchmarks.caching.networks import Layer, activation_of, layers_of
from benchmarks.caching.workload import Workload

library: Any = dgl_nn
_dgl: Any = dgl


class DGLNetwork(nn.Module):
    """Runs layers one after the other; it is called with features and `arguments`."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.layers = nn.ModuleList([make_layer(workload.task.model, place) for place in layers_of(workload)])
        self.activation = activation_of(workload)

    def forward(self, x: Tensor, graph: Any, *others: Tensor) -> Tensor:
        for position, layer in enumerate(self.layers):
            x = layer(graph, self.activation(x) if position else x, *others)
        return x


class _Heads(nn.Module):
    """Runs a layer whose result has an axis of heads, and flattens that axis, or averages it for the last layer."""

    def __init__(self, layer: nn.Module, last: bool) -> None:
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        out = self.layer(graph, x)
        return out.mean(1) if self.last else out.flatten(1)


def make_layer(model: str, place: Layer) -> nn.Module:
    """Returns the layer of a model, which accepts nodes without neighbours."""
    layer = _make(model, place)
    for module in layer.modules():
        allow: Any = getattr(module, "set_allow_zero_in_degree", lambda value: None)
        allow(True)
    return layer


def _make(model: str, place: Layer) -> nn.Module:
    inputs, outputs = place.inputs, place.outputs
    if model == "gcn":
        return library.GraphConv(inputs, outputs)
    if model == "gat":
        return _Heads(library.GATConv(inputs, outputs, place.heads), place.last)
    if model == "gatv2":
        return _Heads(library.GATv2Conv(inputs, outputs, place.heads), place.last)
    if model == "monet":
        kernels, dimensions = place.gaussians
        layer = library.GMMConv(inputs, outputs, dimensions, kernels, aggregator_type="mean", residual=True)
        layer.res_fc = nn.Linear(inputs, outputs, bias=False)  # DGL leaves it out where both sizes are equal
        return layer
    if model == "edgeconv":
        return library.EdgeConv(inputs, outputs)
    if model == "sage":
        return library.SAGEConv(inputs, outputs, "mean")
    return library.GINConv(nn.Linear(inputs, outputs))


def parameters_of(model: str, layer: Any) -> dict[str, Tensor]:
    """Returns the parameters, by name, that make a layer of DGL compute what a layer of PyG does."""
    if model == "gcn":
        return {"weight": layer.lin.weight.t(), "bias": layer.bias}
    if model == "gat":
        bias = layer.bias if layer.concat else layer.bias.repeat(layer.heads)
        queries = {"layer.attn_l": layer.att_src, "layer.attn_r": layer.att_dst}
        return {"layer.fc.weight": layer.lin.weight, **queries, "layer.bias": bias}
    if model == "gatv2":
        parameters = {"layer.attn": layer.att}
        for own, linear in (("layer.fc_src", layer.lin_l), ("layer.fc_dst", layer.lin_r)):
            parameters |= {f"{own}.weight": linear.weight, f"{own}.bias": linear.bias}
        return parameters  # DGL's layer has no bias of the result, and PyG's starts at zero
    if model == "monet":
        parameters = {"fc.weight": layer.g.t(), "res_fc.weight": layer.root.weight}
        return parameters | {"mu": layer.mu, "inv_sigma": 1 / layer.sigma, "bias": layer.bias}
    if model == "edgeconv":
        linear = layer.nn
        own, difference = linear.weight.chunk(2, dim=1)
        # DGL takes the difference the other way round.
        return {
            "theta.weight": -difference, "theta.bias": torch.zeros_like(linear.bias),
            "phi.weight": own, "phi.bias": linear.bias,
        }  # fmt: skip
    if model == "sage":
        own = {"fc_self.weight": layer.lin_r.weight, "fc_self.bias": layer.lin_l.bias}
        return own | {"fc_neigh.weight": layer.lin_l.weight}
    return {"apply_func.weight": layer.nn.weight, "apply_func.bias": layer.nn.bias}


def arguments(workload: Workload) -> tuple[Any, ...]:
    """Returns a layer's arguments besides features: a graph with its formats made, and with the loops that PyG adds."""
    src, dst = workload.edge_index
    if workload.task.model == "gcn":
        nodes = torch.arange(workload.num_nodes, device=src.device)
        src, dst = torch.cat([src, nodes]), torch.cat([dst, nodes])
    graph = _dgl.graph((src, dst), num_nodes=workload.num_nodes).formats(["coo", "csr", "csc"])
    graph.create_formats_()
    return (graph, workload.pseudo) if workload.task.model == "monet" else (graph,)
