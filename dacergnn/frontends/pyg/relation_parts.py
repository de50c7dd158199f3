"""Parameters and features of the layers of several relations, and the arrays of one program that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from dacergnn.frontends.features import is_sparse, joined
from dacergnn.frontends.missing_gradients import Results
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.relation_arrays import RelationLayout, constant
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.stacks import Gate

_STACKED = ("W", "W_bias", "W_key", "W_key_bias", "W_dst", "W_dst_bias", "q", "k")
"""Arrays with a row for each relation."""


@dataclass(frozen=True)
class RelationParts:
    """Describes the tensors of calls with the relations of a layout: parameters, then features by node type.

    Args:
        names: Names of the tensors in error messages.
        rows: Positions of the parameters in each array of the program, by relation; None for a relation without one.
        parameters: Reads the parameters from the layers of the relations.
        results: The results that each tensor leads to.
        channels: Columns of the features of each node type that some layer reads.
        width: Columns of features and weights: those of the widest node type.
        height: Columns of the program's result, and rows of a relation's weights. Parameters with fewer are repeated:
            they are added to each of the heads, which are averaged later.
        unfitted: Positions of the parameters that have fewer rows or columns.
    """

    layout: RelationLayout
    names: Sequence[str]
    rows: Mapping[str, Sequence[int | None]]
    parameters: Parameters
    results: Results
    channels: Mapping[str, int]
    width: int
    height: int
    unfitted: frozenset[int]

    @classmethod
    def of(cls, layout: RelationLayout, convs: Any, channels: Mapping[str, int], height: int) -> RelationParts:
        """Returns the parts of calls to the layers in ``convs``."""
        relations = layout.relations
        keys = [(r, path) for r in relations for path in dict.fromkeys(r.paths.values())]
        places = {(r.key, path): place for place, (r, path) in enumerate(keys)}
        rows = {
            name: [places[r.key, r.paths[name]] if name in r.paths else None for r in relations]
            for name in (*_STACKED, "root", "bias")
            if any(name in r.paths for r in relations)
        }
        if all(r.paths.get("W_dst") in (r.paths["W"], None) for r in relations):  # both ends have one projection
            rows.pop("W_dst", None)
        leads_to = [[layout.destinations.index(r.key[-1])] for r, _ in keys]
        leads_to += [layout.reached_from(name) for name in layout.node_types]
        results = Results(len(layout.destinations), leads_to)
        names = [f"convs[{r.key!r}].{path}" for r, path in keys] + [f"x_dict[{name!r}]" for name in layout.node_types]
        parameters = Parameters(convs, [(r.place, *path.split(".")) for r, path in keys])
        width, pairs = max(channels.values()), enumerate(parameters.read(convs))
        unfitted = frozenset(place for place, parameter in pairs if _fitted(parameter, width, height) is not parameter)
        return cls(layout, names, rows, parameters, results, channels, width, height, unfitted)

    def tensors(self, convs: Any, x_dict: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns the tensors of a call."""
        return [*self.parameters.read(convs), *[x_dict[name] for name in self.layout.node_types]]

    def arrays(
        self, graph: HeteroGraph, norm: Tensor | None, mean: bool, tensors: Sequence[Tensor], gate: Gate | None = None
    ) -> dict[str, Tensor]:
        """Returns the arrays of the program.

        Args:
            norm: [E] factors of messages.
            mean: Whether results are the mean of the relations into a node type, not their sum.
            tensors: The tensors of a call.
            gate: Called with each joined tensor and the positions of its parts.
        """
        x = self._features(tensors, gate)
        arrays = {name: self._stacked(name, tensors, gate) for name in _STACKED if name in self.rows}
        arrays |= {name: self._totals(graph, name, tensors, gate) for name in ("root", "bias") if name in self.rows}
        arrays["x"] = x
        share = self.layout.share(graph, x.dtype) if mean else None
        if share is not None:
            arrays["share"] = share
        if norm is not None:
            arrays["norm"] = norm
            attends = [float(r.attention is not None) for r in self.layout.relations]
            if any(attends):
                arrays["attends"] = constant(graph, attends, x.dtype)
        return arrays

    def _features(self, tensors: Sequence[Tensor], gate: Gate | None) -> Tensor:
        """Returns the rows of all node types; rows that no layer reads are zeros."""
        parts: list[Tensor] = []
        count = len(tensors) - len(self.layout.node_types)
        for name, x in zip(self.layout.node_types, tensors[count:], strict=True):
            if name in self.channels:
                missing = self.width - x.size(1)
                parts.append(pad(x, (0, missing)) if missing and not is_sparse(x) else x)
            else:
                parts.append(torch.zeros(x.size(0), self.width, dtype=x.dtype, device=x.device))
        rows = joined(parts, self.width)
        if gate is not None and not is_sparse(rows):
            gate(rows, range(count, len(tensors)))
        return rows

    def _stacked(self, name: str, tensors: Sequence[Tensor], gate: Gate | None) -> Tensor:
        """Returns a row for each relation, with zeros for a relation without such a parameter."""
        places = self.rows[name]
        first = next(place for place in places if place is not None)
        zeros = torch.zeros_like(self._fitted(tensors, first))
        rows = torch.stack([zeros if place is None else self._fitted(tensors, place) for place in places])
        if gate is not None:
            gate(rows, [first if place is None else place for place in places])  # zeros take no gradient anyway
        return rows.flatten(1, 2) if rows.dim() == 4 else rows

    def _totals(self, graph: HeteroGraph, name: str, tensors: Sequence[Tensor], gate: Gate | None) -> Tensor:
        """Returns a row for each node type, the sum over the relations into it."""
        terms = [
            (r, place) for r, place in zip(self.layout.relations, self.rows[name], strict=True) if place is not None
        ]
        rows = torch.stack([self._fitted(tensors, place) for _, place in terms])
        if gate is not None:
            gate(rows, [place for _, place in terms])
        return self.layout.totals(graph, [r for r, _ in terms], rows)

    def _fitted(self, tensors: Sequence[Tensor], place: int) -> Tensor:
        return _fitted(tensors[place], self.width, self.height) if place in self.unfitted else tensors[place]


def _fitted(parameter: Tensor, width: int, height: int) -> Tensor:
    """Returns a parameter as wide as the features and, unless it has heads, as high as the results."""
    if parameter.dim() == 2 and parameter.size(1) < width:
        parameter = pad(parameter, (0, width - parameter.size(1)))
    if parameter.dim() < 3 and parameter.size(0) < height:
        return torch.cat([parameter] * (height // parameter.size(0)))
    return parameter
