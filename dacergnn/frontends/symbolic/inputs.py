"""Finds the inputs of the program of recorded values: tensors in the order of the graph, and data of the graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dacergnn.frontends.symbolic.expr import Expr, check_unwritten
from dacergnn.graph import HeteroGraph


def input_array(leaf: Expr, space: str, graph: HeteroGraph) -> Tensor:
    """Returns the rows of a leaf in the order of the graph."""
    if leaf.op != "leaf":
        return data_of_graph(graph, leaf.op, *leaf.data)
    tensor = leaf.tensor
    assert tensor is not None
    check_unwritten(tensor, leaf.version)
    return graph.to_canonical(tensor) if space == "E" else tensor


def data_of_graph(graph: HeteroGraph, kind: str, *data: Any) -> Tensor:
    """Returns an input that follows from the graph: degrees, or 1 / number of edges of each (destination, type)."""
    return graph.degrees(*data) if kind == "degree" else graph.pair_mean_weights(*data)


def input_origin(leaf: Expr, space: str) -> tuple[Any, bool]:
    """Returns the tensor or graph data behind an input, and whether its rows are in the order of the user's edges."""
    return ((leaf.op, *leaf.data), False) if leaf.op != "leaf" else (leaf.tensor, space == "E")
