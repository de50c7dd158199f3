"""Finds the inputs of the program of recorded values: tensors in the order of the graph, and data of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.expr import Expr, check_unwritten
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lifetime import lasting


def input_array(leaf: Expr, space: str, graph: HeteroGraph) -> Tensor:
    """Returns the rows of a leaf in the order of the graph."""
    if leaf.op != "leaf":
        return data_of_graph(graph, leaf.op, *leaf.data)
    tensor = leaf.tensor
    assert tensor is not None
    check_unwritten(tensor, leaf.version)
    return graph.to_canonical(tensor) if space == "E" else tensor


def data_of_graph(graph: HeteroGraph, kind: str, *data: Any, before: Callable[[], None] | None = None) -> Tensor:
    """Returns an input that follows from the graph: degrees, or 1 / number of edges of each (destination, type).

    ``before`` is called first if a new graph has to be encoded for it.
    """
    return _degree(graph, *data, before=before) if kind == "degree" else graph.pair_mean_weights(*data)


def input_origin(leaf: Expr, space: str) -> tuple[Any, bool]:
    """Returns the tensor or graph data behind an input, and whether its rows are in the order of the user's edges."""
    return ((leaf.op, *leaf.data), False) if leaf.op != "leaf" else (leaf.tensor, space == "E")


def _degree(graph: HeteroGraph, side: str, dtype: torch.dtype, *, before: Callable[[], None] | None) -> Tensor:
    """Returns the number of edges at every node of one end [N], counted once for each graph."""
    key = ("degree", side, dtype)
    degrees = graph.derived.get(key)
    if degrees is None:
        if before is not None:
            before()
        with lasting():
            degrees = graph.derived[key] = graph.encoding(f"ptr_E_{side}").diff().to(dtype)
    return degrees
