"""The parts that a network gets while an exported program is read: steps, arrays, constants, and rows of graphs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import Tensor, fx

from dacergnn.config import Config
from dacergnn.deploy.literals import literal
from dacergnn.deploy.network import (
    Array,
    Call,
    Constant,
    Graph,
    Input,
    SameSize,
    ScatterRows,
    SortEdges,
    Step,
)
from dacergnn.deploy.sizes import ONE, ZERO, Size, product, size_of
from dacergnn.deploy.types import c_type

EDGE_ROWS = ("src", "dst", "type", "position")
"""Names what the rows of sorted edges hold."""


def label_of_array(array: Array, label: str) -> str:
    """Returns the name under which a user knows an array: that of an argument, else ``label``."""
    return array.owner.label if isinstance(array.owner, Input) else label


class Parts:
    """Makes the parts of a network.

    Args:
        config: How programs are compiled; None for the targets and plans that they were exported with.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config
        self.steps: list[Step] = []
        self.inputs: list[Input] = []
        self.constants: dict[str, Constant] = {}
        self.made: dict[object, Any] = {}
        """Results of steps that would be equal, by what they depend on."""
        self._counts: dict[str, int] = {}
        self._sizes: dict[Size, Size] = {}

    def name(self, prefix: str) -> str:
        """Returns a new name in C++."""
        self._counts[prefix] = self._counts.get(prefix, -1) + 1
        return f"{prefix}{self._counts[prefix]}"

    def constant(self, tensor: Tensor, hint: str) -> Constant:
        """Returns a tensor that is the same in all calls; only those that steps read are kept in the end."""
        base = "w_" + re.sub(r"\W+", "_", hint)
        name = base if base not in self.constants else self.name(f"{base}_")
        value = tensor.detach().cpu().contiguous()
        shape = tuple([sympy.Integer(size) for size in value.shape])
        made = self.constants[name] = Constant(name, value.dtype, shape, value=value)
        return made

    def array(self, node: fx.Node | Any, source: Array | None = None, start: Size | None = None) -> Array:
        """Returns an array for the value of a node (or of torch's fake tensor of it)."""
        value = node.meta["val"] if isinstance(node, fx.Node) else node
        return self.new_array(value.dtype, *map(size_of, value.shape), source=source, start=start)

    def new_array(
        self, dtype: torch.dtype, *shape: Size, source: Array | None = None, start: Size | None = None
    ) -> Array:
        """Returns an array of these sizes."""
        return Array(self.name("a"), dtype, shape, source, start)

    def same_size(self, one: Size, other: Size) -> None:
        """Notes that two sizes that steps find are the same."""
        if self.known_size(one) != other:
            self.steps.append(SameSize(one, other))
            self._sizes[one] = other

    def known_size(self, size: Size) -> Size:
        """Returns a size in terms of those that were found first."""
        return size.xreplace(self._sizes)  # pyright: ignore[reportReturnType]

    def filled(self, number: float, dtype: torch.dtype, *shape: Size) -> Array:
        """Returns an array of one number."""
        key = ("filled", repr(number), dtype, shape)
        if key not in self.made:
            made = self.made[key] = self.new_array(dtype, *shape)
            value = repr(number).replace("inf", "HUGE_VAL").replace("nan", "NAN")
            self.steps.append(Call("fill", [made], [made.elements, f"({c_type(dtype)}){value}"], "numbers"))
        return self.made[key]

    def gather(self, made: Array, source: Array, index: Array, label: str) -> None:
        """Copies the rows that an index chooses; negative numbers count from the end."""
        given = source, index, index.elements, source.shape[0], source.width
        self.steps.append(Call("gather_rows", [made], given, label))

    def copied(self, made: Array, arrays: Sequence[Array], axis: int, label: str) -> None:
        """Copies arrays into a new one, one behind the other along an axis."""
        start, rows, stride = ZERO, product(made.shape[:axis]), product(made.shape[axis:])
        for place, array in enumerate(arrays):
            width = product(array.shape[axis:])
            given = stride, array, width, rows, width
            to = self.new_array(made.dtype, array.elements, source=made, start=start)
            self.steps.append(Call("copy_rows", [] if place else [made], (to, *given) if place else given, label))
            start = start + width

    def check_sizes(self, condition: Any, label: str) -> None:
        """Refuses calls whose sizes do not fulfil a condition."""
        text = literal(f"The sizes of the inputs do not fit the model, which asks for {label}.")
        self.steps.append(Call("check_fit", [], [condition, text], label))

    def sorted_edges(
        self, edges: Array, sizes: tuple[Size, Size, int, int], label: str, types: Array | None = None,
        node_types: Array | None = None,
    ) -> Graph:  # fmt: skip
        """Returns the graph of edges [2, E] and their types, and of the types of nodes; ``sizes`` are its own."""
        given = (edges, types, node_types)
        key = ("edges", *[array and (array.owner, array.offset) for array in given], *sizes)
        if key not in self.made:
            own = self.name("g"), sizes, node_types is not None, edges.shape[1]
            graph = self.made[key] = Graph(*own)
            self.steps.append(SortEdges(graph, edges, types, label_of_array(edges, label), node_types))
        return self.made[key]

    def joined(self, arrays: Sequence[Array], label: str) -> Array:
        """Returns arrays of equal sizes as rows of one array, which they may show already."""
        first, rows = arrays[0], len(arrays)
        shape = (sympy.Integer(rows), *first.shape)
        if all(a.owner is first.owner and a.offset == first.offset + i * a.elements for i, a in enumerate(arrays)):
            return self.new_array(first.dtype, *shape, source=first.owner, start=first.offset)
        key = ("joined", *[(array.owner, array.offset) for array in arrays], first.shape)
        if key not in self.made:
            made = self.made[key] = self.new_array(first.dtype, *shape)
            self.copied(made, arrays, 0, label)
        return self.made[key]

    def edge_row(self, graph: Graph, row: int) -> Array:
        """Returns a row of the sorted edges."""
        key = ("edge row", graph, row)
        if key not in self.made:
            made = self.made[key] = self.new_array(torch.int32, graph.edges)
            given = ONE, f"{graph.name}.{EDGE_ROWS[row]}", ONE, graph.edges, ONE
            self.steps.append(Call("copy_rows", [made], given, "edges", graph))
        return self.made[key]

    def edge_weights(self, graph: Graph, kind: str, dtype: torch.dtype) -> Array:
        """Returns weights that follow from the edges."""
        key = ("weights", graph, kind, dtype)
        if key not in self.made:
            made = self.made[key] = self.new_array(dtype, graph.edges)
            self.steps.append(Call(f"{kind}_weights", [made], [graph.name], "weights", graph))
        return self.made[key]

    def degrees(self, graph: Graph, side: int, dtype: torch.dtype) -> Array:
        """Returns the numbers of edges at the nodes of one end."""
        key = ("degrees", graph, side, dtype)
        if key not in self.made:
            nodes = (graph.sizes[0], graph.sizes[1])[side]
            first, ones = self.filled(0, dtype, nodes), self.filled(1, dtype, graph.edges)
            made = self.made[key] = self.new_array(dtype, nodes)
            index = self.edge_row(graph, side)
            self.steps.append(ScatterRows(made, first, index, ones, "sum", include=True, label="degrees"))
        return self.made[key]
