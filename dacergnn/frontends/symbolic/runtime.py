"""Defines what a trace needs of its surroundings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dacergnn.frontends.frontend import ProgramSource
from dacergnn.frontends.symbolic.edges import EdgeSet
from dacergnn.frontends.symbolic.names import Names
from dacergnn.frontends.symbolic.row_sets import RowSet
from dacergnn.frontends.symbolic.tape import Tape
from dacergnn.graph import HeteroGraph


class Runtime(Protocol):
    """Describes what a trace needs of its surroundings."""

    tape: Tape | None
    """Notes the steps of the call, so that it can be repeated; None if it is not to be repeated."""
    names: Names
    """Holds the names of programs and of their inputs."""

    def elements(self, device: torch.device) -> tuple[torch.dtype, ...]:
        """Returns the types of elements that programs take on a device."""
        ...

    def find_graph(self, edges: EdgeSet | RowSet) -> HeteroGraph:
        """Returns the encoded graph of some edges, or of rows without edges."""
        ...

    def run(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the outputs of a program for arrays in the order of its parameters."""
        ...
