"""Parameters and features of the layers of several relations, and the arrays of one program that they make up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from dacergnn.frontends.features import is_sparse, joined
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.relation_arrays import Layout, constant
from dacergnn.frontends.pyg.relations import EdgeType
from dacergnn.frontends.reached import Results
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.stacks import Gate

_ATTENTION = ("att_src", "att_dst")


@dataclass(frozen=True)
class RelationParts:
    """The tensors of calls with the relations of a layout: parameters, then features by node type.

    Args:
        names: What errors call the tensors.
        places: Positions of the parameters, by relation and path.
        parameters: Where they are among the layers of the relations.
        results: Which results each tensor leads to.
        channels: Columns of the features of each node type that some layer reads.
        heads: How often a bias is repeated: the program adds it to each of the heads that are averaged afterwards.
    """

    layout: Layout
    names: Sequence[str]
    places: Mapping[tuple[EdgeType, str | None], int]
    parameters: Parameters
    results: Results
    channels: Mapping[str, int]
    heads: int

    @classmethod
    def of(cls, layout: Layout, convs: Any, channels: Mapping[str, int], heads: int) -> RelationParts:
        """Returns the parts of calls to the layers in ``convs``."""
        keys: list[tuple[EdgeType, str | None]] = []
        paths: list[tuple[str, ...]] = []
        for relation in layout.relations:
            known = (relation.weight, relation.weight_dst, relation.root, relation.bias, *_ATTENTION)
            for path in dict.fromkeys(path for path in known if path):
                if relation.parameter(convs, path) is not None:
                    keys.append((relation.key, path))
                    paths.append((relation.place, *path.split(".")))
        leads_to = [[layout.destinations.index(key[-1])] for key, _ in keys]
        leads_to += [layout.reached_from(name) for name in layout.node_types]
        places = {key: place for place, key in enumerate(keys)}
        results = Results(len(layout.destinations), leads_to)
        names = [f"convs[{key!r}].{path}" for key, path in keys] + [f"x_dict[{name!r}]" for name in layout.node_types]
        return cls(layout, names, places, Parameters(convs, paths), results, channels, heads)

    def tensors(self, convs: Any, x_dict: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns the tensors of a call."""
        return [*self.parameters.read(convs), *[x_dict[name] for name in self.layout.node_types]]

    def arrays(
        self, graph: HeteroGraph, norm: Tensor | None, mean: bool, tensors: Sequence[Tensor], gate: Gate | None = None
    ) -> dict[str, Tensor]:
        """Returns the arrays of the program.

        Args:
            norm: [E] what each message is multiplied with.
            mean: Whether results are the mean of the relations into a node type, not their sum.
            tensors: Those of a call.
            gate: Is shown what they are joined to.
        """
        relations = self.layout.relations
        x = self._features(tensors, gate)
        found = {
            "x": x,
            "W": self._stacked([r.weight for r in relations], tensors, self._widened, gate),
            "norm": norm,
            "root": self._totals(graph, [r.root for r in relations], tensors, self._widened, gate),
            "bias": self._totals(graph, [r.bias for r in relations], tensors, self._bias, gate),
            "share": self.layout.share(graph, x.dtype) if mean else None,
        }
        attends = [r.attention is not None for r in relations]
        if any(attends):
            if any(r.weight_dst != r.weight for r in relations):
                found["W_dst"] = self._stacked([r.weight_dst for r in relations], tensors, self._widened, gate)
            for name, path in zip("qk", _ATTENTION, strict=True):
                own = [path if r.attention else None for r in relations]
                found[name] = self._stacked(own, tensors, _one_row, gate)
            if norm is not None:
                found["attends"] = constant(graph, list(map(float, attends)), x.dtype)
        return {name: array for name, array in found.items() if array is not None}

    @property
    def _width(self) -> int:
        """Columns of features and weights, those of the widest node type."""
        return max(self.channels.values())

    def _features(self, tensors: Sequence[Tensor], gate: Gate | None) -> Tensor:
        """Returns the rows of all node types, which are zeros where no layer reads them."""
        parts: list[Tensor] = []
        for name, x in zip(self.layout.node_types, tensors[len(self.places) :], strict=True):
            if name in self.channels:
                parts.append(x if is_sparse(x) else self._widened(x))
            else:
                parts.append(torch.zeros(x.size(0), self._width, dtype=x.dtype, device=x.device))
        rows = joined(parts, self._width)
        if gate is not None and not is_sparse(rows):
            gate(rows, range(len(self.places), len(tensors)))
        return rows

    def _stacked(
        self,
        paths: Sequence[str | None],
        tensors: Sequence[Tensor],
        change: Callable[[Tensor], Tensor],
        gate: Gate | None,
    ) -> Tensor:
        """Returns a row for each relation, of zeros for one without such a parameter."""
        places = [self.places.get((r.key, path)) for r, path in zip(self.layout.relations, paths, strict=True)]
        first = next(place for place in places if place is not None)
        like = change(tensors[first])
        rows = torch.stack([torch.zeros_like(like) if place is None else change(tensors[place]) for place in places])
        if gate is not None:
            gate(rows, [first if place is None else place for place in places])  # zeros take no gradient anyway
        return rows

    def _totals(
        self,
        graph: HeteroGraph,
        paths: Sequence[str | None],
        tensors: Sequence[Tensor],
        change: Callable[[Tensor], Tensor],
        gate: Gate | None,
    ) -> Tensor | None:
        """Returns a row for each node type, the sum over the relations into it; None if there is nothing to add."""
        keys = [(r, (r.key, path)) for r, path in zip(self.layout.relations, paths, strict=True)]
        found = [(r, self.places[key]) for r, key in keys if key in self.places]
        if not found:
            return None
        rows = torch.stack([change(tensors[place]) for _, place in found])
        if gate is not None:
            gate(rows, [place for _, place in found])
        return self.layout.totals(graph, [r for r, _ in found], rows)

    def _widened(self, matrix: Tensor) -> Tensor:
        """Returns a matrix with columns of zeros up to the greatest width."""
        missing = self._width - matrix.size(1)
        return pad(matrix, (0, missing)) if missing else matrix

    def _bias(self, bias: Tensor) -> Tensor:
        return bias.repeat(self.heads) if self.heads > 1 else bias


def _one_row(attention: Tensor) -> Tensor:
    """Returns [H, D] for what PyG has as [1, H, D]."""
    return attention.squeeze(0)
