"""The order of node types in the arrays of a call with features and edges by type."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dacergnn.errors import UnsupportedCallError


@dataclass(frozen=True)
class NodeTypeLayout:
    """Describes the order of rows and results that follows from the node types and edge types of a call."""

    names: list[str]  # of node types, in the order of the rows
    edge_types: tuple[object, ...]
    outputs: list[tuple[str, int]]  # names of results, and their positions in `names`

    def sizes(self, x_dict: dict[str, Tensor]) -> list[int]:
        """Returns the number of nodes of each type, in the order of the rows."""
        return [x_dict[name].shape[0] for name in self.names]


def make_layout(
    x_dict: dict[str, Any],
    edge_index_dict: dict[Any, Any],
    node_types: Sequence[str],
    edge_types: Container[Any],
    output_types: Sequence[str],
) -> NodeTypeLayout:
    """Returns the layout of a call to a layer with these types; raises UnsupportedCallError for other edges."""
    for key in edge_index_dict:
        if key not in edge_types:
            raise UnsupportedCallError(f"edge_index_dict holds edge type {key!r}, which the layer does not know.")
        if key[0] not in x_dict or key[-1] not in x_dict:
            raise UnsupportedCallError(f"x_dict lacks a node type of edge type {key!r}.")
    names = [name for name in node_types if name in x_dict]
    outputs = [(name, names.index(name)) for name in output_types if name in x_dict]
    return NodeTypeLayout(names, tuple(edge_index_dict), outputs)
