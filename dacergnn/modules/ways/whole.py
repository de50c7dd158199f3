"""Runs a program at once: its forward alone, or as a step of autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.early_builds import started, zeros_of
from dacergnn.modules.variant import Mask, Variant
from dacergnn.modules.ways.autograd import Invocation, run
from dacergnn.modules.ways.contest import Runner
from dacergnn.progress import working
from dacergnn.runtime.inputs import check_inputs
from dacergnn.runtime.stacks import Stacks
from dacergnn.runtime.transformed import is_transformed, needs_gradients


class Whole:
    """Runs every call of a program by one build."""

    def __init__(self, program: CompiledProgram) -> None:
        self.program = program

    @property
    def takes_parts(self) -> bool:
        """Tells whether kernels read parts in place, as those of the CPU do."""
        return self.program.executable_class.takes_parts and not self.program.sparse

    def run(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None = None) -> tuple[Tensor, ...]:
        program = self.program
        transformed = is_transformed()
        if stacks is None and (torch.is_grad_enabled() or transformed):
            mask = tuple([needs_gradients(t) if transformed else t.requires_grad for t in inputs])
            if True in mask or transformed:
                if not program.has(mask) and (zeros := self._first(mask, graph, inputs)) is not None:
                    return zeros
                return run(Invocation(program, self, graph, mask), inputs)
        mask = program.no_gradients
        if not program.has(mask) and (zeros := self._first(mask, graph, inputs, stacks)) is not None:
            return zeros
        return self.infer(graph, inputs, stacks)

    def infer(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None) -> tuple[Tensor, ...]:
        """Returns the results of a call that needs no gradients."""
        executable = self.program.inference()
        return tuple(executable.run(executable.prepare(graph, stacks), inputs)[0])

    def take(self, mask: Mask, graph: HeteroGraph) -> tuple[Variant, Runner[Variant] | None]:
        """Returns the build for a call, and what `note` takes its seconds for."""
        return self.program.variant(mask), None

    def note(self, mask: Mask, runner: Runner[Variant] | None, seconds: float, graph: HeteroGraph) -> None:
        """Takes the seconds of a call whose build `take` has chosen."""

    def _first(
        self, mask: Mask, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None = None
    ) -> tuple[Tensor, ...] | None:
        """Checks the inputs of a build's first call, then makes the build; within `ahead`, starts it and returns zeros.

        Raises:
            ArrayError: An input does not fit the graph and the program.
        """
        if is_transformed():
            return None
        program = self.program
        with working(program.work(mask)):
            code = program.code(mask)
            check_inputs(code.forward, program.dtype, graph, stacks, inputs)
            builds = started()
            if builds is None:
                program.variant(mask)
                return None
        builds.start(program, mask)
        shapes = [(graph.size(b.rows), *b.shape) for b in code.forward.outputs[: code.results]]
        return zeros_of(shapes, program.dtype, graph.device, differentiated=True in mask)
