"""Lets torch differentiate programs: backwards, backwards of these, tangents, and batches of all of them.

A backward that nobody differentiates runs the build that belongs to its forward. Everything else uses the program of
the gradients (`sdfg_passes/gradient_program.py`), which can be differentiated like any other. Its own gradients are
those of second order. It is linear in the seeds, and its gradients with respect to them are the tangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers

from dacergnn.frontends.missing_gradients import leave_missing
from dacergnn.graph import HeteroGraph
from dacergnn.modules.batched_gradients import batch_level, for_each_item
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.saved_arrays import RUN_AGAIN, is_retained
from dacergnn.modules.variant import Mask, Variant
from dacergnn.modules.ways.contest import Runner
from dacergnn.modules.writes import Watched, Writes
from dacergnn.runtime.dynamo import skipped_by_dynamo
from dacergnn.runtime.pool import Lease
from dacergnn.runtime.transformed import is_transformed


class Choice(Protocol):
    """Chooses builds of a program for calls (`whole.Whole`)."""

    def take(self, mask: Mask, graph: HeteroGraph) -> tuple[Variant, Runner[Variant] | None]:
        """Returns the build for a call, and what `note` takes its seconds for."""
        ...

    def note(self, mask: Mask, runner: Runner[Variant] | None, seconds: float, graph: HeteroGraph) -> None:
        """Takes the seconds of a call whose build `take` has chosen."""
        ...


@dataclass
class Invocation:
    """Describes one run of a program, which a backward may follow; ``mask`` tells which inputs need gradients."""

    program: CompiledProgram
    choice: Choice
    graph: HeteroGraph
    mask: Mask
    chosen: Variant | None = None
    """The build that has run the forward; None if a transform of torch has run other forwards in its place."""
    runner: Runner[Variant] | None = None
    """Takes the seconds of the run, if builds of the program race."""
    seconds: float = 0.0
    """Holds the seconds of the forward until a backward has counted them."""
    lease: Lease | None = None
    """Holds the arrays that the forward has saved."""
    overwritten: bool = False
    """Tells whether a backward has overwritten these arrays."""
    writes: Writes | None = None
    """Learns from backwards which arguments are written to after the call."""
    watched: list[Watched] = field(default_factory=list[Watched])
    """Holds the arguments that were copied."""

    @property
    def key(self) -> tuple[CompiledProgram, Mask]:
        """Returns what runs have in common that are differentiated alike."""
        return self.program, self.mask

    @property
    def variant(self) -> Variant:
        """Returns the build of the forward."""
        return self.program.variant(self.mask) if self.chosen is None else self.chosen

    def backward(
        self, saved: Sequence[Any], again: bool, shapes: Sequence[torch.Size], gradients: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Returns the gradients of all inputs by the build of the forward; None for an input without one.

        Args:
            saved: The inputs, then the results, as far as the build reads them.
            again: Whether another backward may follow, so that the saved arrays must stay as they are.
            shapes: The shapes of the inputs and of their gradients: a single row may have no axis for it.
            gradients: The gradients of the results.
        """
        variant, count = self.variant, len(self.mask)
        results: list[Tensor | None] = [None] * count
        if variant.backward is None:
            return results
        if self.overwritten:
            raise RuntimeError(RUN_AGAIN)
        lease = self.lease
        if lease is not None and variant.backward.overwrites and not again:
            self.lease, self.overwritten = None, True
        pools = {"input": saved[:count], "output": saved[count:], "gradient": gradients}
        arrays = [pools[kind][i] for kind, i in variant.sources]
        prepared = variant.backward.prepare(self.graph, giver=variant.giver, again=again)
        start = perf_counter()
        values = variant.backward(prepared, arrays, lease, [shapes[slot] for slot in variant.slots])
        if self.seconds:  # of the forward; another backward of it counts no more
            self.choice.note(self.mask, self.runner, self.seconds + perf_counter() - start, self.graph)
            self.seconds = 0.0
        for slot, value in zip(variant.slots, values, strict=True):
            results[slot] = value
        return results

    def gradients(
        self, inputs: Sequence[Any], wanted: Mask, shapes: Sequence[torch.Size], seeds: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Returns the gradients of the inputs in ``wanted``, which can be differentiated again."""
        results: list[Tensor | None] = [None] * len(wanted)
        made = self.program.gradients(wanted)
        if made is not None:
            arrays = [*[inputs[i] for i in made.inputs], *[seeds[i] for i in made.seeds]]
            for slot, value in zip(made.wrt, made.program.run(self.graph, arrays), strict=True):
                results[slot] = value.view(shapes[slot])
        return results

    def tangents(self, inputs: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Returns the derivatives of the results along ``tangents`` of the inputs; None for a result without any."""
        results: list[Tensor | None] = [None] * len(self.program.outputs)
        made = self.program.gradients(tuple([t is not None for t in tangents]))
        if made is None:
            return results
        # Gradients are linear in the seeds: their gradients by the seeds read inputs and tangents, and no seed.
        count = len(made.inputs)
        again = made.program.gradients((False,) * count + (True,) * len(made.seeds))
        if again is None:
            return results
        arrays = [inputs[made.inputs[i]] for i in again.inputs]
        seeds = [tangents[made.wrt[i]] for i in again.seeds]
        derivatives = again.program.run(self.graph, [*arrays, *[t for t in seeds if t is not None]])
        for slot, value in zip(again.wrt, derivatives, strict=True):
            results[made.seeds[slot - count]] = value
        return results


def run(invocation: Invocation, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Returns the results of a program, which runs as a step of autograd."""
    if is_transformed():
        return _TransformedRun.apply(invocation, *inputs)  # pyright: ignore[reportUnknownMemberType, reportReturnType]
    invocation.writes = invocation.program.writes
    if invocation.writes is not None:
        inputs, invocation.watched = invocation.writes.protected(invocation.key, invocation.variant.kept, inputs)
    results: Any = _step_of(invocation.program.name).apply(invocation, *inputs)  # pyright: ignore[reportUnknownMemberType]
    leave_missing(results, lambda: invocation.program.leads_to)
    return results


@cache
def _step_of(name: str) -> type[_Run]:
    """Returns a step with the name of a program, which profilers show."""
    return type(name, (_Run,), {})


def _forward(invocation: Invocation, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    invocation.chosen, invocation.runner = invocation.choice.take(invocation.mask, invocation.graph)
    forward = invocation.variant.forward
    prepared = forward.prepare(invocation.graph)
    start = perf_counter()
    results, invocation.lease = forward.run(prepared, list(inputs))
    invocation.seconds = perf_counter() - start
    return tuple(results)


def _keep(ctx: Any, invocation: Invocation, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Saves the tensors that backwards read."""
    variant = invocation.chosen = invocation.variant  # backwards take the same build, also if another wins meanwhile
    ctx.invocation, ctx.shapes = invocation, [t.shape for t in inputs]
    ctx.save_for_backward(
        *[t if i in variant.kept else None for i, t in enumerate(inputs)],
        *[t if i in variant.read else None for i, t in enumerate(outputs)],
    )


class _Run(torch.autograd.Function):
    """Differentiates eager calls; the operator of `torch_operator.py` serves calls that torch compiles."""

    @staticmethod
    def forward(ctx: Any, invocation: Invocation, *inputs: Tensor) -> tuple[Tensor, ...]:
        results = _forward(invocation, inputs)
        _keep(ctx, invocation, inputs, results)
        return results

    @staticmethod
    @skipped_by_dynamo
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        invocation: Invocation = ctx.invocation
        try:
            saved = ctx.saved_tensors
        except RuntimeError:
            if invocation.writes is not None:
                invocation.writes.expect(invocation.key)
            raise
        if invocation.watched and invocation.writes is not None:
            invocation.writes.note(invocation.key, invocation.watched)
            invocation.watched = []
        return _differentiate(ctx, saved, gradients)


def _differentiate(ctx: Any, saved: Sequence[Any], gradients: Sequence[Tensor]) -> tuple[Any, ...]:
    """Returns the gradients of a step's inputs; ``saved`` was read once, since checkpoints allow no more."""
    invocation: Invocation = ctx.invocation
    batched = batch_level() > 0
    if torch.is_grad_enabled() or is_transformed():
        count = len(invocation.mask)
        needed = zip(invocation.mask, ctx.needs_input_grad[1:], strict=True)
        wanted = tuple([a and b for a, b in needed])
        run_backward = partial(invocation.gradients, saved[:count], wanted, ctx.shapes)
    else:
        run_backward = partial(invocation.backward, saved, batched or is_retained(), ctx.shapes)
    results = for_each_item(run_backward, gradients) if batched else run_backward(gradients)
    return None, *results


class _TransformedRun(torch.autograd.Function):
    """Differentiates calls under a transform, in the form that transforms require, which is slower in torch."""

    @staticmethod
    def forward(invocation: Invocation, *inputs: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _forward(invocation, inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        invocation, *tensors = inputs
        _keep(ctx, invocation, tensors, output)
        ctx.save_for_forward(*tensors)

    @staticmethod
    @skipped_by_dynamo
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _differentiate(ctx, unwrap_dead_wrappers(ctx.saved_tensors), unwrap_dead_wrappers(gradients))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return tuple(ctx.invocation.tangents(ctx.saved_tensors, tangents[1:]))

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: tuple[int | None, ...], invocation: Invocation, *inputs: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Runs the program once for each item of the batch, whose gradients transforms around this one may want."""
        dims = in_dims[1:]
        runs: list[tuple[Tensor, ...]] = []
        for item in range(info.batch_size):
            own = [t if d is None else t.select(d, item).contiguous() for t, d in zip(inputs, dims, strict=True)]
            runs.append(invocation.program.run(invocation.graph, own))
        results = tuple(map(torch.stack, zip(*runs, strict=True)))
        return results, (0,) * len(results)
