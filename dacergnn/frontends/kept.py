"""What follows from the tensors of a call, kept with its graph, so that calls with the same tensors compute it once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.expr import version
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lasting import lasting
from dacergnn.runtime import cuda_graph

T = TypeVar("T")


def kept(graph: HeteroGraph, key: Hashable, source: Tensor | None, make: Callable[[], T]) -> T:
    """The value of ``make``, the one from before if ``source`` is the same tensor, unwritten; has no gradient.

    In a CUDA graph that is recorded, what follows from floating-point numbers is computed: replays have others.
    """
    if source is not None and source.is_floating_point() and cuda_graph.capturing():
        with torch.no_grad():
            return make()
    known = graph.derived.get(key)
    if known is None or known[0]() is not source or known[1] != version(source):
        with lasting():
            known = (_nothing if source is None else weakref.ref(source), version(source), make())
        graph.derived[key] = known
    return known[2]


def _nothing() -> None:
    """Stands for the reference to no tensor."""
