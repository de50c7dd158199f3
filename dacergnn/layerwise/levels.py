"""Finds the stage in which a value of a model can be computed, and what it is computed from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import fx

from dacergnn.layerwise.reading import Reading, Way
from dacergnn.modules.capture.ends import is_view

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Copy:
    """Describes a node of the model in a stage.

    Args:
        node: The node.
        end: The destinations by which the edges of its rows are chosen; None for rows of nodes.
        as_index: Whether it holds numbers of rows that are in memory, in place of those of the whole graph.
        is_read: Whether rows of other nodes than those of the range are read.
    """

    node: fx.Node
    end: fx.Node | None
    as_index: bool = False
    is_read: bool = False


class Levels:
    """Finds the stage in which a node can be computed: the first is 0."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._levels: dict[Copy, int] = {}
        self._reduced: dict[Copy, bool] = {}

    def level(self, copy: Copy) -> int:
        """Returns the first stage in which a node can be computed for a range."""
        for item in postorder([copy], self._parts, self._levels):
            self._levels[item] = max((self._after(part) for part in self._parts(item)), default=0)
        return self._levels[copy]

    def _after(self, part: Copy) -> int:
        """Returns the first stage in which a node is there; computed rows of all nodes are there one later."""
        is_computed = part.is_read and self.reading.way(part.node) is not Way.ARRAY
        return self._levels[part] + is_computed

    def is_reduced(self, copy: Copy) -> bool:
        """Returns whether rows of nodes depend on edges of the stage."""
        inside = self._within
        for item in postorder([copy], inside, self._reduced):
            is_reduction = self.reading.way(item.node) in (Way.REDUCTION, Way.PART)
            self._reduced[item] = is_reduction or any(self._reduced[part] for part in inside(item))
        return self._reduced[copy]

    def _within(self, copy: Copy) -> list[Copy]:
        return [part for part in self._parts(copy) if part.end is None and not part.is_read]

    def _parts(self, copy: Copy) -> list[Copy]:
        return [*parts_of(self.reading, copy)]


def parts_of(reading: Reading, copy: Copy) -> Iterable[Copy]:
    """Returns what rows are computed from.

    Raises:
        UnsupportedCallError: They are not of the nodes or edges that they are used for.
    """
    node, end = copy.node, copy.end
    if copy.as_index:
        if not is_view(node):
            return
        first, *others = node.all_input_nodes
        yield Copy(first, end, as_index=True)
        yield from (Copy(n, end) for n in others if not reading.is_size(n) and n is not first)
        return
    rows = reading.rows(node)
    if rows is None:
        return
    way = reading.way(node)
    if rows.count not in reading.counts.nodes if end is None else rows.count != reading.count(end):
        raise reading.refused(node, "takes rows of nodes and of edges together")
    if way in (Way.ARRAY, Way.CREATION):
        return
    move, call = reading.move(node), reading.call(node)
    if way is Way.PART and call is not None:
        if end is not None:
            raise reading.refused(call.node, "returns rows of edges")
        yield from (Copy(part, None, is_read=True) for part in call.read(rows.count))
        into = call.into(rows.count)
        yield from (Copy(part, reading.same(into[e].dst)) for part, e in call.arrays.items() if e in into)
    elif way is Way.GATHER and move is not None:
        if end is None:
            raise reading.refused(node, "reads rows for nodes by numbers that are no ends of edges")
        yield Copy(move.rows, None, is_read=move.end is not end)
        yield Copy(move.index, end, as_index=True)
    elif way is Way.REDUCTION and move is not None and move.target is not None:
        yield Copy(move.target, None)
        yield Copy(move.rows, move.end)
        yield Copy(move.index, move.end, as_index=True)
    else:
        for part in node.all_input_nodes:
            if not reading.is_size(part) and reading.rows(part) is not None:
                yield Copy(part, end)


def postorder(roots: Iterable[_Item], parts: Callable[[_Item], Iterable[_Item]], done: Any) -> Iterable[_Item]:
    """Yields what is not done, parts before what they are parts of; a deep model would exceed a recursion's limit."""
    stack = [(root, False) for root in roots]
    while stack:
        item, is_open = stack.pop()
        if item in done:
            continue
        if is_open:
            yield item
        else:
            stack.append((item, True))
            stack += [(part, False) for part in parts(item) if part not in done]
