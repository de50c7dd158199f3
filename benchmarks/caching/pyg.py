"""Makes layers of PyTorch Geometric, and edges in the forms that they take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric import nn as pyg
from torch_geometric.utils import softmax as pyg_softmax

from benchmarks.caching.networks import Layer, activation_of, layers_of
from benchmarks.caching.workload import Workload
from dacergnn.errors import DacergnnError

library: Any = pyg
edge_index_type: Any = EdgeIndex
softmax: Any = pyg_softmax
SLOPE = 0.2
"""Of GAT's LeakyReLU."""


def network(workload: Workload) -> nn.Module:
    """Returns a task's network, which is called with features and `arguments`."""
    inputs = "x, edges, pseudo" if workload.task.model == "monet" else "x, edges"
    steps: list[Any] = []
    for place in layers_of(workload):
        steps += [(activation_of(workload), "x -> x")] if steps else []
        steps.append((_layer(workload.task.model, place), f"{inputs} -> x"))
    return library.Sequential(inputs, steps)


def layers(made: nn.Module) -> list[nn.Module]:
    """Returns the layers of a network, without the activations between them."""
    return [*made.children()][::2]


def _layer(model: str, place: Layer) -> nn.Module:
    """Returns the layer of a model; edges already hold the loops for attention, and normalization is computed once."""
    inputs, outputs = place.inputs, place.outputs
    if model == "gcn":
        return library.GCNConv(inputs, outputs, cached=True)
    if model in ("gat", "gatv2"):
        kind = library.GATConv if model == "gat" else library.GATv2Conv
        return kind(inputs, outputs, heads=place.heads, concat=not place.last, add_self_loops=False)
    if model == "gat_by_edge":
        return GATByEdge(place)
    if model == "monet":
        kernels, dimensions = place.gaussians
        return library.GMMConv(inputs, outputs, dim=dimensions, kernel_size=kernels)
    if model == "edgeconv":
        return library.EdgeConv(nn.Linear(2 * inputs, outputs))
    if model == "sage":
        return library.SAGEConv(inputs, outputs)
    return library.GINConv(nn.Linear(inputs, outputs))


class GATByEdge(library.MessagePassing):
    """Computes GAT as its paper writes it, with scores from the features of both ends of an edge.

    PyG's layer computes two numbers of each node in advance.
    """

    def __init__(self, place: Layer) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.shape = (-1, place.heads, place.outputs)
        self.linear = nn.Linear(place.inputs, place.heads * place.outputs, bias=False)
        self.attention = nn.Parameter(torch.randn(1, place.heads, 2 * place.outputs) / place.outputs**0.5)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.propagate(edges, h=self.linear(x).view(self.shape)).flatten(1)

    def message(self, h_i: Tensor, h_j: Tensor, index: Tensor, size_i: int | None) -> Tensor:
        score = (torch.cat([h_i, h_j], dim=-1) * self.attention).sum(-1)
        weight: Tensor = softmax(nn.functional.leaky_relu(score, SLOPE), index, num_nodes=size_i)
        return weight.unsqueeze(-1) * h_j


def edges_in(form: str, workload: Workload) -> Any:
    """Returns edges as a layer takes them: "COO", the edge index; "CSR", torch's sparse tensor; PyG's "EdgeIndex"."""
    count = workload.num_nodes
    if form == "COO":
        return workload.edge_index
    if form == "EdgeIndex":
        # Sorted by destinations; the structures that products need are made before any timing.
        index = edge_index_type(workload.edge_index, sparse_size=(count, count), sort_order="col")
        return index.validate().fill_cache_()
    if form == "CSR":
        src, dst = workload.edge_index
        starts = src.new_zeros(count + 1)
        starts[1:] = torch.bincount(dst, minlength=count).cumsum(0)
        ones = workload.x.new_ones(len(src))
        return torch.sparse_csr_tensor(starts, src, ones, (count, count), check_invariants=False)
    raise DacergnnError(f"PyG has no form '{form}' of edges; there are COO, CSR, EdgeIndex")


def arguments(workload: Workload, form: str) -> tuple[Any, ...]:
    """Returns the arguments of a layer besides features."""
    edges: Any = edges_in(form, workload)
    pseudo: Tensor = workload.pseudo.to(workload.x.dtype)
    return (edges, pseudo) if workload.task.model == "monet" else (edges,)
