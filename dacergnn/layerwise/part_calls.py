"""Tells what a part that is called as it is takes: rows of nodes, edges, and rows of these."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, fx

from dacergnn.errors import UnsupportedCallError
from dacergnn.layerwise.capture import Captured
from dacergnn.layerwise.parts import Part, part_of
from dacergnn.layerwise.rows import Mixed, RowCounts, Rows


class Model(Protocol):
    """Describes what is known of a captured model."""

    graph: fx.Graph
    captured: Captured
    counts: RowCounts

    def is_size(self, node: fx.Node) -> bool:
        """Returns whether a node is a size, or several."""
        ...

    def is_before(self, node: fx.Node) -> bool:
        """Returns whether a node depends on no rows of nodes."""
        ...

    def without_rows(self, node: fx.Node) -> UnsupportedCallError:
        """Returns the error for a node that has no rows, and depends on rows of nodes."""
        ...


@dataclass(frozen=True)
class Edges:
    """Describes edges [2, E] among the arguments of a part.

    Args:
        src: The node of the sources, [E].
        dst: The node of the destinations.
        source: The number of nodes of the type of the sources.
        destination: The same for the destinations.
    """

    src: fx.Node
    dst: fx.Node
    source: Any
    destination: Any


@dataclass
class PartCall:
    """Describes a call of a part.

    Args:
        node: The call.
        part: The part, which lives as long as its calls.
        rows: The number of nodes for each argument that has rows of nodes.
        edges: The edges among the arguments.
        arrays: The edges for each argument that has rows of edges.
    """

    node: fx.Node
    part: Part
    rows: dict[fx.Node, Any] = field(default_factory=dict[fx.Node, Any])
    edges: dict[fx.Node, Edges] = field(default_factory=dict[fx.Node, Edges])
    arrays: dict[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])

    def into(self, kind: Any) -> dict[fx.Node, Edges]:
        """Returns the edges that end in nodes of a type."""
        return {node: edges for node, edges in self.edges.items() if edges.destination == kind}

    def read(self, kind: Any) -> list[fx.Node]:
        """Returns the rows of nodes that results of a type depend on."""
        kinds = {kind, *(edges.source for edges in self.into(kind).values())}
        return [node for node, count in self.rows.items() if count in kinds]


def part_call(node: fx.Node, model: Model) -> PartCall:
    """Returns what a part takes; it adds nodes for the ends of edges to the graph.

    Raises:
        Mixed: It takes something else than rows of nodes, edges, and rows of these.
    """
    number: Any = node.args[0]
    call = PartCall(node, part_of(number))
    others: dict[fx.Node, Any] = {}
    for given in node.all_input_nodes:
        value = given.meta["example_value"]
        rows = _rows(given, model)
        if rows is None:
            if not model.is_before(given):
                raise model.without_rows(given)
        elif model.is_size(given):
            raise Mixed("takes a number of rows")
        elif rows.axis == 1 and _is_index(value) and model.is_before(given):
            call.edges[given] = _edges(given, node, model)
        elif (rows.axis, rows.each) != (0, 1):
            raise Mixed("takes rows along another axis than the first")
        elif rows.count in model.counts.nodes:
            call.rows[given] = rows.count
        else:
            others[given] = rows.count
    if any(not {e.source, e.destination} <= {*call.rows.values()} for e in call.edges.values()):
        raise Mixed("takes edges of nodes, and not rows of these nodes")
    counts = {model.counts.expression(edges.meta["example_value"].shape[1]): edges for edges in call.edges}
    for given, count in others.items():
        if count not in counts:
            raise Mixed("takes rows of edges, and not these edges")
        call.arrays[given] = counts[count]
    return call


def _rows(given: fx.Node, model: Model) -> Rows | None:
    """Returns where the rows of an argument are; edges that the model has computed are noted."""
    value = given.meta["example_value"]
    if model.is_size(given):
        return None if model.counts.multiple(value) is None else Rows(value, 0, 1)
    try:
        return model.counts.of(value)
    except Mixed:
        if not (_is_index(value) and model.is_before(given)):
            raise
        model.counts.add(value.shape[1], value.shape[1])
        return model.counts.of(value)


def _is_index(value: Any) -> bool:
    is_whole = isinstance(value, Tensor) and not value.is_floating_point()
    return is_whole and value.dim() == 2 and type(value.shape[0]) is int and value.shape[0] == 2


def _edges(given: fx.Node, node: fx.Node, model: Model) -> Edges:
    argument, kinds = model.captured.arguments.get(given), [*model.counts.nodes]
    if argument is not None and isinstance(argument.group, tuple):
        source, _, destination = argument.group
    elif len(kinds) == 1:
        source = destination = model.counts.nodes[kinds[0]]
    else:
        raise Mixed("takes edges that the model computes, whose node types are not known")
    with model.graph.inserting_before(node):
        src, dst = (model.graph.call_function(operator.getitem, (given, row)) for row in range(2))
    for row, end in enumerate((src, dst)):
        end.meta = {"example_value": given.meta["example_value"][row]}
    groups = model.counts.groups
    return Edges(src, dst, groups[source], groups[destination])
