"""Arranges the arrays of a call in memory, and tells how much memory calls need before they are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from dacergnn.graph import HeteroGraph
from dacergnn.graph.counting import BY_SOURCE, COUNTED
from dacergnn.graph.spaces import parse_encoding, target_space
from dacergnn.runtime.layout import ArgumentLayout
from dacergnn.runtime.lower import Buffer, Lowered
from dacergnn.runtime.memory import lined_up, plan_memory

_UNPLANNED = 1 << 22
"""Bytes up to which intermediate arrays share memory as for all sizes, since a plan would cost more than it saves."""
Places = dict[str, tuple[int, int, int]]
"""Saved arrays in their buffer by name: start, end, and the last operator of the backward that reads them."""


class CountedSizes(dict[str, int]):
    """Holds numbers of rows by row space, which a graph counts when they are first asked for."""

    def __init__(self, graph: HeteroGraph) -> None:
        super().__init__()
        self._graph = graph

    def __missing__(self, space: str) -> int:
        self[space] = self._graph.size(space)
        return self[space]


class Arrangement(NamedTuple):
    """Holds pairs of an argument's position and an offset, in the workspace and in the giver's buffer, and the bytes of
    the workspace."""

    offsets: list[tuple[int, int]]
    given: list[tuple[int, int]]
    size: int


def arrange(layout: ArgumentLayout, sizes: Mapping[str, int], item: int, places: Places, room: int) -> Arrangement:
    """Places the intermediate arrays of a call.

    Args:
        sizes: Number of rows by row space.
        item: Bytes of an element.
        places: Saved arrays that the call may overwrite, in a buffer of ``room`` bytes.
    """
    offsets, size = lined_up(layout.shared, sizes)
    if size <= _UNPLANNED:
        return Arrangement(offsets, [], size)
    plan = plan_memory(layout.buffers, sizes, item, places, room)
    placed = [(layout.positions[n], offset) for n, offset in plan.offsets.items()]
    own = [(position, offset - room) for position, offset in placed if offset >= room]
    return Arrangement(own, [(position, offset) for position, offset in placed if offset < room], plan.size)


def places_of(saved: list[Buffer], offsets: list[int], reader: Lowered) -> Places:
    """Returns the places of saved arrays.

    Args:
        offsets: Where they begin in their buffer, then the bytes of the buffer.
        reader: The backward.
    """
    ends = zip(saved, offsets, offsets[1:], strict=False)
    return {b.name: (start, end, reader.last_reads.get(b.name, -1)) for b, start, end in ends}


@dataclass(frozen=True)
class Need:
    """Holds bytes that a step takes besides its inputs.

    Attributes:
        results: Results of the forward.
        saved: Arrays that the forward saves for the backward.
        workspace: Arrays between operators: of the forward or the backward, whatever is more.
        gradients: Gradients of the results, which the backward takes, and of the inputs, which it returns.
        encodings: Encodings of the graph that the kernels read, by name.
    """

    results: int
    saved: int
    workspace: int
    gradients: int
    encodings: Mapping[str, int]

    @property
    def peak(self) -> int:
        """Returns the most bytes at one time."""
        return self.results + self.saved + self.workspace + self.gradients + sum(self.encodings.values())

    def with_encodings(self, others: Mapping[str, int]) -> Need:
        """Returns the need of a step while the graph keeps other encodings, too."""
        return replace(self, encodings={**others, **self.encodings})

    @classmethod
    def of(
        cls, forward: Lowered, backward: Lowered | None, results: int, sizes: Mapping[str, int], item: int, index: int
    ) -> Need:
        """Returns the need of a program on a graph.

        Args:
            results: How many outputs of the forward are results; the others are saved.
            sizes: Number of rows by row space.
            item, index: Bytes of an element and of an index.
        """
        layout = ArgumentLayout(forward, results, item, 2)
        workspace = arrange(layout, sizes, item, {}, 0).size + layout.scratch(sizes)
        offsets = layout.saved_offsets(sizes)
        returned = _bytes(forward.outputs[:results], sizes, item)
        names, gradients = {*forward.encodings}, 0
        if backward is not None:
            own = ArgumentLayout(backward, len(backward.outputs), item, 2)
            places = places_of([*forward.outputs[results:]], offsets, backward)
            again = arrange(own, sizes, item, places, offsets[-1]).size + own.scratch(sizes)
            workspace, names = max(workspace, again), names | {*backward.encodings}
            gradients = returned + _bytes(backward.outputs, sizes, item)
        return cls(returned, offsets[-1], workspace, gradients, encoding_bytes(names, sizes, index))


def encoding_bytes(
    names: Collection[str], sizes: Mapping[str, int], index: int, *, counted: bool = True
) -> dict[str, int]:
    """Returns the bytes of encodings; those that share memory count once.

    Args:
        sizes: Number of rows by row space.
        index: Bytes of an index.
        counted: Whether the graph keeps those that it made when it counted its pairs.
    """
    held = {"idx_E_src", "idx_E_dst", *(["idx_E_etype"] if sizes["R"] > 1 else [])}  # the edges hold these
    own = {"ids_E_etype_src" if name in BY_SOURCE else name for name in names} | (COUNTED if counted else set())
    return {name: index * _entries(name, sizes) for name in own - held}


def _bytes(buffers: tuple[Buffer, ...], sizes: Mapping[str, int], item: int) -> int:
    return sum(sizes[b.rows] * prod(b.shape) * item for b in buffers)


def _entries(name: str, sizes: Mapping[str, int]) -> int:
    """Returns the number of entries of an encoding."""
    kind, space, paths = parse_encoding(name)
    if kind in ("ptr", "len", "reg"):
        return sizes[target_space(space, paths[0])] + 1
    return sizes[space]
