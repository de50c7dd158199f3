"""Small graphs in every form that layers take, which tests edit in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dgl
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import EdgeIndex

from tests.compatibility.kinds import RELATIONS, R

SIZES = (1, 3, 5)
"""Numbers of nodes."""
MEMORY = ("of torch", "of NumPy", "of inference mode")
"""Where the edges of a graph come from."""
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class GraphCase:
    """What a graph is made of; graphs of equal cases are equal, but share nothing.

    Args:
        nodes: Their number.
        pairs: Source and destination of each edge, modulo the number of nodes.
        memory: One of `MEMORY`.
    """

    nodes: int
    pairs: Pairs
    memory: str = MEMORY[0]


def graph_cases() -> st.SearchStrategy[GraphCase]:
    """Cases with no edge or one, with duplicates, self loops and isolated nodes among them."""
    node = st.integers(0, max(SIZES) - 1)
    pairs = st.lists(st.tuples(node, node), max_size=8).map(tuple)
    return st.builds(GraphCase, st.sampled_from(SIZES), pairs, st.sampled_from(MEMORY))


class Graph:
    """Edges, and what is given for each of them, as tensors that stay the same ones."""

    def __init__(self, case: GraphCase) -> None:
        self.case, self.nodes, self.edges = case, case.nodes, len(case.pairs)
        pairs = torch.tensor(case.pairs, dtype=torch.int64).view(-1, 2).t() % case.nodes
        self.index = self._stored(pairs.contiguous())
        self.types = self._stored(torch.arange(self.edges) % R)
        self.weights = torch.linspace(0.5, 1.5, self.edges, dtype=torch.float64)
        self.positions = torch.linspace(-1, 1, 2 * self.edges, dtype=torch.float64).view(-1, 2)
        shifted = [self._stored(((pairs + i) % case.nodes)[:, i:].contiguous()) for i in range(len(RELATIONS))]
        self.relations = dict(zip(RELATIONS, shifted, strict=True))
        self._types_of: dict[int, Tensor] = {}

    def _stored(self, tensor: Tensor) -> Tensor:
        if self.case.memory == "of NumPy":
            return torch.from_numpy(tensor.numpy().copy())
        with torch.inference_mode(self.case.memory == "of inference mode"):
            return tensor.clone()

    @cached_property
    def edge_index(self) -> EdgeIndex:
        """PyG's own kind of edge index, which shares memory with `index`."""
        return EdgeIndex(self.index, sparse_size=(self.nodes, self.nodes))

    @cached_property
    def coo(self) -> Tensor:
        """The transposed adjacency; weights of duplicates are added up."""
        index = self.index.flip(0).clone()
        return torch.sparse_coo_tensor(index, self.weights, (self.nodes, self.nodes)).coalesce()

    @cached_property
    def csr(self) -> Tensor:
        """The same by rows."""
        return self.coo.to_sparse_csr()

    @cached_property
    def dgl(self) -> Any:
        """The same edges as a graph of DGL."""
        return dgl.graph((self.index[0].clone(), self.index[1].clone()), num_nodes=self.nodes)

    @property
    def dgl_types(self) -> Tensor:
        """A type for each edge that the graph of DGL has now."""
        count = self.dgl.num_edges()
        return self._types_of.setdefault(count, torch.arange(count) % R)

    @property
    def node_types(self) -> Tensor:
        return self._types_of.setdefault(-1, torch.arange(self.nodes) % 2)

    def of_edges(self, *width: int) -> Tensor:
        """Numbers for each edge that the graph of DGL has now."""
        count = self.dgl.num_edges()
        return torch.linspace(0.5, 1.5, count * (width or (1,))[0], dtype=torch.float64).view(count, *width)

    def tensors(self, form: str) -> list[Tensor]:
        """What calls of a form read of the graph, and tests may write into."""
        if form.startswith("csr"):
            return [self.csr.values(), self.csr.col_indices()]
        if form.startswith("coo"):
            return [self.coo._values(), self.coo._indices()]
        return [*self.relations.values()] if form == "by type" else [self.index, self.types]

    def write(self, tensor: Tensor, way: str) -> None:
        """Give the first column of a tensor another value that fits, in one of `WAYS`."""
        if tensor.numel() == 0:
            return
        limit = R if tensor is self.types else self.nodes
        new = tensor[..., 0] * 1.5 if tensor.is_floating_point() else (tensor[..., 0] + 1) % limit
        WAYS[way](tensor, new)


def _by_torch(tensor: Tensor, new: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()):
        tensor[..., 0] = new


def _by_numpy(tensor: Tensor, new: Tensor) -> None:
    tensor.numpy()[..., 0] = new.numpy()


def _by_data(tensor: Tensor, new: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()):
        tensor.data[..., 0] = new


def _in_inference_mode(tensor: Tensor, new: Tensor) -> None:
    with torch.inference_mode():
        tensor[..., 0] = new


WAYS: dict[str, Callable[[Tensor, Tensor], None]] = {
    "torch": _by_torch,
    "NumPy": _by_numpy,
    "data": _by_data,
    "inference mode": _in_inference_mode,
}
"""How the memory of edges is written to."""
