"""Keeps the steps of a model within the memory that a config allows: divides programs into ranges of destinations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dacergnn.config import size_of
from dacergnn.errors import MemoryLimitError, ProgramError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.destination_ranges import DestinationRange, DestinationRanges
from dacergnn.modules.streamed import Division, Streams
from dacergnn.runtime.free_memory import free_memory
from dacergnn.runtime.needs import CountedSizes, encoding_bytes
from dacergnn.runtime.pool import POOL

if TYPE_CHECKING:
    from dacergnn.modules.compiled import CompiledProgram

Mask = tuple[bool, ...]
_COUNTS = sorted({*range(2, 9), *(round(2 ** (n / 4)) for n in range(12, 49))})
"""Numbers of ranges that are tried: up to 4,096."""
_TRIALS = 10
_SLACK = 0.75
"""Share of the bytes that ranges should take from which on a number of ranges is tried."""


@dataclass(frozen=True)
class _Shared:
    """Describes what all ranges share.

    Args:
        size: Its bytes.
        wanted: The arrays that need gradients.
        writes_gradients: Whether these gradients lie in files.
    """

    size: int
    wanted: frozenset[str]
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

    @property
    def left(self) -> float:
        """Returns the bytes that a call may take; a quarter of them are for pages of files, if arrays lie there."""
        left = free_memory() + POOL.free if self._limit is None else self._limit - POOL.used
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
        known, left = self.divisions(graph), self.left
        if mask not in known or known[mask].need > left:
            known[mask] = self.divided(graph, mask, left)
        return known[mask]

    def divided(self, graph: HeteroGraph, mask: Mask, limit: float) -> Division:
        """Returns the fewest ranges with which a step takes no more than ``limit`` bytes beside its inputs.

        Raises:
            MemoryLimitError: No number of ranges is enough.
        """
        program = self._streams.program
        whole = program.need(CountedSizes(graph), mask).peak
        if whole <= limit:
            return Division(None, whole)
        try:
            self._streams.parts  # noqa: B018
        except ProgramError as reason:
            raise MemoryLimitError(program.title, whole, limit, f"It cannot run in ranges: {reason}") from None
        found, least = self._fewest(graph, mask, limit)
        if found is None:
            raise MemoryLimitError(program.title, min(least, whole), limit)
        return found

    def _fewest(self, graph: HeteroGraph, mask: Mask, limit: float) -> tuple[Division | None, int]:
        """Returns the fewest ranges that stay within a limit, None if none are found; and the least need that was seen.

        Leaves out numbers that are far from enough by sizes that would be right if edges were spread evenly. Each trial
        tells how far these are wrong.
        """
        shared = self._shared(graph, mask, limit)
        fixed, error, trials = shared.size, 1.0, 0
        if fixed >= limit:
            return None, fixed
        expected = {n: self._expected(graph, n, shared) for n in _COUNTS if n <= graph.size("ND")}
        least = fixed + round(min(expected.values(), default=0))
        for count, size in expected.items():
            if fixed + _SLACK * error * size > limit:
                continue
            ranges = DestinationRanges.of(graph).divided(count, self._streams.scratch)
            kept, room = self._needed(ranges, shared)
            need = fixed + kept + room
            if need <= limit:
                return Division(ranges, need, room, shared.writes_gradients), need
            error, least, trials = (kept + room) / max(size, 1), need if trials == 0 else min(least, need), trials + 1
            if trials == _TRIALS:
                break
        return None, least

    def _expected(self, graph: HeteroGraph, count: int, shared: _Shared) -> int:
        """Returns the bytes that ``count`` ranges should take."""
        sizes = DestinationRanges.of(graph).expected(count)
        program = self._streams.of_text(self._streams.parts.text, graph.index_dtype)
        ranged, kept = self._ranged(program, sizes, shared.wanted, copies=sizes["NS"] < graph.size("NS"))
        return count * kept + ranged

    def _needed(self, ranges: Sequence[DestinationRange], shared: _Shared) -> tuple[int, int]:
        """Returns the bytes that ranges keep, and the most that one takes while it runs."""
        needs = [
            self._ranged(self._streams.of_range(p), CountedSizes(p.graph), shared.wanted, copies=p.copies)
            for p in ranges
        ]
        return sum(kept for _, kept in needs), max(ranged for ranged, _ in needs)

    def _shared(self, graph: HeteroGraph, mask: Mask, limit: float) -> _Shared:
        """Returns what all ranges share."""
        parts, program, sizes = self._streams.parts, self._streams.program, CountedSizes(graph)
        wanted = {name for name, needed in zip(program.inputs, mask, strict=True) if needed}
        results, by_name = program.returned(sizes, mask)
        taken = {array.source for array in parts.inputs.values()}
        gradients = sum(size for name, size in by_name.items() if name in taken)
        size, writes_gradients = results * (2 if wanted else 1) + gradients, False
        if self._streams.scratch is not None:
            # Gradients of sources are added to in any order, so they lie in memory if they leave enough of it.
            writes_gradients = 2 * gradients > limit
            size = 0 if writes_gradients else gradients
        encodings = encoding_bytes((), sizes, program.index.itemsize)
        if parts.nodes is not None:
            nodes = self._streams.of_text(parts.nodes, graph.index_dtype)
            own = tuple(name in wanted for name in nodes.inputs)
            need = nodes.need(sizes, own)
            # Its results are kept until their gradients are complete; its own backward comes afterwards.
            size += need.results + need.gradients
            encodings |= need.encodings
            if True in own:
                wanted |= {*parts.nodes_outputs}
        return _Shared(size + sum(encodings.values()), frozenset(wanted), writes_gradients)

    def _ranged(
        self, program: CompiledProgram, sizes: Mapping[str, int], wanted: Collection[str], *, copies: bool
    ) -> tuple[int, int]:
        """Returns the bytes that a range takes while it runs, and those of its edges and encodings, which are kept.

        Args:
            program: The program of a range.
            sizes: The rows of the range, by row space.
            wanted: The arrays that need gradients.
            copies: Whether the range has copies of the rows of its sources.
        """
        inputs, item = self._streams.parts.inputs, program.dtype.itemsize
        forward = program.need(sizes, (False,) * len(program.inputs))
        peak, encodings = forward.results + forward.workspace, dict(forward.encodings)
        made = program.gradients(tuple(inputs[name].source in wanted for name in program.inputs))
        if made is not None:
            need = made.program.need(sizes, (False,) * len(made.program.inputs))
            peak = max(peak, need.results + need.workspace)
            encodings |= need.encodings
        copied = [n for n, a in inputs.items() if a.kind == "edges" or (a.kind == "sources" and copies)]
        rows = sum(sizes[program.space(name)] * program.width(name) * item for name in copied)
        kept = sum(encodings.values()) + sizes["E"] * program.index.itemsize * (3 if sizes["R"] > 1 else 2)
        if copies:  # their numbers, and their types
            kept += sizes["NS"] * program.index.itemsize * (2 if sizes["T"] > 1 else 1)
        return peak + rows, kept if self._streams.scratch is None else 0
