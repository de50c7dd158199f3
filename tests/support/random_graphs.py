"""Small random graphs as plain arrays, with index maps that do not come from the package."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch

from dacergnn import HeteroGraph

Index = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class RawGraph:
    """A graph in the order in which a user might give it; edges get sorted by (type, destination, source)."""

    src: Index
    dst: Index
    edge_type: Index
    src_type: Index
    dst_type: Index
    num_edge_types: int
    num_node_types: int
    bipartite: bool = False

    def hetero(self) -> HeteroGraph:
        """The package's graph of these arrays."""
        return HeteroGraph.from_arrays(
            (self.src, self.dst),
            self.edge_type,
            num_nodes=(len(self.src_type), len(self.dst_type)),
            num_edge_types=self.num_edge_types,
            node_type=(self.src_type, self.dst_type) if self.bipartite else self.src_type,
            num_node_types=self.num_node_types,
            bipartite=self.bipartite,
        )

    def maps(self) -> tuple[dict[tuple[str, str], torch.Tensor], dict[str, int]]:
        """Row that each (row space, path) leads to, by brute force, and the sizes of the row spaces."""
        edges = sorted(zip(self.edge_type.tolist(), self.dst.tolist(), self.src.tolist(), strict=True))
        types, dst, src = ([e[k] for e in edges] for k in range(3))
        source_pairs = sorted({(t, s) for t, _, s in edges})
        target_pairs = sorted({(t, d) for t, d, _ in edges})
        src_type, dst_type = self.src_type.tolist(), self.dst_type.tolist()
        ns = len(src_type)
        sizes = {
            "NS": ns, "ND": len(dst_type), "E": len(edges), "U": len(source_pairs), "V": len(target_pairs),
            "R": self.num_edge_types, "T": self.num_node_types, "ONE": 1, "RNS": self.num_edge_types * ns,
        }  # fmt: skip
        maps: dict[tuple[str, str], list[int]] = {
            ("E", "src"): src,
            ("E", "dst"): dst,
            ("E", "etype"): types,
            ("E", "srcpair"): [source_pairs.index((t, s)) for t, s in zip(types, src, strict=True)],
            ("E", "dstpair"): [target_pairs.index((t, d)) for t, d in zip(types, dst, strict=True)],
            ("E", "srctype"): [src_type[s] for s in src],
            ("E", "dsttype"): [dst_type[d] for d in dst],
            ("E", "typedsrc"): [t * ns + s for t, s in zip(types, src, strict=True)],
            ("U", "src"): [s for _, s in source_pairs],
            ("U", "etype"): [t for t, _ in source_pairs],
            ("U", "srctype"): [src_type[s] for _, s in source_pairs],
            ("V", "dst"): [d for _, d in target_pairs],
            ("V", "etype"): [t for t, _ in target_pairs],
            ("V", "dsttype"): [dst_type[d] for _, d in target_pairs],
            ("NS", "ntype"): src_type,
            ("ND", "ntype"): dst_type,
        }
        for space, count in sizes.items():
            maps[space, "one"] = [0] * count
            maps[space, ""] = list(range(count))
        return {k: torch.tensor(v, dtype=torch.int64) for k, v in maps.items()}, sizes


def random_graph(rng: random.Random, *, bipartite: bool | None = None) -> RawGraph:
    """A graph of up to 8 nodes and 20 edges: often with empty relations, isolated nodes and duplicate edges,
    sometimes a block (fewer destinations than sources), with one type, without edges or without nodes."""
    if bipartite is None:
        bipartite = rng.random() < 0.1
    num_src = rng.choice([0, 1, 2, 3, 5, 8, 8, 8])
    num_dst = rng.randint(1, 8) if bipartite else rng.choice([num_src, rng.randint(0, num_src)])
    num_edge_types, num_node_types = rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 3])
    num_edges = 0 if num_src == 0 or num_dst == 0 or rng.random() < 0.05 else rng.randint(1, 20)
    used_types = rng.sample(range(num_edge_types), rng.randint(1, num_edge_types))
    edges = [(rng.randrange(num_src), rng.randrange(num_dst), rng.choice(used_types)) for _ in range(num_edges)]
    edges += [rng.choice(edges) for _ in range(rng.choice([0, 0, 3]))] if edges else []
    columns = [np.array([e[k] for e in edges], dtype=np.int64) for k in range(3)]
    src_type = np.array([rng.randrange(num_node_types) for _ in range(num_src)], dtype=np.int64)
    dst_type = src_type[:num_dst]
    if bipartite:
        dst_type = np.array([rng.randrange(num_node_types) for _ in range(num_dst)], dtype=np.int64)
    return RawGraph(columns[0], columns[1], columns[2], src_type, dst_type, num_edge_types, num_node_types, bipartite)
