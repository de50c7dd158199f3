"""Holds the data of a benchmark case: edges in canonical order, unique pairs, features and labels."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dacergnn.errors import DacergnnError
from dacergnn.native.cache import cache_folder
from dacergnn.native.cache_files import make_folder

IGNORED = -100
"""Label of a node whose type receives no edges: some layers return nothing for it."""


@dataclass(frozen=True)
class Problem:
    """Holds one graph with features and labels.

    Edges are sorted by (etype, dst); nodes by type. All index tensors are int64.
    """

    name: str
    src: Tensor
    dst: Tensor
    etype: Tensor
    ntype_sizes: tuple[int, ...]
    relations: tuple[tuple[int, int], ...]
    """(source type, destination type) of every edge type."""
    x: Tensor
    """Features [N, hidden]: float32, unless moved to another dtype."""
    labels: Tensor
    """Random classes below hidden, int64 [N]; IGNORED where the type of the node receives no edges."""

    @property
    def hidden(self) -> int:
        return self.x.shape[1]

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        return self.src.shape[0]

    @property
    def num_etypes(self) -> int:
        return len(self.relations)

    @property
    def num_ntypes(self) -> int:
        return len(self.ntype_sizes)

    @cached_property
    def ntype(self) -> Tensor:
        types = torch.repeat_interleave(torch.arange(self.num_ntypes), torch.tensor(self.ntype_sizes))
        return types.to(self.x.device)

    @cached_property
    def ntype_starts(self) -> tuple[int, ...]:
        return tuple(np.concatenate([[0], np.cumsum(self.ntype_sizes)])[:-1].tolist())

    @cached_property
    def etype_sizes(self) -> list[int]:
        """Returns the number of edges of every type."""
        return torch.bincount(self.etype, minlength=self.num_etypes).tolist()

    @cached_property
    def src_pairs(self) -> Pairs:
        """Returns the unique (source, edge type) pairs, sorted by (etype, src): the U rows."""
        return _unique_pairs(self.src, self.etype, self.num_nodes, self.num_etypes)

    @cached_property
    def dst_pairs(self) -> Pairs:
        """Returns the unique (destination, edge type) pairs, sorted by (etype, dst): the V rows."""
        return _unique_pairs(self.dst, self.etype, self.num_nodes, self.num_etypes)

    @cached_property
    def mean_weight(self) -> Tensor:
        """Returns 1 / (edges of the same destination and type), [E] in x's dtype, for the mean of each relation."""
        return (1.0 / torch.bincount(self.dst_pairs.of_edge).double()).to(self.x.dtype)[self.dst_pairs.of_edge]

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Problem:
        """Returns the problem with its tensors on a device, and its features in a dtype (None: as they are)."""
        moved = {name: getattr(self, name).to(device) for name in ("src", "dst", "etype", "labels")}
        return replace(self, x=self.x.to(device, dtype), **moved)

    def edges_of(self, etype: int) -> Tensor:
        """Returns the edges of one type, int64 [2, E_t], with ids that count from the start of the node types."""
        first = sum(self.etype_sizes[:etype])
        rows = slice(first, first + self.etype_sizes[etype])
        s, d = self.relations[etype]
        return torch.stack([self.src[rows] - self.ntype_starts[s], self.dst[rows] - self.ntype_starts[d]])

    def sizes(self) -> dict[str, int]:
        """Returns row counts by the name of the row space."""
        return {
            "N": self.num_nodes,
            "E": self.num_edges,
            "U": len(self.src_pairs.node),
            "V": len(self.dst_pairs.node),
            "R": self.num_etypes,
            "T": self.num_ntypes,
        }


@dataclass(frozen=True)
class Pairs:
    """Holds unique (node, edge type) pairs: int64 node and type of each, pairs per type, the pair of each edge."""

    node: Tensor
    etype: Tensor
    type_sizes: list[int]
    of_edge: Tensor


def _unique_pairs(node: Tensor, etype: Tensor, num_nodes: int, num_etypes: int) -> Pairs:
    keys, of_edge = torch.unique(etype * num_nodes + node, return_inverse=True)
    types = keys // max(num_nodes, 1)
    return Pairs(keys - types * num_nodes, types, torch.bincount(types, minlength=num_etypes).tolist(), of_edge)


def make_problem(
    name: str,
    src: Tensor,
    dst: Tensor,
    etype: Tensor,
    ntype_sizes: list[int],
    num_etypes: int,
    hidden: int = 64,
    seed: int = 0,
) -> Problem:
    """Builds a problem from int64 [E] arrays in any order.

    Raises DacergnnError where the edges of one type join different node types: the typed layers of the
    libraries cannot express that.
    """
    order = torch.from_numpy(np.lexsort((dst.numpy(), etype.numpy())))
    src, dst, etype = src[order], dst[order], etype[order]
    ntype = torch.repeat_interleave(torch.arange(len(ntype_sizes)), torch.tensor(ntype_sizes))
    ends = torch.stack([ntype[src], ntype[dst]])
    relations = torch.zeros(2, num_etypes, dtype=torch.int64)
    relations[:, etype] = ends
    if not torch.equal(relations[:, etype], ends):
        raise DacergnnError(
            f"graph '{name}': every edge type must join one source type to one destination type "
            "to be benchmarked; split the edge types by the node types of their ends first"
        )
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(ntype), hidden, generator=generator)
    labels = torch.randint(hidden, (len(ntype),), generator=generator)
    reached = torch.zeros(len(ntype_sizes), dtype=torch.bool)
    reached[relations[1, etype]] = True
    labels[~reached[ntype]] = IGNORED
    pairs = tuple((int(s), int(d)) for s, d in relations.t().tolist())
    return Problem(name, src, dst, etype, tuple(ntype_sizes), pairs, x, labels)


def tiny_problem(hidden: int) -> Problem:
    """Returns a problem of two node types, three relations and ten edges; it loads all code without a real graph."""
    src = torch.tensor([0, 1, 2, 3, 0, 4, 5, 4, 5, 5])
    dst = torch.tensor([4, 5, 4, 5, 5, 0, 1, 2, 3, 3])
    etype = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    return make_problem("tiny", src, dst, etype, [4, 2], 3, hidden)


def load_problem(name: str, hidden: int = 64, seed: int = 0) -> Problem:
    """Loads a data set by name ("aifb", or "am~0.1" for a synthetic graph at a tenth of its size)."""
    from dacergnn import datasets

    graph = datasets.resolve(name).graph
    ntype: Tensor = graph.encoding("idx_NS_ntype").long()
    if bool((ntype[1:] < ntype[:-1]).any()):
        raise DacergnnError(f"graph '{name}': nodes must be sorted by type to be benchmarked")
    sizes: list[int] = torch.bincount(ntype, minlength=graph.size("T")).tolist()
    src, dst, etype = (graph.encoding(f"idx_E_{path}").long() for path in ("src", "dst", "etype"))
    return make_problem(name, src, dst, etype, sizes, graph.size("R"), hidden, seed)


def kept_problem(data: str, hidden: int, seed: int) -> Problem:
    """Returns what `load_problem` does; large ones take a minute to make, so they are kept with the builds.

    One process makes it, and others wait.
    """
    path = cache_folder() / "problems" / f"{data}-{hidden}-{seed}.tensors"
    make_folder(path.parent)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            torch.save(vars(load_problem(data, hidden, seed)), part)
            part.replace(path)
    return Problem(**torch.load(path, weights_only=True))  # tensors, numbers and names: nothing in it is run
