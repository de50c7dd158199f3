"""Describes the arguments of a program's function once for all graphs; only sizes depend on the graph."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.runtime.lower import Buffer, Lowered, argument
from dacergnn.runtime.memory import aligned, hosted, shared


class Result(NamedTuple):
    """Describes an array that a call returns or saves: its argument's position, row space, row shape and row bytes."""

    position: int
    rows: str
    shape: tuple[int, ...]
    width: int


class ArgumentLayout:
    """Describes the arguments of a program.

    Args:
        results: Number of outputs that are returned; the others are saved.
        item: Bytes of an element.
        tail: Number of arguments after those of the program.
    """

    def __init__(self, lowered: Lowered, results: int, item: int, tail: int) -> None:
        self.positions = {name: i + 1 for i, name in enumerate(lowered.signature)}
        """Positions of arguments, by name."""
        self.end = 1 + len(lowered.signature)
        """Position of the first argument after those of the program."""
        hosts = hosted(lowered.intermediates, lowered.outputs[:results])
        self.hosted = [(self.positions[name], self.positions[result]) for name, result in hosts.items()]
        """Intermediate arrays in the memory of results: positions of their arguments, and of the results' arguments."""
        self.buffers: list[Buffer] = [b for b in lowered.intermediates if b.name not in hosts]
        """Intermediate arrays that the workspace holds."""
        self.shared = shared(self.buffers, self.positions, item)
        """Which of these buffers share memory whatever the sizes are."""
        outputs = [Result(self.positions[b.name], b.rows, b.shape, b.elements * item) for b in lowered.outputs]
        self.results, self.saved = outputs[:results], outputs[results:]
        self.saved_positions = [output.position for output in self.saved]
        self._scratch = lowered.scratch
        spaces = {space for space, _ in lowered.spaces.values()}
        spaces |= {b.rows for b in (*lowered.outputs, *lowered.intermediates)}
        spaces |= {space for need in lowered.scratch for space in need}
        self.spaces = sorted(spaces | set(lowered.signature) & set(ROW_SPACES))
        """Row spaces whose sizes are needed."""
        self._sizes = [(self.positions[name], name) for name in lowered.signature if name in self.spaces]
        self._encodings = [self.positions[name] for name in lowered.encodings]
        schedule = {argument(choice): value for choice, value in lowered.schedule.items()}
        self._constants = array("q", [0, *[schedule.get(name, 0) for name in lowered.signature], *[0] * tail])

    def arguments(self, handle: int, sizes: Mapping[str, int], encodings: Sequence[int]) -> array[int]:
        """Returns the arguments of a call, 0 in place of the addresses of arrays.

        Args:
            handle: The handle of the build.
            sizes: Number of rows by row space.
            encodings: Their addresses; there may be more than the program takes.
        """
        made = self._constants[:]
        made[0] = handle
        for position, space in self._sizes:
            made[position] = sizes[space]
        for position, address in zip(self._encodings, encodings, strict=False):
            made[position] = address
        return made

    def scratch(self, sizes: Mapping[str, int]) -> int:
        """Returns the bytes of the kernels' own memory."""
        needs = [sum([width * sizes[space] for space, width in need.items()]) for need in self._scratch]
        return aligned(max(needs, default=0))

    def saved_offsets(self, sizes: Mapping[str, int]) -> list[int]:
        """Returns the offsets of saved arrays in their buffer, in bytes, then its size."""
        return [*accumulate([aligned(sizes[s.rows] * s.width) for s in self.saved], initial=0)]
