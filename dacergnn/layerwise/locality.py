"""Tests whether a stage's results for nodes depend on their in-edges and the sources of these alone.

Only then do results range by range equal the results on the whole graph. A list of layers would not do, since users
write their own. The trial compares results on a small graph of random features with and without nodes and edges that
must not matter, and with nodes in another order. It finds layers that read degrees of sources, look beyond one edge, or
normalize over all nodes, and functions of a row's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.layerwise.arrays import Array, take
from dacergnn.layerwise.calls import Given, call
from dacergnn.layerwise.ranges import Key
from dacergnn.layerwise.steps import Stage

_ROWS = 4


@dataclass(frozen=True)
class Trial:
    """Describes the features and edge arrays that trials are made from, and runs them.

    Args:
        x: Features of all nodes, by node type.
        edges: The number of edges of each relation.
        arrays: Edge arrays by name and relation.
        device: The device that the stage runs on.
    """

    x: Mapping[str, Array]
    edges: Mapping[Key, int]
    arrays: Mapping[str, Mapping[Key, Array]]
    device: torch.device

    def check(self, stage: Stage, kind: str) -> None:
        """Tests the results of one node type.

        Raises:
            UnsupportedCallError: They change with nodes and edges that must not matter, or with places.
        """
        rows = {name: self._features(name, 3 if name == kind else 2) for name in self.x}
        used = {name: len(x) // (3 if name == kind else 2) * (2 if name == kind else 1) for name, x in rows.items()}
        edges = {key: self._edges(key, kind, used) for key in self.edges}
        others = {key: self._other_edges(key, kind, rows) for key in self.edges}
        arrays = {
            name: {key: self._sample(a, edges[key].size(1) + others[key].size(1)) for key, a in by_key.items()}
            for name, by_key in self.arrays.items()
        }
        small = Given(
            {name: x[: used[name]] for name, x in rows.items()},
            edges,
            {n: {key: a[: edges[key].size(1)] for key, a in by_key.items()} for n, by_key in arrays.items()},
        )
        large = Given(rows, {key: torch.cat([edges[key], others[key]], 1) for key in edges}, arrays)
        destinations = slice(used[kind] // 2)
        expected, actual = call(stage, small, kind, destinations), call(stage, large, kind, slice(None))
        if expected is not None and not (actual is not None and _close(actual[destinations], expected)):
            raise UnsupportedCallError(
                f"{stage.name} cannot be computed range by range: results of nodes change with edges and nodes beyond "
                "their in-edges and the sources of these. Give the layers of a model one by one, in a list. For a "
                "layer that reads degrees of sources, as GCNConv does, compute edge weights on the whole graph "
                "(gcn_norm), set normalize=False, and give edge_weight."
            )
        turned = call(stage, _turned(small), kind, destinations)
        if expected is not None and not (turned is not None and _close(turned.flip(0), expected)):
            raise UnsupportedCallError(
                f"{stage.name} cannot be computed range by range: results of nodes change with the places of their "
                "rows, as those of h.cumsum(0) or h[0] do. Apply such functions to the results on all nodes."
            )

    def _features(self, kind: str, parts: int) -> Tensor:
        """Returns features of nodes in several parts: destinations, sources, others."""
        return self._sample(self.x[kind], parts * _ROWS if len(self.x[kind]) else 0)

    def _sample(self, array: Array, count: int) -> Tensor:
        """Returns random numbers; for integers, which may be types, numbers of the array itself."""
        sample = take(array, torch.arange(count) * 7919 % max(len(array), 1), self.device)
        if not sample.is_floating_point():
            return sample
        generator = torch.Generator().manual_seed(0)
        return torch.rand(sample.shape, generator=generator).to(sample)

    def _edges(self, key: Key, kind: str, used: Mapping[str, int]) -> Tensor:
        """Returns two in-edges for each destination, if these are of the type that is tested."""
        source, _, destination = key
        if destination != kind or not used[source] or not used[kind] or not self.edges[key]:
            return torch.empty(2, 0, dtype=torch.int64, device=self.device)
        numbers = torch.arange(2 * _ROWS, device=self.device)
        first = _ROWS if source == kind else 0
        return torch.stack([first + numbers % _ROWS, numbers // 2])

    def _other_edges(self, key: Key, kind: str, rows: Mapping[str, Tensor]) -> Tensor:
        """Returns edges from all sources to all nodes except the destinations that are tested."""
        source, _, destination = key
        first = _ROWS if destination == kind else 0
        sources, destinations = len(rows[source]), len(rows[destination]) - first
        if not sources or destinations <= 0 or not self.edges[key]:
            return torch.empty(2, 0, dtype=torch.int64, device=self.device)
        numbers = torch.arange(sources * destinations, device=self.device)
        return torch.stack([numbers % sources, first + numbers // sources])


def _turned(given: Given) -> Given:
    """Returns the same graph with the nodes of each part in the opposite order; edges stay sorted by destination.

    Those of one destination stay in their order, which layers may read.
    """

    def place(nodes: Tensor) -> Tensor:
        return nodes // _ROWS * _ROWS + _ROWS - 1 - nodes % _ROWS

    moved = {key: place(edges) for key, edges in given.edges.items()}
    order = {key: torch.sort(edges[1], stable=True).indices for key, edges in moved.items()}
    return Given(
        {name: x[place(torch.arange(len(x), device=x.device))] for name, x in given.x.items()},
        {key: edges[:, order[key]] for key, edges in moved.items()},
        {name: {key: a[order[key]] for key, a in by_key.items()} for name, by_key in given.arrays.items()},
    )


def _close(actual: Tensor, expected: Tensor) -> bool:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if not actual.is_floating_point():
        return torch.equal(actual, expected)
    tolerance = torch.finfo(actual.dtype).eps ** 0.5
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    return torch.allclose(actual, expected, tolerance, tolerance * scale, equal_nan=True)
