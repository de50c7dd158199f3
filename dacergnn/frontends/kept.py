"""What follows from the tensors of a call, kept with its graph, so that calls with the same tensors compute it once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.graph.lasting import lasting
from dacergnn.runtime import cuda_graph
from dacergnn.runtime.seen import Seen

T = TypeVar("T")


def kept(graph: HeteroGraph, key: Hashable, source: Tensor | None, make: Callable[[], T]) -> T:
    """The value of ``make``, the one from before if ``source`` is the same tensor, unwritten; has no gradient.

    In a CUDA graph that is recorded, what follows from floating-point numbers is computed: replays have others.
    """
    if source is not None and source.is_floating_point() and cuda_graph.capturing():
        with torch.no_grad():
            return make()
    known: tuple[Seen, T] | None = graph.derived.get(key)
    sources = [] if source is None else [source]
    if known is None or not known[0].same(sources):
        with lasting():
            known = (Seen(sources, graph.check), make())
        graph.derived[key] = known
    return known[1]
