"""Says in plain Python what an online store has to do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.deploy.online_store import Batch

WIDTHS = (2, 3, 0)
RELATIONS = ((0, 0), (0, 1), (1, 0), (0, 1), (2, 0), (1, 2))
Features = tuple[float, ...]


@dataclass
class Model:
    """Features of nodes by type and id, and edges by relation, in any order."""

    nodes: list[dict[int, Features]] = field(default_factory=lambda: [{} for _ in WIDTHS])
    edges: list[list[tuple[int, int]]] = field(default_factory=lambda: [[] for _ in RELATIONS])

    def copy(self) -> Model:
        return Model([dict(nodes) for nodes in self.nodes], [[*edges] for edges in self.edges])

    def remove_node(self, node_type: int, node: int) -> None:
        del self.nodes[node_type][node]
        for relation, ends in enumerate(RELATIONS):
            self.edges[relation] = [
                pair
                for pair in self.edges[relation]
                if not any(end == node_type and there == node for end, there in zip(ends, pair, strict=True))
            ]

    def sizes(self) -> tuple[list[int], list[int]]:
        return [len(nodes) for nodes in self.nodes], [len(edges) for edges in self.edges]

    def into(self, relation: int, node: int) -> Counter[int]:
        """The sources of the edges into a node."""
        return Counter(source for source, destination in self.edges[relation] if destination == node)

    def reach(
        self, node_type: int, seeds: Sequence[int], hops: int
    ) -> tuple[list[set[int]], list[Counter[tuple[int, int]]]]:
        """All nodes within some hops, and all edges into those within one hop less, in terms of the whole graph."""
        nodes: list[set[int]] = [set() for _ in WIDTHS]
        nodes[node_type].update(seeds)
        edges: list[Counter[tuple[int, int]]] = [Counter() for _ in RELATIONS]
        for _ in range(hops):
            before = [set(found) for found in nodes]
            for relation, (source, destination) in enumerate(RELATIONS):
                edges[relation] = Counter(e for e in self.edges[relation] if e[1] in before[destination])
                nodes[source] |= {e[0] for e in edges[relation]}
        return nodes, edges


def check_full(model: Model, node_type: int, seeds: Sequence[int], hops: int, batch: Batch) -> None:
    nodes, edges = model.reach(node_type, seeds, hops)
    assert [sorted(found) for found in nodes] == [sorted(ids.tolist()) for ids in batch.ids]
    for (source, destination), wanted, found in zip(RELATIONS, edges, batch.edges, strict=True):
        ends = batch.ids[source][found[0]].tolist(), batch.ids[destination][found[1]].tolist()
        assert wanted == Counter(zip(*ends, strict=True))


def check_sampled(
    model: Model, node_type: int, seeds: Sequence[int], fanouts: Sequence[Sequence[int]], batch: Batch
) -> None:
    """Goes through the edges of a batch in their order, and tells which nodes they have to reach."""
    ids: list[list[int]] = [[] for _ in WIDTHS]
    ids[node_type] = [*seeds]
    first = [0] * len(WIDTHS)
    used = [0] * len(RELATIONS)
    for row in fanouts:
        last = [len(found) for found in ids]
        for relation, (source, destination) in enumerate(RELATIONS):
            for place in range(first[destination], last[destination]):
                present = model.into(relation, ids[destination][place])
                count = present.total() if row[relation] < 0 else min(row[relation], present.total())
                edges = batch.edges[relation][:, used[relation] : used[relation] + count]
                used[relation] += count
                assert edges.shape[1] == count
                assert (edges[1] == place).all()
                chosen = batch.ids[source][edges[0]].tolist()
                assert Counter(chosen) <= present
                known = set(ids[source])
                ids[source] += [node for node in dict.fromkeys(chosen) if node not in known]
        first = last
    assert used == [edges.shape[1] for edges in batch.edges]
    assert ids == [found.tolist() for found in batch.ids]
    for width, nodes, found, features in zip(WIDTHS, model.nodes, ids, batch.features, strict=True):
        wanted = np.array([nodes[node] for node in found], dtype=np.float32).reshape(len(found), width)
        assert np.array_equal(features, wanted, equal_nan=True)
        assert all(np.isfinite(edges).all() for edges in batch.edges)


def random_features(rng: random.Random, node_type: int) -> Features:
    values = (float(rng.randrange(1000)), float("nan"), float("inf"))
    return tuple(rng.choices(values, (20, 1, 1), k=WIDTHS[node_type]))
