"""Tests whether what a part returns for nodes depends on their in-edges and the sources of these alone.

Only then do results range by range equal the results on the whole graph. A list of layers would not do, since users
write their own. The trial compares results on a small graph of random features with and without nodes and edges that
must not matter, and with nodes in another order. It finds layers that read degrees of sources, look beyond one edge, or
normalize over all nodes, and functions of a row's place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.errors import UnsupportedCallError
from dacergnn.layerwise.part_calls import PartCall

_ROWS = 4


class Trial:
    """Runs a part on small graphs.

    Args:
        call: Describes what the part takes.
        kind: The number of nodes of the type whose results are tested.
        sample: Returns as many rows as are asked for, in place of those of an argument.
        run: Returns the results of this type for arguments.
    """

    def __init__(
        self,
        call: PartCall,
        kind: Any,
        sample: Callable[[fx.Node, int], Tensor],
        run: Callable[[Mapping[fx.Node, Tensor]], Tensor],
    ) -> None:
        self._call, self._kind, self._sample, self._run = call, kind, sample, run

    def check(self) -> None:
        """Tests the results.

        Raises:
            UnsupportedCallError: They change with nodes and edges that must not matter, or with places.
        """
        call = self._call
        edges = {node: self._edges(node) for node in call.edges}
        others = {node: self._other_edges(node) for node in call.edges}
        rows = {node: self._sample(node, self._parts(kind) * _ROWS) for node, kind in call.rows.items()}
        arrays = {node: self._sample(node, edges[of].size(1) + others[of].size(1)) for node, of in call.arrays.items()}
        small = {
            **{node: x[: (self._parts(call.rows[node]) - 1) * _ROWS] for node, x in rows.items()},
            **{node: a[: edges[call.arrays[node]].size(1)] for node, a in arrays.items()},
            **edges,
        }
        large = {**rows, **arrays, **{node: torch.cat([edges[node], others[node]], 1) for node in edges}}
        expected = self._run(small)[:_ROWS]
        if not _close(self._run(large)[:_ROWS], expected):
            raise self._refused(
                "edges and nodes beyond their in-edges and the sources of these. Give the layers of a model one by "
                "one, in a list. For a layer that reads degrees of sources, as GCNConv does, compute edge weights on "
                "the whole graph (gcn_norm), set normalize=False, and give edge_weight."
            )
        if not _close(self._run(self._turned(small))[:_ROWS].flip(0), expected):
            raise self._refused(
                "the places of their rows, as those of h.cumsum(0) or h[0] do. Apply such functions to the results on "
                "all nodes."
            )

    def _refused(self, what: str) -> UnsupportedCallError:
        words = f"{self._call.part.name} cannot be computed range by range: results of nodes change with {what}"
        return UnsupportedCallError(words)

    def _parts(self, kind: Any) -> int:
        """Returns of how many parts the nodes of a type are: destinations if they are tested, sources, others."""
        return 3 if kind == self._kind else 2

    def _edges(self, node: fx.Node) -> Tensor:
        """Returns two in-edges for each destination, if these are of the type that is tested."""
        edges, numbers = self._call.edges[node], torch.arange(2 * _ROWS)
        first = _ROWS if edges.source == self._kind else 0
        found = torch.stack([first + numbers % _ROWS, numbers // 2])
        return self._like(node, found if edges.destination == self._kind else found[:, :0])

    def _other_edges(self, node: fx.Node) -> Tensor:
        """Returns edges from all sources to all nodes except the destinations that are tested."""
        edges = self._call.edges[node]
        first = _ROWS if edges.destination == self._kind else 0
        sources = self._parts(edges.source) * _ROWS
        numbers = torch.arange(sources * (self._parts(edges.destination) * _ROWS - first))
        return self._like(node, torch.stack([numbers % sources, first + numbers // sources]))

    def _like(self, node: fx.Node, edges: Tensor) -> Tensor:
        value = node.meta["example_value"]
        return edges.to(value.device, value.dtype)

    def _turned(self, given: Mapping[fx.Node, Tensor]) -> dict[fx.Node, Tensor]:
        """Returns the same graph with the nodes of each part in the opposite order; edges stay sorted by destination.

        Those of one destination stay in their order, which layers may read.
        """

        def place(nodes: Tensor) -> Tensor:
            return nodes // _ROWS * _ROWS + _ROWS - 1 - nodes % _ROWS

        call = self._call
        moved = {node: place(given[node]) for node in call.edges}
        order = {node: torch.sort(edges[1], stable=True).indices for node, edges in moved.items()}
        rows = {node: given[node] for node in call.rows}
        return {
            **{node: x[place(torch.arange(len(x), device=x.device))] for node, x in rows.items()},
            **{node: edges[:, order[node]] for node, edges in moved.items()},
            **{node: given[node][order[of]] for node, of in call.arrays.items()},
        }


def _close(actual: Tensor, expected: Tensor) -> bool:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if not actual.is_floating_point():
        return torch.equal(actual, expected)
    tolerance = torch.finfo(actual.dtype).eps ** 0.5
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    return torch.allclose(actual, expected, tolerance, tolerance * scale, equal_nan=True)
