"""Keeps the steps of a model within the memory that a config allows: divides programs into ranges of destinations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dacergnn.config import size_of
from dacergnn.errors import DacergnnError, MemoryLimitError, ProgramError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.counting import COUNTED
from dacergnn.graph.destination_ranges import DestinationRanges, Divided
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.variant import Mask
from dacergnn.modules.ways.cuts import Cuts
from dacergnn.modules.ways.ranges import Division, Streams
from dacergnn.runtime.free_memory import free_memory
from dacergnn.runtime.inputs import check_inputs
from dacergnn.runtime.needs import CountedSizes, encoding_bytes
from dacergnn.runtime.pool import POOL
from dacergnn.runtime.stacks import Stacks
from dacergnn.runtime.transformed import is_transformed
from dacergnn.target import find

_COUNTS = sorted({*range(2, 9), *(round(2 ** (n / 4)) for n in range(12, 49))})
"""Numbers of ranges that are tried: up to 4,096."""
_TRIALS = 10
_SPARE = 0.1
"""Share of the bytes of its encodings that a first call should leave, since other calls may later add some."""
_SLACK = 0.75
"""Share of the bytes that ranges should take from which on a number of ranges is tried."""


@dataclass(frozen=True)
class _Shared:
    """Describes what all ranges share.

    Args:
        size: The bytes of what is no range's own.
        programs: The program of a range, and that of its gradients if any are needed.
        taken: The encodings that programs take of ranges.
        taken_whole: The encodings that programs take of the whole graph.
        writes_gradients: Whether gradients lie in files.
    """

    size: int
    programs: tuple[CompiledProgram, ...]
    taken: frozenset[str]
    taken_whole: frozenset[str]
    writes_gradients: bool


class MemoryLimit:
    """Decides in how many ranges a program runs.

    All layers share the limit: what some hold, as the results and the saved arrays between forward and backward, is
    not left to the others.

    Args:
        memory: A size, or "auto" for what is free (`Config.memory`).
        streams: The program.
    """

    def __init__(self, memory: str | int, streams: Streams) -> None:
        self._limit = None if memory == "auto" else size_of(str(memory))
        self._streams = streams
        POOL.limited.add(self)

    def left(self, graph: HeteroGraph) -> float:
        """Returns the bytes that a call may take; a quarter of them are for pages of files, if arrays lie there."""
        if self._limit is None:  # needs count the encodings that are there already
            in_use = [part for ranges in DestinationRanges.of(graph).in_use(None) for part in ranges]
            kept = sum(vector.nbytes for part in in_use for vector in part.graph.encodings.built())
            left = free_memory() + POOL.free + kept + sum(graph.encoding_bytes().values())
        else:
            left = self._limit - POOL.used
        return left if self._streams.scratch is None else left * 3 / 4

    def divisions(self, graph: HeteroGraph) -> dict[Mask, Division]:
        """Returns how calls on a graph run, by the inputs that need gradients; kept with the graph."""
        return graph.derived.setdefault(self, {})

    def division(self, graph: HeteroGraph, mask: Mask) -> Division:
        """Returns how a step runs.

        The first call decides. A later one divides the graph anew only if it has less left.

        Args:
            mask: The inputs that need gradients.

        Raises:
            MemoryLimitError: A step takes more than what is left, however it is divided.
        """
        known, left = self.divisions(graph), self.left(graph)
        graph.encodings.forgotten_from = 1
        if mask not in known or known[mask].need > left:
            made = self._new(graph, mask, left) if mask not in known else self.divided(graph, mask, left)
            known.setdefault(mask, made).become(made)
            self._share(graph, made.ranges)
        return known[mask]

    def _new(self, graph: HeteroGraph, mask: Mask, left: float) -> Division:
        """Returns how the first call runs, which leaves memory for the encodings of other calls if it can."""
        try:
            return self.divided(graph, mask, left, spare=_SPARE)
        except MemoryLimitError:
            return self.divided(graph, mask, left)

    def divided(self, graph: HeteroGraph, mask: Mask, limit: float, *, spare: float = 0.0) -> Division:
        """Returns how a step takes no more than ``limit`` bytes beside its inputs.

        It runs in the ranges of other calls, so that the graph keeps no further encodings for it; else at once; else in
        the fewest ranges that are enough.

        Args:
            limit: A number of bytes.
            spare: The share of the bytes of encodings that should be left beside.

        Raises:
            MemoryLimitError: No number of ranges is enough.
        """
        program, all_ranges, whole = self._streams.program, DestinationRanges.of(graph), self._whole(graph, mask)
        fits, least, reason = whole.fits(limit, spare), whole.need, ""
        in_use = all_ranges.in_use(self._streams.scratch)
        if in_use or not fits:
            try:
                shared = self._shared(graph, mask, limit)
                found, least = self._fewest(graph, shared, limit, in_use, spare=spare, divide=not fits)
                if found is not None:
                    all_ranges.taken |= shared.taken
                    all_ranges.taken_whole |= shared.taken_whole
                    graph.encodings.forget_counted()
                    return found
            except ProgramError as error:
                reason = f"It cannot run in ranges: {error}"
        if not fits:
            raise MemoryLimitError(program.title, min(least, whole.need), limit, reason)
        all_ranges.taken_whole |= program.need(CountedSizes(graph), mask).encodings.keys()
        return whole

    def _share(self, graph: HeteroGraph, ranges: Divided | None) -> None:
        """Lets all calls in ranges run in the same ones, so that the graph keeps the edges and encodings of no others.

        The needs of calls grow by what other calls keep; a call whose need is too large then divides the graph anew.
        """
        known = [(limit, divisions) for limit, divisions in graph.derived.items() if isinstance(limit, MemoryLimit)]
        calls = [(limit, mask, division) for limit, own in known for mask, division in own.items()]
        for limit, mask, division in calls:
            same = limit._streams.scratch == self._streams.scratch
            if same and ranges is not None and division.ranges is not None:
                division.become(limit._in(graph, ranges, limit._shared(graph, mask, limit.left(graph))))
        for limit, mask, division in calls:
            if division.ranges is None:
                division.become(limit._whole(graph, mask))

    def _whole(self, graph: HeteroGraph, mask: Mask) -> Division:
        """Returns the division of a step that runs at once."""
        program, all_ranges, sizes = self._streams.program, DestinationRanges.of(graph), CountedSizes(graph)
        others = encoding_bytes(all_ranges.taken_whole, sizes, program.index.itemsize)
        in_use = [part for ranges in all_ranges.in_use(None) for part in ranges]
        kept = sum(self._kept(CountedSizes(part.graph), all_ranges.taken, copies=part.copies) for part in in_use)
        need = program.need(sizes, mask).with_encodings(others)
        return Division(None, need.peak + kept, kept + sum(need.encodings.values()))

    def _fewest(
        self,
        graph: HeteroGraph,
        shared: _Shared,
        limit: float,
        in_use: Sequence[Divided],
        *,
        spare: float,
        divide: bool,
    ) -> tuple[Division | None, int]:
        """Returns the fewest ranges that stay within a limit, None if none are found; and the least need that was seen.

        Ranges in use come first. Leaves out numbers that are far from enough by sizes that would be right if edges were
        spread evenly. Each trial tells how far these are wrong.

        Args:
            spare: The share of the bytes of encodings that should be left beside.
            divide: Whether to make new ranges, too.
        """
        all_ranges, fixed, error, trials = DestinationRanges.of(graph), shared.size, 1.0, 0
        for ranges in in_use:
            made = self._in(graph, ranges, shared)
            if made.fits(limit, spare):
                return made, made.need
        if fixed >= limit or not divide:
            return None, fixed
        expected = {n: self._expected(graph, n, shared) for n in _COUNTS if n <= graph.size("ND")}
        least = fixed + round(min(expected.values(), default=0))
        for count, size in expected.items():
            if fixed + _SLACK * error * size > limit:
                continue
            made = self._in(graph, all_ranges.divided(count, self._streams.scratch), shared)
            if made.fits(limit, spare):
                return made, made.need
            error, trials = (made.need - fixed) / max(size, 1), trials + 1
            least = made.need if trials == 1 else min(least, made.need)
            if trials == _TRIALS:
                break
        return None, least

    def _expected(self, graph: HeteroGraph, count: int, shared: _Shared) -> int:
        """Returns the bytes that ``count`` ranges should take."""
        sizes = DestinationRanges.of(graph).expected(count)
        copies = sizes["NS"] < graph.size("NS")
        return count * self._kept(sizes, shared.taken, copies=copies) + self._room(sizes, shared, copies=copies)

    def _in(self, graph: HeteroGraph, ranges: Divided, shared: _Shared) -> Division:
        """Returns the division of a step into ranges."""
        parts = [(CountedSizes(part.graph), part.copies) for part in ranges]
        kept = sum(self._kept(sizes, shared.taken, copies=copies) for sizes, copies in parts)
        room = max((self._room(sizes, shared, copies=copies) for sizes, copies in parts), default=0)
        return Division(ranges, shared.size + kept + room, kept, room, shared.writes_gradients)

    def _shared(self, graph: HeteroGraph, mask: Mask, limit: float) -> _Shared:
        """Returns what all ranges share."""
        all_ranges, parts, program = DestinationRanges.of(graph), self._streams.parts, self._streams.program
        sizes = CountedSizes(graph)
        wanted = {name for name, needed in zip(program.inputs, mask, strict=True) if needed}
        results, by_name = program.returned(sizes, mask)
        taken = {array.source for array in parts.inputs.values()}
        gradients = sum(size for name, size in by_name.items() if name in taken)
        size, writes_gradients = results * (2 if wanted else 1) + gradients, False
        if self._streams.scratch is not None:
            # Gradients of sources are added to in any order, so they lie in memory if they leave enough of it.
            writes_gradients = 2 * gradients > limit
            size = 0 if writes_gradients else gradients
        encodings = encoding_bytes(all_ranges.taken_whole, sizes, program.index.itemsize, counted=False)
        if parts.nodes is not None:
            nodes = self._streams.of_text(parts.nodes, graph.index_dtype)
            own = tuple(name in wanted for name in nodes.inputs)
            need = nodes.need(sizes, own)
            # Its results are kept until their gradients are complete; its own backward comes afterwards.
            size += need.results + need.gradients
            encodings |= {name: size for name, size in need.encodings.items() if name not in COUNTED}
            if True in own:
                wanted |= {*parts.nodes_outputs}
        one = self._streams.of_text(parts.text, graph.index_dtype)
        gradient = one.gradients(tuple(parts.inputs[name].source in wanted for name in one.inputs))
        programs = (one,) if gradient is None else (one, gradient.program)
        names = all_ranges.taken.union(*(made.inference_code().encodings for made in programs))
        size += sum(encodings.values())
        return _Shared(size, programs, frozenset(names), frozenset(encodings), writes_gradients)

    def _room(self, sizes: Mapping[str, int], shared: _Shared, *, copies: bool) -> int:
        """Returns the bytes that a range takes while it runs.

        Args:
            sizes: The rows of the range, by row space.
            copies: Whether the range has copies of the rows of its sources.
        """
        program, inputs = shared.programs[0], self._streams.parts.inputs
        needs = [made.need(sizes, (False,) * len(made.inputs)) for made in shared.programs]
        copied = [n for n, a in inputs.items() if a.kind == "edges" or (a.kind == "sources" and copies)]
        rows = sum(sizes[program.space(n)] * program.width(n) * program.dtype.itemsize for n in copied)
        return rows + max(need.results + need.workspace for need in needs)

    def _kept(self, sizes: Mapping[str, int], taken: Collection[str], *, copies: bool) -> int:
        """Returns the bytes of the edges and encodings of a range, which are kept in memory.

        Args:
            sizes: The rows of the range, by row space.
            taken: The encodings that programs take of ranges.
            copies: Whether the range has copies of the rows of its sources.
        """
        if self._streams.scratch is not None:
            return 0
        item = self._streams.program.index.itemsize
        kept = sum(encoding_bytes(taken, sizes, item).values()) + sizes["E"] * item * (3 if sizes["R"] > 1 else 2)
        if copies:  # their numbers, and their types
            kept += sizes["NS"] * item * (2 if sizes["T"] > 1 else 1)
        return kept


class InRanges:
    """Runs the steps of a program that would take more than a limit of memory in ranges of destinations.

    Raises:
        DacergnnError: The arrays of the program are on a device, whose memory is not limited.
    """

    takes_parts = False

    def __init__(self, cuts: Cuts, memory: str | int) -> None:
        device = find(cuts.program.config.implementation).device
        if device != "cpu":
            raise DacergnnError(
                f"memory={memory!r} limits steps on the CPU, but arrays are on {device!r}; leave memory out, or move "
                "model and graph with .to('cpu')."
            )
        self.program, self.streams = cuts.program, Streams(cuts)
        self._limit = MemoryLimit(memory, self.streams)

    def run(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None = None) -> tuple[Tensor, ...] | None:
        """Returns the results of a step; None if it is within the limit as a whole.

        Raises:
            ArrayError: An input does not fit the graph and the program.
            MemoryLimitError: A step takes more, however it is divided.
        """
        if is_transformed():
            return None  # such calls compute other things than steps
        differentiated = torch.is_grad_enabled()
        mask = tuple([differentiated and t.requires_grad for t in inputs])
        division = self._limit.division(graph, mask)
        if division.ranges is None:
            return None
        check_inputs(self.program.code(mask).forward, self.program.dtype, graph, None, inputs)
        return self.streams.run(graph, inputs, division)

    def divisions(self, graph: HeteroGraph) -> list[Division]:
        """Returns how calls have run on a graph, one entry for each set of gradients."""
        return [*self._limit.divisions(graph).values()]


def largest_division(program: CompiledProgram, graph: HeteroGraph) -> Division | None:
    """Returns how the calls so far that needed the most memory ran on a graph; None before the first one."""
    sizes, ranges = CountedSizes(graph), program.way(InRanges)
    whole = [Division(None, program.need(sizes, mask).peak) for mask in program.masks]
    divided = [] if ranges is None else ranges.divisions(graph)
    return max([*whole, *divided], key=lambda division: division.need, default=None)
