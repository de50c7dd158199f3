"""Graphs for parity tests: small random ones with what breaks layers, and the real ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Ends = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Edges:
    """Typed edges. With `type_sizes`, nodes stand type after type; ends[r] holds both types of relation r."""

    edge_index: Tensor
    edge_type: Tensor
    num_src: int
    num_dst: int
    num_relations: int
    type_sizes: tuple[int, ...] = ()
    ends: Ends = ()

    def sorted(self) -> Edges:
        """The same edges sorted by type."""
        order = torch.argsort(self.edge_type, stable=True)
        fields = vars(self) | {"edge_index": self.edge_index[:, order], "edge_type": self.edge_type[order]}
        return Edges(**fields)

    def node_type(self) -> Tensor:
        """[num_src] types, in blocks as `type_sizes` says, else mixed."""
        if not self.type_sizes:
            return torch.arange(self.num_src) % 3
        return torch.arange(len(self.type_sizes)).repeat_interleave(torch.tensor(self.type_sizes))


# Type 2 is no destination, type 3 one of a relation without edges only.
TYPE_SIZES = (6, 4, 3, 2)
ENDS: Ends = ((0, 1), (1, 3), (0, 0), (2, 1), (1, 0))


def typed_edges(edges: int = 40, seed: int = 0) -> Edges:
    """12 or so nodes of four types: no edge of relation 1 or 4, isolated nodes, a hub, repeated edges."""
    generator = torch.Generator().manual_seed(seed)
    types = torch.randint(0, len(ENDS) - 1, (edges,), generator=generator)
    types[types == 1] = 0
    sizes, ends = torch.tensor(TYPE_SIZES), torch.tensor(ENDS)
    starts = sizes.cumsum(0) - sizes
    src_type, dst_type = ends[types].T
    used = (sizes - 1).clamp(min=1)
    src = (starts[src_type] + torch.rand(edges, generator=generator) * used[src_type]).long()
    dst = (starts[dst_type] + torch.rand(edges, generator=generator) * used[dst_type]).long()
    dst[: edges // 3] = starts[dst_type[: edges // 3]]
    again = torch.randint(0, max(edges, 1), (edges // 4,), generator=generator)
    src, dst, types = (torch.cat([values, values[again]]) for values in (src, dst, types))
    count = int(sizes.sum())
    return Edges(torch.stack([src, dst]), types, count, count, len(ENDS), TYPE_SIZES, ENDS)


def block_edges(num_src: int = 13, num_dst: int = 7, relations: int = 4, edges: int = 30) -> Edges:
    """Fewer destinations than sources, the last of each isolated, relation 1 empty, some edges repeated."""
    generator = torch.Generator().manual_seed(1)
    src = torch.randint(0, num_src - 1, (edges,), generator=generator)
    dst = torch.randint(0, num_dst - 1, (edges,), generator=generator)
    types = torch.randint(0, relations, (edges,), generator=generator)
    types[types == 1] = 2
    edge_index = torch.stack([src, dst])
    return Edges(
        torch.cat([edge_index, edge_index[:, :6]], 1),
        torch.cat([types, types[:6]]),
        num_src,
        num_dst,
        relations,
    )


def real_edges(name: str) -> Edges | None:
    """A graph of the folder DACERGNN_DATA, or None where it is not there."""
    path = Path(os.environ.get("DACERGNN_DATA", "")) / f"{name}.npz"
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as data:
        sizes = tuple(int(n) for n in data["num_nodes_per_type"])
        names = [str(n) for n in data["node_type_names"]]
        parts = [str(n) for n in data["edge_type_names"]]
        ends = tuple((names.index(p.split(":")[0]), names.index(p.rsplit(":", 1)[1])) for p in parts)
        edge_index = torch.from_numpy(np.stack([data["src"], data["dst"]]).astype(np.int64))
        edge_type = torch.from_numpy(data["etype"].astype(np.int64))
    return Edges(edge_index, edge_type, sum(sizes), sum(sizes), len(ends), sizes, ends)


def dgl_graph(edges: Edges) -> Any:
    """A homogeneous DGL graph, or a block where there are fewer destinations than sources."""
    import dgl

    src, dst = edges.edge_index
    if edges.num_src == edges.num_dst:
        return dgl.graph((src, dst), num_nodes=edges.num_src)
    return dgl.create_block((src, dst), num_src_nodes=edges.num_src, num_dst_nodes=edges.num_dst)


def type_name(node_type: int) -> str:
    """Names whose order by the alphabet is not the order of the types."""
    return f"t{9 - node_type}"


def edge_dict(edges: Edges) -> dict[tuple[str, str, str], Tensor]:
    """PyG's dictionary of edge indices counted within node types, every relation included."""
    starts = np.cumsum((0, *edges.type_sizes))
    result: dict[tuple[str, str, str], Tensor] = {}
    for relation, (source, target) in enumerate(edges.ends):
        part = edges.edge_index[:, edges.edge_type == relation]
        offsets = torch.tensor([[int(starts[source])], [int(starts[target])]])
        result[type_name(source), f"r{relation}", type_name(target)] = part - offsets
    return result
