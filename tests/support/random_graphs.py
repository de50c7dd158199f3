"""Small random graphs as plain arrays, with index maps that do not come from the package."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import torch

from dacergnn import HeteroGraph

Index = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class RawGraph:
    """A graph in the order in which a user might give it; edges get sorted by (type, destination)."""

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
        edges = sorted(
            zip(self.edge_type.tolist(), self.dst.tolist(), self.src.tolist(), strict=True), key=lambda e: e[:2]
        )
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
        joined = [
            {(src_type[s], dst_type[d]) for t, d, s in edges if t == number} for number in range(self.num_edge_types)
        ]
        if all(len(pairs) <= 1 for pairs in joined):
            for end, path in enumerate(("srctype", "dsttype")):
                maps["R", path] = [next(iter(pairs))[end] if pairs else 0 for pairs in joined]
        for space, count in sizes.items():
            maps[space, "one"] = [0] * count
            maps[space, ""] = list(range(count))
        return {k: torch.tensor(v, dtype=torch.int64) for k, v in maps.items()}, sizes


def single_typed(graph: RawGraph) -> RawGraph:
    """The graph with those edges only that join nodes of the types that the first edge of their relation joins."""
    ends = list(zip(graph.src_type[graph.src].tolist(), graph.dst_type[graph.dst].tolist(), strict=True))
    joined: dict[int, tuple[int, int]] = {}
    for edge_type, types in zip(graph.edge_type.tolist(), ends, strict=True):
        joined.setdefault(edge_type, types)
    kept = np.array([joined[t] == types for t, types in zip(graph.edge_type.tolist(), ends, strict=True)], dtype=bool)
    return replace(graph, src=graph.src[kept], dst=graph.dst[kept], edge_type=graph.edge_type[kept])


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


def joined_graph(
    rng: random.Random, num_nodes: int, num_edges: int, num_edge_types: int, num_node_types: int
) -> RawGraph:
    """A graph in which every edge type joins one source type with one destination type; one edge type has no edges."""
    node_type = np.array([rng.randrange(num_node_types) for _ in range(num_nodes)], dtype=np.int64)
    of_type = [np.flatnonzero(node_type == t).tolist() for t in range(num_node_types)]
    present = [t for t, nodes in enumerate(of_type) if nodes]
    ends = [(rng.choice(present), rng.choice(present)) for _ in range(num_edge_types)]
    types = [rng.randrange(1, num_edge_types) for _ in range(num_edges)]
    src = np.array([rng.choice(of_type[ends[t][0]]) for t in types], dtype=np.int64)
    dst = np.array([rng.choice(of_type[ends[t][1]]) for t in types], dtype=np.int64)
    edge_type = np.array(types, dtype=np.int64)
    return RawGraph(src, dst, edge_type, node_type, node_type, num_edge_types, num_node_types)
