"""Runs the programs of recorded calls: the graphs of their edges are found, and their programs compiled, once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dacergnn.config import CheckGraph
from dacergnn.errors import ProgramError, UnsupportedCallError
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.features import is_sparse
from dacergnn.frontends.symbolic.edges import Form
from dacergnn.graph import HeteroGraph
from dacergnn.modules.runner import Runner

_DENSE = {torch.strided}


class ProgramRunner(Runner):
    """Runs calls that are recorded: as programs on graphs, and functions of torch."""

    runs_one_program = False

    @property
    def check(self) -> CheckGraph:
        """Returns whether integers are compared."""
        return self.core.config.check_graph

    def graph_of(self, form: Form, kept: set[int]) -> HeteroGraph:
        """Returns the graph of some edges; ``kept`` holds the ids of tensors that others keep."""
        return form.find(self.core.graphs, all(id(t) in kept for t in form.tensors))

    def encode(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor | None]) -> None:
        """Builds all encodings for a run of a program at once; of its arrays, those that the graph gives are None.

        That takes half as long as one after the other. A program that has no build yet tells of no encodings.
        """
        given = [a for a in arrays if a is not None]
        compiled = self.compiled(program, given[0].dtype, graph) if given else None
        grad = torch.is_grad_enabled()
        mask = tuple([grad and a is not None and a.requires_grad for a in arrays])
        if compiled is not None and compiled.has(mask):
            graph.addresses(compiled.variant(mask).forward.encodings)

    def run_program(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the outputs of a program for arrays in the order of its parameters."""
        try:
            compiled = self.compiled(program, arrays[0].dtype, graph)
            if {a.layout for a in arrays} != _DENSE:
                sparse = frozenset([n for n, a in zip(compiled.inputs, arrays, strict=True) if is_sparse(a)])
                compiled = self.compiled(program, arrays[0].dtype, graph, sparse)
            self.core.remember(compiled, graph)
            return compiled(graph, list(arrays))
        except ProgramError as error:  # recorded values may be nested deeper, or have more axes, than those of programs
            raise UnsupportedCallError(str(error)) from error
