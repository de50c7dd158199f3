"""Runs programs range by range of destinations, so that a step stays within the memory that a config allows.

The forward computes all ranges one after the other, and saves nothing but its inputs. The backward computes each range
again, with its gradients, and adds these up in the order of the ranges (sequential aggregation and rematerialization).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.missing_gradients import leave_missing
from dacergnn.graph import HeteroGraph
from dacergnn.graph.destination_ranges import DestinationRange, DestinationRanges, Divided
from dacergnn.modules.batched_gradients import batch_level, for_each_item
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.ways.cuts import Cuts
from dacergnn.runtime.dynamo import skipped_by_dynamo
from dacergnn.runtime.free_memory import return_freed_memory
from dacergnn.runtime.pool import LARGE, POOL, leased
from dacergnn.scratch import zeros_in_file
from dacergnn.sdfg_passes.destination_ranges import RangeArray, RangeProgram


@dataclass
class Division:
    """Describes how a program runs on a graph. It may change between a forward and its backward.

    Args:
        ranges: Its ranges; None for the whole at once.
        need: The most bytes of a step.
        kept: The bytes of encodings among these.
        room: The most bytes that a range takes while it runs.
        writes_gradients: Whether gradients lie in files, where results do.
    """

    ranges: Divided | None
    need: int
    kept: int = 0
    room: int = 0
    writes_gradients: bool = False

    def fits(self, limit: float, spare: float) -> bool:
        """Tells whether a step stays within a limit, with a share of the bytes of encodings left beside."""
        return self.need + spare * self.kept <= limit

    def become(self, other: Division) -> None:
        """Makes this division equal to another one."""
        for own in fields(other):
            setattr(self, own.name, getattr(other, own.name))


class Streams:
    """Runs one program range by range.

    Args:
        cuts: The parts of the program.
    """

    def __init__(self, cuts: Cuts) -> None:
        self.program, self.cuts, self.of_text = cuts.program, cuts, cuts.of_text
        self.scratch = cuts.program.step_config.scratch
        """Names a folder for temporary files, in which arrays lie that all ranges share; None for memory."""
        self._made: RangeProgram | None = None

    @property
    def parts(self) -> RangeProgram:
        """Returns the parts of the program.

        Raises:
            ProgramError: It cannot be cut into ranges.
        """
        if self._made is None:
            self._made = self.cuts.ranges()
        return self._made

    def run(self, graph: HeteroGraph, inputs: Sequence[Tensor], division: Division) -> tuple[Tensor, ...]:
        """Returns the results of the program; differentiable.

        Args:
            inputs: The inputs of the program, in its order.
            division: Has ranges.
        """
        parts = self.parts
        arrays = dict(zip(self.program.inputs, inputs, strict=True))
        if parts.nodes is not None:
            program = self.of_text(parts.nodes, graph.index_dtype)
            made = program.run(graph, [arrays[name] for name in program.inputs])
            arrays |= dict(zip(parts.nodes_outputs, made, strict=True))
        names = [*dict.fromkeys(array.source for array in parts.inputs.values())]
        spaces = {array.source: array.space for array in parts.inputs.values()}
        tensors = [_by_rows(arrays[name], graph.size(spaces[name])) for name in names]
        call = _Call(self, graph, names, division)
        results: Any = _Streamed.apply(call, *tensors)  # pyright: ignore[reportUnknownMemberType]
        leave_missing(results, call.leads_to)
        left = iter(results)
        return tuple(arrays[r.source] if r.kind == "types" else next(left) for r in parts.results)

    def of_range(self, part: DestinationRange) -> CompiledProgram:
        """Returns the program of a range."""
        return self.of_text(self.parts.text, part.graph.index_dtype)


@dataclass(frozen=True)
class _Call:
    """Holds one run of a program in ranges.

    Args:
        names: The arrays that it takes, in order.
    """

    streams: Streams
    graph: HeteroGraph
    names: Sequence[str]
    division: Division

    @property
    def ranges(self) -> Divided:
        """Returns the present ranges; a single one if later calls run at once."""
        return self.division.ranges or DestinationRanges.of(self.graph).divided(1)

    @property
    def results(self) -> list[RangeArray]:
        """Returns the results that ranges compute."""
        return [result for result in self.streams.parts.results if result.kind != "types"]

    def inputs(self, part: DestinationRange, tensors: Sequence[Tensor]) -> Iterator[tuple[int, RangeArray, Tensor]]:
        """Yields the inputs of the program of a range: the position among the arrays, the array, and its rows."""
        own = self.streams.parts.inputs
        for name in self.streams.of_range(part).inputs:
            position = self.names.index(own[name].source)
            yield position, own[name], _rows(tensors[position], own[name], part)

    def leads_to(self) -> list[set[int]]:
        """Returns the positions of the results that depend on each array."""
        program = self.streams.of_text(self.streams.parts.text, self.graph.index_dtype)
        found = {name: set[int]() for name in self.names}
        for name, positions in zip(program.inputs, program.leads_to, strict=True):
            found[self.streams.parts.inputs[name].source].update(positions)
        return [*found.values()]

    def forward(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Returns the results; nothing is saved."""
        with torch.no_grad(), POOL.arena(self.division.room):
            made = self._new_results(self.streams.program.dtype)
            for part in self.ranges:
                self._compute(part, tensors, made)
        return_freed_memory()  # ranges have sizes of their own, which leave gaps
        return made

    def _compute(self, part: DestinationRange, tensors: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """Writes the results of a range. Its own arrays end with the call, before those of the next range are made."""
        program = self.streams.of_range(part)
        results = program.run(part.graph, [rows for _, _, rows in self.inputs(part, tensors)])
        for whole, rows, array in zip(made, results, self.results, strict=True):
            if array.kind == "rows":
                whole[part.start : part.stop] = rows
            else:
                part.add_edge_rows(whole, rows)

    def differentiable(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Returns the results by functions that torch differentiates, which save what all ranges save together."""
        found: list[tuple[Tensor, ...]] = []
        ranges = self.ranges
        for part in ranges:
            program = self.streams.of_range(part)
            found.append(program.run(part.graph, [rows for _, _, rows in self.inputs(part, tensors)]))
        runs = [run for part in ranges for run in part.runs]
        positions = torch.cat([torch.arange(*run, device=self.graph.device) for run in runs] or [torch.arange(0)])
        results: list[Tensor] = []
        for array, own in zip(self.results, zip(*found, strict=True), strict=True):
            joined = torch.cat(own)
            results.append(joined if array.kind == "rows" else joined.index_select(0, positions.argsort()))
        return tuple(results)

    def backward(
        self, tensors: Sequence[Tensor], wanted: Sequence[bool], seeds: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Returns the gradients of the arrays in ``wanted``, added up range by range."""
        with torch.no_grad(), POOL.arena(self.division.room):
            gradients: list[Tensor | None] = [
                self._zeros(tensor.shape, tensor.dtype, in_file=self.division.writes_gradients) if needed else None
                for tensor, needed in zip(tensors, wanted, strict=True)
            ]
            for part in self.ranges:
                self._differentiate(part, tensors, seeds, gradients)
        return_freed_memory()
        return gradients

    def _differentiate(
        self,
        part: DestinationRange,
        tensors: Sequence[Tensor],
        seeds: Sequence[Tensor],
        totals: Sequence[Tensor | None],
    ) -> None:
        """Adds the gradients of a range to those arrays that are no None. Its own arrays end with the call."""
        taken = [*self.inputs(part, tensors)]
        made = self.streams.of_range(part).gradients(tuple(totals[position] is not None for position, _, _ in taken))
        if made is None:
            return
        rows = [taken[slot][2] for slot in made.inputs]
        rows += [_rows(seeds[slot], self.results[slot], part) for slot in made.seeds]
        for slot, gradient in zip(made.wrt, made.program.run(part.graph, rows), strict=True):
            position, array, own = taken[slot]
            total = totals[position]
            assert total is not None, "the gradients of this array are wanted"
            _add(total, gradient.view(own.shape), array, part)

    def _new_results(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Returns results without values; those of edges are zeros, since ranges add theirs."""
        made: list[Tensor] = []
        buffers = self.streams.of_range(self.ranges[0]).inference_code().outputs
        for array, buffer in zip(self.results, buffers, strict=True):
            shape = self.graph.size("E" if array.kind == "edges" else "ND"), *buffer.shape
            in_file = self.streams.scratch is not None
            zeros = array.kind == "edges" or in_file
            made.append(self._zeros(shape, dtype, in_file=in_file) if zeros else _empty(shape, dtype, beside=True))
        return tuple(made)

    def _zeros(self, shape: Sequence[int], dtype: torch.dtype, *, in_file: bool) -> Tensor:
        """Returns zeros for an array that all ranges share."""
        if in_file and self.streams.scratch is not None and prod(shape) * dtype.itemsize >= LARGE:
            return zeros_in_file(self.streams.scratch, shape, dtype)
        return _empty(shape, dtype, beside=True).zero_()


def _empty(shape: Sequence[int], dtype: torch.dtype, *, beside: bool = False) -> Tensor:
    """Returns a tensor with any content, of the pool if it is large.

    Args:
        beside: Whether it outlasts the ranges.
    """
    large = prod(shape) * dtype.itemsize >= LARGE
    return leased(tuple(shape), dtype, beside=beside) if large else torch.empty(*shape, dtype=dtype)


def _by_rows(tensor: Tensor, count: int) -> Tensor:
    """Returns a tensor whose first axis has ``count`` rows; inputs of programs may have other axes."""
    return tensor if tensor.size(0) == count else tensor.reshape(count, -1)


def _rows(tensor: Tensor, array: RangeArray, part: DestinationRange) -> Tensor:
    """Returns the rows of an array that a range has."""

    def empty(count: int) -> Tensor:
        return _empty((count, *tensor.shape[1:]), tensor.dtype)

    own = None if torch.is_grad_enabled() else empty  # torch differentiates no copies into given tensors
    if array.kind == "rows":
        return tensor[part.start : part.stop]
    if array.kind == "edges":
        return part.edge_rows(tensor, own)
    return part.source_rows(tensor, own) if array.kind == "sources" else tensor


def _add(total: Tensor, gradient: Tensor, array: RangeArray, part: DestinationRange) -> None:
    """Adds a gradient of a range to that of the whole array in place."""
    if array.kind == "types":
        total.add_(gradient)
    elif array.kind == "rows":
        total[part.start : part.stop] += gradient
    elif array.kind == "edges":
        part.add_edge_rows(total, gradient)
    else:
        part.add_source_rows(total, gradient)


class _Streamed(torch.autograd.Function):
    """Differentiates a run in ranges."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.call = call
        ctx.save_for_backward(*tensors)
        return call.forward(tensors)

    @staticmethod
    @skipped_by_dynamo
    def backward(ctx: Any, *seeds: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        call: _Call = ctx.call
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[1:]
        if not torch.is_grad_enabled():
            run_backward = partial(call.backward, tensors, wanted)
            return (None, *(for_each_item(run_backward, seeds) if batch_level() > 0 else run_backward(seeds)))
        # These gradients are differentiated again, so torch has to see how they are made. One tensor may be made of
        # another one, which torch counts later. So gradients are those of views, of which no tensor is made.
        views = [tensor.view_as(tensor) for tensor in tensors]
        results = call.differentiable(views)
        own = [view for view, needed in zip(views, wanted, strict=True) if needed]
        found = iter(torch.autograd.grad(results, own, seeds, create_graph=True, allow_unused=True))
        return (None, *[next(found) if needed else None for needed in wanted])
