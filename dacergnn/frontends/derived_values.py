"""Values that follow from tensors of a call, kept with its graph, so that calls with the same tensors share them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.graph.lifetime import lasting
from dacergnn.runtime import cuda_graph
from dacergnn.runtime.edge_changes import Seen

T = TypeVar("T")


SOURCES = 4
"""Number of sources of a graph whose values are kept: layers with tensors of their own may share the graph."""


def kept(graph: HeteroGraph, key: Hashable, source: Tensor | None, make: Callable[[], T]) -> T:
    """Returns the value of ``make``, or a kept one if ``source`` is the same, unwritten tensor; without gradient.

    While a CUDA graph is recorded, values of floating-point tensors are computed, since replays have other numbers.
    """
    if source is not None and source.is_floating_point() and cuda_graph.capturing():
        with torch.no_grad():
            return make()
    if torch.compiler.is_exporting():
        return make()
    known: list[tuple[Seen, T]] = graph.derived.get(key, [])
    sources = [] if source is None else [source]
    for seen, value in known:
        if seen.same(sources):
            return value
    with lasting():
        made = (Seen(sources, graph.check), make())
    others = [entry for entry in known if source is not None and entry[0].is_alive]  # the values of others need room
    graph.derived[key] = [made, *others[: SOURCES - 1]]
    return made[1]
