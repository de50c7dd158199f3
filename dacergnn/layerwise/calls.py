"""Calls a stage on a small graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dacergnn.errors import UnsupportedLayerError
from dacergnn.layerwise.ranges import Key
from dacergnn.layerwise.steps import Stage, Step

ONLY: Key = ("", "", "")
"""The one relation of a graph without types."""


@dataclass(frozen=True)
class Given:
    """Describes the arguments of a stage.

    Args:
        x: Features by node type.
        edges: [2, E] by relation, as numbers of rows of ``x``.
        arrays: Edge arrays by name and relation.
    """

    x: dict[str, Tensor]
    edges: dict[Key, Tensor]
    arrays: dict[str, dict[Key, Tensor]]

    @property
    def typed(self) -> bool:
        """Returns whether layers take dictionaries by type."""
        return "" not in self.x


def call(stage: Stage, inputs: Given, kind: str, which: slice) -> Tensor | None:
    """Returns the results of some nodes of a type; None if the layer returns none for this type."""
    rows = inputs.x[kind] if stage.layer is None else _layer_results(stage.layer, inputs, kind)
    if rows is None:
        return None
    rows = rows[which]
    for step in stage.functions:
        rows = checked(
            step.function({kind: rows})[kind] if step.takes_dict else step.function(rows), len(rows), step.name
        )
    return rows


def _layer_results(layer: Step, inputs: Given, kind: str) -> Tensor | None:
    arrays: dict[str, Any] = {name: array for name, array in inputs.arrays.items() if layer.takes(name)}
    if not inputs.typed:
        arrays = {name: array[ONLY] for name, array in arrays.items()}
        return checked(layer.function(inputs.x[""], inputs.edges[ONLY], **arrays), len(inputs.x[""]), layer.name)
    results = layer.function(inputs.x, inputs.edges, **arrays)
    if not isinstance(results, Mapping):
        remedy = "give layers that return a dictionary by node type"
        raise UnsupportedLayerError("result", type(results).__name__, remedy, layer.name)
    rows = results.get(kind)
    return None if rows is None else checked(rows, len(inputs.x[kind]), layer.name)


def checked(rows: object, count: int, who: str) -> Tensor:
    """Returns the result of a step.

    Raises:
        UnsupportedLayerError: It is no tensor with a row for each of ``count`` nodes.
    """
    if not isinstance(rows, Tensor):
        raise UnsupportedLayerError("result", type(rows).__name__, "give steps that return one tensor", who)
    if rows.dim() == 0 or len(rows) != count:
        remedy = f"give steps that return a row for each node, here {count}"
        raise UnsupportedLayerError("shape of the result", list(rows.shape), remedy, who)
    return rows
