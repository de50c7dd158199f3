"""Splits a captured model into stages, each of which is computed for one range of destinations after the other.

A value of nodes that is gathered by sources has to exist for all nodes; so it belongs to an earlier stage. Within a
stage, values of nodes are those of a range, and values of edges those of the edges that end there. The same node of the
model may be in several stages, and for several ends of edges: it is copied into each.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from dacergnn.layerwise.levels import Copy, Levels, parts_of, postorder
from dacergnn.layerwise.part_calls import PartCall
from dacergnn.layerwise.parts import run_part
from dacergnn.layerwise.reading import Reading, Way
from dacergnn.layerwise.rewrites import is_empty
from dacergnn.modules.capture.uses import name_of


@dataclass(frozen=True)
class Count:
    """Describes an input: the number of rows, of nodes or of the edges of ``end``."""

    end: fx.Node | None


@dataclass(frozen=True)
class Own:
    """Describes an input: the rows of an array that belong to the range, of nodes or of the edges of ``end``."""

    array: fx.Node
    end: fx.Node | None


@dataclass(frozen=True)
class Hood:
    """Describes rows of nodes that are in memory, each once: those that edges read, and perhaps those of the range.

    Args:
        reads: The sources, and the destinations by which edges are chosen.
        own: Whether rows of the range are among them.
    """

    reads: tuple[tuple[fx.Node, fx.Node], ...]
    own: bool = False


@dataclass(frozen=True)
class Read:
    """Describes an input: the rows of an array of nodes that are in memory."""

    array: fx.Node
    hood: Hood


@dataclass(frozen=True)
class Numbers:
    """Describes an input: positions among the rows that are in memory.

    Args:
        ends: A node for each edge, and the destinations by which edges are chosen; None for the nodes of the range.
        hood: The rows; None for those of the range.
    """

    ends: tuple[fx.Node, fx.Node] | None
    hood: Hood | None


Input = Count | Own | Read | Numbers
_Needed = dict[int, dict[fx.Node, None]]


@dataclass
class Stage:
    """Describes a stage.

    Args:
        kind: The number of nodes of the type that it computes rows of.
        graph: What is run for each range.
        inputs: What it takes.
        outputs: The nodes whose rows it returns, in order.
        ends: The destinations of the edges in it.
        constants: The nodes whose values are attributes in the graph, by the names of these.
        calls: The parts that it calls as they are.
    """

    kind: Any
    graph: fx.Graph
    inputs: list[Input]
    outputs: list[fx.Node]
    ends: list[fx.Node]
    constants: dict[str, fx.Node]
    calls: list[fx.Node]


@dataclass
class Plan:
    """Describes how a model is computed: what comes before all ranges, and the stages in order."""

    before: set[fx.Node] = field(default_factory=set[fx.Node])
    stages: list[Stage] = field(default_factory=list[Stage])


def plan_of(reading: Reading) -> Plan:
    """Returns the stages of a model.

    Raises:
        UnsupportedCallError: A part of it is not computed row by row.
    """
    plan = Plan()
    levels = Levels(reading)
    needed: _Needed = {}
    for result in reading.captured.results.values():
        if is_empty(result):
            plan.before.add(result)
        else:
            needed.setdefault(levels.level(Copy(result, None)), {})[result] = None
    for number in range(max(needed, default=-1), -1, -1):
        for kind in reading.counts.nodes:
            outputs = [node for node in needed.get(number, ()) if reading.count(node) == kind]
            if outputs:
                plan.stages.insert(0, _Builder(reading, levels, number, kind, needed, plan).stage(outputs))
    return plan


class _Builder:
    """Makes one stage.

    Args:
        number: The number of the stage.
        kind: The number of nodes of the type that it computes rows of.
        needed: What earlier stages have to compute for all nodes; the stage adds to it.
        plan: Takes what has to be computed before all ranges.
    """

    def __init__(
        self,
        reading: Reading,
        levels: Levels,
        number: int,
        kind: Any,
        needed: dict[int, dict[fx.Node, None]],
        plan: Plan,
    ) -> None:
        self.reading, self.levels, self.number, self.kind = reading, levels, number, kind
        self.needed, self.plan = needed, plan
        self.graph = fx.Graph()
        self.inputs: dict[Input, fx.Node] = {}
        self.constants: dict[str, fx.Node] = {}
        self._attributes: dict[fx.Node, fx.Node] = {}
        self._made: dict[Copy, fx.Node] = {}
        self._calls: dict[fx.Node, fx.Node] = {}

    def stage(self, outputs: list[fx.Node]) -> Stage:
        """Returns the stage that computes these nodes."""
        copies: dict[Copy, None] = {}
        for copy in postorder([Copy(node, None) for node in outputs], self._parts, copies):
            copies[copy] = None
        for copy in sorted(copies, key=lambda c: self.reading.places[c.node]):  # writes stay in their order
            self._made[copy] = self._emitted(copy)
        self.graph.output(tuple(self._made[Copy(node, None)] for node in outputs))
        inputs = [*self.inputs]
        numbers = {ends for i in inputs if isinstance(i, Numbers) and (ends := i.ends) is not None}
        reads = {pair for i in inputs if isinstance(i, Read) for pair in i.hood.reads} | numbers
        own = {i.end for i in inputs if isinstance(i, Own | Count) and i.end is not None}
        ends = own | {end for _, end in reads}
        self.plan.before.update(self.constants.values(), ends, (source for source, _ in reads))
        return Stage(self.kind, self.graph, inputs, outputs, [*ends], self.constants, [*self._calls])

    def _parts(self, copy: Copy) -> list[Copy]:
        """Returns what a node is computed from within the stage."""
        if self._array(copy) is not None:
            return []
        return [part for part in parts_of(self.reading, copy) if not part.is_read]

    def _array(self, copy: Copy) -> fx.Node | None:
        """Returns the node of an array that holds the rows; None if the stage computes them."""
        if copy.as_index:
            return None
        if self.reading.way(copy.node) is Way.ARRAY:
            return copy.node
        level = self.levels.level(copy)
        is_stored = copy.end is None and level < self.number and self.levels.is_reduced(copy)
        return self._stored(copy.node, level) if is_stored else None

    def _stored(self, node: fx.Node, level: int) -> fx.Node:
        self.needed.setdefault(level, {})[node] = None
        return node

    def _emitted(self, copy: Copy) -> fx.Node:
        node, end, reading = copy.node, copy.end, self.reading
        if copy.as_index:
            parts = [*parts_of(reading, copy)]
            if not parts:
                assert end is not None
                source = reading.same(node)
                return self._input(Numbers((source, end), None if source is end else Hood(((source, end),))))
            return self._copied(copy, {part.node: self._made[part] for part in parts})
        if end is None and reading.count(node) != self.kind:
            raise reading.refused(node, "takes rows of several node types together")
        array = self._array(copy)
        if array is not None:
            return self._own(array, end)
        way, move = reading.way(node), reading.move(node)
        if way is Way.CREATION:
            return self._created(copy)
        call = reading.call(node)
        if way is Way.PART and call is not None:
            return self._result(node, call)
        parts = [*parts_of(reading, copy)]
        made = {part.node: self._made[part] for part in parts if not part.is_read}
        if move is not None and end is not None:
            hood = Hood(((move.end, end),))
            made |= {part.node: self._read(part.node, hood) for part in parts if part.is_read}
        return self._copied(copy, made)

    def _own(self, array: fx.Node, end: fx.Node | None) -> fx.Node:
        rows = self.reading.rows(array)
        if rows is None:
            return self._constant(array)
        if (rows.axis, rows.each) != (0, 1):
            raise self.reading.refused(array, "has its rows along another axis than the first")
        if array not in self.reading.captured.arguments and self.reading.is_before(array):
            self.plan.before.add(array)
        return self._input(Own(array, end))

    def _read(self, node: fx.Node, hood: Hood) -> fx.Node:
        """Returns the input with rows of an array that are in memory."""
        if self.reading.way(node) is not Way.ARRAY:
            self._stored(node, self.levels.level(Copy(node, None)))
        elif node not in self.reading.captured.arguments:
            self.plan.before.add(node)
        return self._input(Read(node, hood))

    def _result(self, node: fx.Node, call: PartCall) -> fx.Node:
        """Returns rows of the range among the results of a part."""
        if call.node not in self._calls:
            self._calls[call.node] = self._called(call)
        made = self.graph.call_function(operator.getitem, (self._calls[call.node], node.args[1]))
        own = self._input(Numbers(None, self._hood(call, self.kind)))
        return self.graph.call_function(torch.index_select, (made, 0, own))

    def _hood(self, call: PartCall, kind: Any) -> Hood:
        """Returns the rows of a node type that a part needs: those that edges into the range read, and of the range."""
        same, into = self.reading.same, call.into(self.kind).values()
        reads = dict.fromkeys((same(edges.src), same(edges.dst)) for edges in into if edges.source == kind)
        return Hood((*reads,), own=kind == self.kind)

    def _called(self, call: PartCall) -> fx.Node:
        """Returns the call of a part for the in-edges of the range alone."""
        made: dict[fx.Node, fx.Node] = {}
        into, read = call.into(self.kind), call.read(self.kind)
        for part, edges in into.items():
            src, dst = self.reading.same(edges.src), self.reading.same(edges.dst)
            ends = (self._input(Numbers((src, dst), self._hood(call, edges.source))),
                    self._input(Numbers((dst, dst), self._hood(call, self.kind))))  # fmt: skip
            stacked = self.graph.call_function(torch.stack, (ends,))
            made[part] = self.graph.call_method("to", (stacked, part.meta["example_value"].dtype))
        for part, edges in call.arrays.items():
            if edges in into:
                made[part] = self._made[Copy(part, self.reading.same(into[edges].dst))]
        for part in read:
            made[part] = self._read(part, self._hood(call, call.rows[part]))
        for part in (*call.rows, *call.edges, *call.arrays):
            made.setdefault(part, self._nothing(part.meta["example_value"]))
        args, kwargs = map_arg((call.node.args, call.node.kwargs), lambda n: made.get(n) or self._constant(n))
        return self.graph.call_function(run_part, args, kwargs)

    def _nothing(self, like: Any) -> fx.Node:
        """Returns a tensor without rows."""
        shape = tuple(0 if isinstance(size, torch.SymInt) else size for size in like.shape)
        return self.graph.call_function(torch.zeros, (shape,), {"dtype": like.dtype, "device": like.device})

    def _input(self, given: Input) -> fx.Node:
        if given not in self.inputs:
            last = [*self.inputs.values()][-1:]
            with self.graph.inserting_after(last[0]) if last else self.graph.inserting_before():
                self.inputs[given] = self.graph.placeholder(f"{type(given).__name__.lower()}_{len(self.inputs)}")
        return self.inputs[given]

    def _constant(self, node: fx.Node) -> fx.Node:
        """Returns an attribute that holds the value of a node that depends on no rows."""
        if not self.reading.is_before(node):
            raise self.reading.without_rows(node)
        if node not in self._attributes:
            name = f"constant_{len(self._attributes)}"
            self.constants[name] = node
            self._attributes[node] = self.graph.get_attr(name)
        return self._attributes[node]

    def _created(self, copy: Copy) -> fx.Node:
        node = copy.node
        example, name = node.meta["example_value"], name_of(node)
        shape = tuple(self._size(size, copy) for size in example.shape)
        options = {"dtype": example.dtype, "device": example.device}
        if "full" in name:
            number = node.kwargs.get("fill_value", node.args[-1])
            if isinstance(number, fx.Node):
                raise self.reading.refused(node, "fills rows with a number that is computed")
            return self.graph.call_function(torch.full, (shape, number), options)
        made = torch.ones if "ones" in name else torch.zeros
        return self.graph.call_function(made, (shape,), options)

    def _copied(self, copy: Copy, made: dict[fx.Node, fx.Node]) -> fx.Node:
        node = copy.node
        numbers = self.reading.takes_numbers(node)

        def filled(part: fx.Node) -> Any:
            if part in made:
                return made[part]
            if self.reading.is_size(part):
                return self._constant(part) if numbers else self._sizes(part.meta["example_value"], copy)
            return self._constant(part)

        args, kwargs = map_arg((node.args, node.kwargs), filled)
        return self.graph.create_node(node.op, node.target, args, kwargs)

    def _sizes(self, value: Any, copy: Copy) -> Any:
        if isinstance(value, tuple | list):
            return tuple(self._sizes(v, copy) for v in value)
        return self._size(value, copy)

    def _size(self, size: Any, copy: Copy) -> Any:
        """Returns a size of the whole graph as it is in the range."""
        found = self.reading.counts.multiple(size) if isinstance(size, torch.SymInt) else None
        if found is None:
            return int(size) if isinstance(size, torch.SymInt) else size
        count, factor = found
        if count == self.kind:
            made = self._input(Count(None))
        elif copy.end is not None and count == self.reading.count(copy.end):
            made = self._input(Count(copy.end))
        else:
            raise self.reading.refused(copy.node, "takes a number of rows that it has no rows of")
        return made if factor == 1 else self.graph.call_function(operator.mul, (made, factor))
