"""Tells for each node of a captured model how its rows are computed: from the same rows, by a gather or a reduction."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.layerwise.arguments import FEATURES, GRAPH
from dacergnn.layerwise.capture import Captured, Uncaptured
from dacergnn.layerwise.part_calls import PartCall, part_call
from dacergnn.layerwise.parts import part_of, run_part
from dacergnn.layerwise.rewrites import drop_empty, is_empty, make_functional
from dacergnn.layerwise.rows import CREATIONS, Mixed, RowCheck, RowCounts, Rows
from dacergnn.modules.capture.ends import gather_of, ids_of, is_view, reduction_of
from dacergnn.modules.capture.integers import Integers
from dacergnn.modules.capture.sources import place_of
from dacergnn.modules.capture.uses import CALLS, name_of

_INDEX_TYPES = (torch.int64, torch.int32)


class Way(Enum):
    """Says how the rows of a node are computed."""

    ARRAY = auto()
    """They are an argument's, or computed before all ranges, since they depend on the edges alone."""
    GATHER = auto()
    """They are read from rows of nodes by an end of edges."""
    REDUCTION = auto()
    """They are reduced from rows of edges by an end of edges."""
    PART = auto()
    """They are what a part of the model that is called as it is returns for in-edges and the sources of these."""
    CREATION = auto()
    """They are all the same number."""
    ROWS = auto()
    """They are computed from the same rows of other nodes."""


@dataclass(frozen=True)
class Move:
    """Describes a gather or a reduction.

    Args:
        rows: The rows that are read.
        index: The numbers of rows of nodes, perhaps as a view.
        end: The integers that the index is a view of, [E].
        target: What a reduction adds to.
    """

    rows: fx.Node
    index: fx.Node
    end: fx.Node
    target: fx.Node | None


class Reading:
    """Reads what torch has captured of a model.

    Args:
        who: The name of the model in messages.
    """

    def __init__(self, captured: Captured, who: str) -> None:
        self.who, self.captured = who, captured
        self.graph = captured.module.graph
        make_functional(captured.module, who)
        drop_empty(self.graph)
        if any("autocast" in name_of(node) for node in self.graph.nodes):
            raise self._refusal("it turns autocast on or off", "Turn it on around the call of inference")
        self.counts = self._counts()
        of_groups = {node: argument.group for node, argument in captured.arguments.items()}
        self.of_nodes = {node for node, group in of_groups.items() if isinstance(group, str) and not is_empty(node)}
        self._before = self._computed_before()
        self.calls = {node: self._call(node) for node in [*self.graph.nodes] if self._is_part(node)}
        self.places = {node: i for i, node in enumerate(self.graph.nodes)}
        self._integers = Integers(self.graph)
        self._before = self._computed_before()
        self._note_ends()
        self._problems: dict[fx.Node, tuple[str | None, bool]] = {}
        self._ways: dict[fx.Node, Way] = {}
        self._moves: dict[fx.Node, Move | None] = {}
        self.kinds: dict[fx.Node, Any] = {}
        """The number of nodes of the type that ends of edges are of."""
        for node, edges in ((node, edges) for node, call in self.calls.items() for edges in call.edges.values()):
            self._note_kind(node, self.same(edges.src), edges.source)
            self._note_kind(node, self.same(edges.dst), edges.destination)
        for result in captured.results.values():
            self._check_result(result)

    def _counts(self) -> RowCounts:
        sizes: dict[Any, list[Any]] = {}
        for node, argument in self.captured.arguments.items():
            size = node.meta["example_value"].shape[argument.axis]
            if type(size) is not int or size > 0:
                sizes.setdefault(argument.group, []).insert(0 if argument.name in (FEATURES, GRAPH) else 1 << 30, size)
        counts = RowCounts(sizes)
        for group, count in counts.groups.items():
            rows = "nodes" if isinstance(group, str) else "edges"
            if rows == "edges" and not _varies(count) and not self._has_rows_of_edges(count):
                raise Uncaptured(f"it captures {self.who} for {count} edges{_of(group)} alone")
            if not _varies(count):
                problem = f"it takes no other number of {rows}{_of(group)} than {count}"
                raise self._refusal(problem, f"Give parameters with a row for each of the {rows} as an argument")
        if len({*counts.groups.values()}) < len(counts.groups):
            problem = "it takes rows of nodes and of edges, or of several types, together"
            raise self._refusal(problem, "Compute them apart")
        return counts

    def _has_rows_of_edges(self, edges: Any) -> bool:
        """Returns whether a parameter has as many rows as there are edges."""
        given = [value for value in self.captured.given.values() if isinstance(value, Tensor) and value.dim()]
        return any(value.shape[0] == edges for value in given)

    def _is_part(self, node: fx.Node) -> bool:
        return node.target is run_part and not self.is_before(node)

    def _call(self, node: fx.Node) -> PartCall:
        """Returns what a call of a part takes; it adds nodes for the ends of its edges to the graph."""
        try:
            return part_call(node, self)
        except Mixed as problem:
            raise self.refused(node, str(problem)) from None

    def call(self, node: fx.Node) -> PartCall | None:
        """Returns the call of a part that a node is a result of; None for other nodes."""
        source = node.args[0] if node.target is operator.getitem else None
        return self.calls.get(source) if isinstance(source, fx.Node) else None

    def _note_ends(self) -> None:
        """Notes the numbers of edges that the model has computed, with self loops for example."""
        for node in self.graph.nodes:
            used = gather_of(node) or reduction_of(node)
            end = None if used is None else ids_of(used[1], _INDEX_TYPES)
            if end is not None:
                self.counts.add(*(n.meta["example_value"].shape[0] for n in (end, self.same(end))))

    def _check_result(self, result: fx.Node) -> None:
        value = result.meta["example_value"]
        if is_empty(result) or (value.dim() and self.counts.expression(value.shape[0]) in self.counts.nodes):
            return
        for node in self.graph.nodes:
            if not self.is_before(node) and not self.is_size(node):
                self.rows(node)
        sizes = {a.group: a.array.shape[a.axis] for a in self.captured.arguments.values()}
        nodes = {size for group, size in sizes.items() if isinstance(group, str)}
        if value.dim() and type(value.shape[0]) is int and value.shape[0] in nodes and self.rows(result) is None:
            raise self.without_rows(result)
        groups = {count: group for group, count in self.counts.groups.items()}
        shape = [self.counts.expression(size) for size in value.shape]
        found = [sizes[groups[size]] if size in groups else size for size in shape]
        remedy = f"give steps that return a row for each node, here {' or '.join(map(str, sorted(nodes)))}"
        raise UnsupportedLayerError("shape of the result", found, remedy, self.who)

    def _computed_before(self) -> set[fx.Node]:
        """Returns the nodes that depend on no rows of nodes."""
        before: set[fx.Node] = set()
        for node in self.graph.nodes:
            if node in self.of_nodes or node.op == "output":
                continue
            if self.is_known_size(node) or all(n in before for n in node.all_input_nodes):
                before.add(node)
        return before

    def is_size(self, node: fx.Node) -> bool:
        """Returns whether a node is a size, or several."""
        value = node.meta.get("example_value")
        return bool(tree_leaves(value)) and not any(isinstance(v, Tensor) for v in tree_leaves(value))

    def is_known_size(self, node: fx.Node) -> bool:
        """Returns whether a node is a size that follows from the numbers of nodes and edges of the arguments."""
        value = node.meta.get("example_value")
        if not isinstance(value, int | torch.SymInt) or isinstance(value, bool):
            return False
        return self._known(value)

    def _known(self, size: Any) -> bool:
        symbols = getattr(self.counts.expression(size), "free_symbols", set())
        return symbols <= {*self.counts.groups.values()}

    def is_before(self, node: fx.Node) -> bool:
        """Returns whether a node depends on no rows of nodes."""
        return node in self._before

    def rows(self, node: fx.Node) -> Rows | None:
        """Returns where the rows of a node's tensors are; None if they have none."""
        try:
            found = [self.counts.of(v) for v in tree_leaves(node.meta.get("example_value")) if isinstance(v, Tensor)]
        except Mixed as problem:
            raise self.refused(node, str(problem)) from None
        return next((rows for rows in found if rows is not None), None)

    def count(self, node: fx.Node) -> Any:
        """Returns the number of rows of a node's tensors; None if they have none."""
        rows = self.rows(node)
        return None if rows is None else rows.count

    def same(self, node: fx.Node) -> fx.Node:
        """Returns one node for all that hold the same integers."""
        return self._integers.same(node)

    def way(self, node: fx.Node) -> Way:
        """Returns how the rows of a node are computed.

        Raises:
            UnsupportedCallError: They are not computed row by row.
        """
        if node not in self._ways:
            self._ways[node] = self._way(node)
        return self._ways[node]

    def _way(self, node: fx.Node) -> Way:
        if node.op in ("placeholder", "get_attr") or (self.is_before(node) and self._is_small(node)):
            return Way.ARRAY
        if self.call(node) is not None:
            return Way.PART
        move = self.move(node)
        if move is not None:
            return Way.GATHER if move.target is None else Way.REDUCTION
        problem, _ = self._checked(node)
        if problem is None:
            return Way.CREATION if name_of(node) in CREATIONS else Way.ROWS
        if self.is_before(node):
            return Way.ARRAY
        raise self.refused(node, problem)

    def _is_small(self, node: fx.Node) -> bool:
        """Returns whether a node is one number for each edge or node, made of such numbers alone, as degrees are."""
        seen, open_nodes = {node}, [node]
        while open_nodes:
            current = open_nodes.pop()
            value: Any = current.meta.get("example_value")
            argument = self.captured.arguments.get(current)
            is_graph = argument is not None and argument.name == GRAPH
            floating = isinstance(value, Tensor) and value.is_floating_point()
            if current in self.captured.given and isinstance(value, Tensor) and value.dim():
                return False
            if floating and value.dim() > 1 and not is_graph:
                return False
            new = [n for n in current.all_input_nodes if n not in seen]
            seen.update(new)
            open_nodes += new
        return True

    def move(self, node: fx.Node) -> Move | None:
        """Returns the gather or reduction that a node is; None if it is neither."""
        if node not in self._moves:
            self._moves[node] = self._move(node)
        return self._moves[node]

    def _move(self, node: fx.Node) -> Move | None:
        gather, reduction = gather_of(node), reduction_of(node)
        if gather is not None:
            rows, index, target = *gather, None
        elif reduction is not None:
            target, index, rows = reduction
        else:
            return None
        of_nodes = rows if target is None else target
        kind = self.rows(of_nodes)
        if kind is None or kind.count not in self.counts.nodes or (kind.axis, kind.each) != (0, 1):
            return None
        end = ids_of(index, _INDEX_TYPES)
        if end is None:
            raise self.refused(node, "reads rows by numbers that are no ends of edges")
        if not self.is_before(end):
            raise self.refused(node, "reads rows whose numbers depend on features")
        end = self.same(end)
        expected = self.rows(end)
        is_matrix = target is None and index.meta["example_value"].dim() != 1
        if expected is None or expected.count in self.counts.nodes or is_matrix:
            raise self.refused(node, "reads rows by numbers that are no ends of edges")
        for view in self.views(index, end):
            problem, _ = self._checked(view)
            if problem is not None:
                raise self.refused(view, problem)
        if self.rows(index) != expected or (target is not None and self.rows(rows) != expected):
            raise self.refused(node, "takes another number of rows than there are edges")
        self._note_kind(node, end, kind.count)
        return Move(rows, index, end, target)

    def _note_kind(self, node: fx.Node, end: fx.Node, kind: Any) -> None:
        if self.kinds.setdefault(end, kind) != kind:
            raise self.refused(node, "reads rows of one node type by ends of edges that are of another")

    def views(self, index: fx.Node, end: fx.Node) -> list[fx.Node]:
        """Returns the views that lead from the ends of edges to an index."""
        found: list[fx.Node] = []
        while is_view(index) and self.same(index) is not end:
            found.append(index)
            first = index.args[0]
            assert isinstance(first, fx.Node)
            index = first
        return found

    def takes_numbers(self, node: fx.Node) -> bool:
        """Returns whether sizes that a node takes are numbers to compute with, not a shape."""
        return self._checked(node)[1]

    def _checked(self, node: fx.Node) -> tuple[str | None, bool]:
        if node not in self._problems:
            self._problems[node] = self._check(node)
        return self._problems[node]

    def _check(self, node: fx.Node) -> tuple[str | None, bool]:
        """Returns why a node does not keep rows apart, if so, and whether it takes sizes as numbers."""
        if node.op not in CALLS:
            return f"is a {node.op}", False
        target: Any = node.target
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta.get("example_value"))
        check = RowCheck(self.counts)
        values = tree_leaves((args, kwargs, node.meta.get("example_value")))
        mode: Any = next((v.fake_mode for v in values if hasattr(v, "fake_mode")), None)
        if mode is None:
            return "takes no tensors", False
        try:
            with torch.no_grad(), mode, check:
                getattr(args[0], target)(*args[1:], **kwargs) if node.op == "call_method" else target(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, KeyError) as error:
            return f"is not known to keep rows apart ({type(error).__name__})", False
        if not all(map(_varies, self.counts.groups.values())):
            raise self.refused(node, "is described by torch for this number of rows alone")
        has_sizes = any(self.is_size(n) for n in node.all_input_nodes)
        if check.takes_numbers and (check.takes_shapes or not has_sizes):
            return check.problem or "computes with its number of rows", True
        return check.problem, check.takes_numbers

    def refused(self, node: fx.Node, problem: str) -> UnsupportedCallError:
        """Returns the error for a node that does not keep rows apart."""
        remedy = "Compute it on the results for all nodes, or give what it yields as an argument"
        number: Any = node.args[0] if node.target is run_part else None
        what = f"{name_of(node)} at {place_of(node)}" if number is None else part_of(number).name
        return self._refusal(f"{what} {problem}", remedy)

    def without_rows(self, node: fx.Node) -> UnsupportedCallError:
        """Returns the error for a node that has no rows, and depends on rows of nodes."""
        while not any(self._has_rows(n) for n in node.all_input_nodes):
            node = next(n for n in node.all_input_nodes if not self.is_before(n))
        problem = None if node.target is run_part else self._checked(node)[0]
        return self.refused(node, problem or "depends on all rows at once")

    def _has_rows(self, node: fx.Node) -> bool:
        return not self.is_size(node) and self.rows(node) is not None

    def _refusal(self, problem: str, remedy: str) -> UnsupportedCallError:
        return UnsupportedCallError(f"{self.who} cannot be computed range by range: {problem}. {remedy}.")


def _of(group: Any) -> str:
    """Returns the words that name a group in a message."""
    return f" of {group!r}" if any(group) else ""


def _varies(count: Any) -> bool:
    """Returns whether a size is a symbol."""
    return bool(getattr(count, "free_symbols", None))
