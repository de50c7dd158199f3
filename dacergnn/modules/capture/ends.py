"""Finds which integers of a captured graph are ends of edges: rows are gathered and reduced by them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from dacergnn.frontends.dgl.typed_products import typed_product
from dacergnn.modules.capture.uses import CALLS, name_of

_GETITEM = (operator.getitem, Tensor.__getitem__)
_VIEWS = frozenset(("view", "reshape", "unsqueeze", "expand", "expand_as", "long", "to", "contiguous"))
_MOST_TYPES = 64
"""Limits the types of nodes: numbers that choose among more rows are names of nodes, whose embeddings are looked up."""
_REDUCTIONS = frozenset(("index_add", "scatter_add", "scatter_reduce", "index_reduce"))


@dataclass(frozen=True)
class Ends:
    """Describes edges by the nodes that hold their sources, their destinations and perhaps their types, [E] each.

    ``node_types`` holds the types of the nodes [N], if the graph chooses by them. ``nodes`` holds the numbers of rows
    that are gathered or reduced by sources, and by destinations.
    """

    src: fx.Node
    dst: fx.Node
    types: fx.Node | None
    node_types: fx.Node | None = None
    nodes: tuple[Sequence[Any], Sequence[Any]] = field(default=((), ()), compare=False)

    @property
    def rows(self) -> tuple[fx.Node, int] | None:
        """Returns the index [2, E] whose rows are the ends, and the row of the sources; None for other ends."""
        src, dst = _row(self.src), _row(self.dst)
        if src is None or dst is None or src[0] is not dst[0] or {src[1], dst[1]} != {0, 1}:
            return None
        return src


@dataclass
class _Index:
    """Holds how rows are gathered and reduced by some integers: the numbers of rows there, in the order of the graph.

    ``parted`` tells that they are rows [..., N, F] of several graphs with these edges.
    ``of`` names other integers that the same values depend on.
    """

    gathered: list[Any] = field(default_factory=list[Any])
    reduced: list[Any] = field(default_factory=list[Any])
    of: fx.Node | None = None
    parted: bool = False


def find_ends(graph: fx.Graph, same: Callable[[fx.Node], fx.Node]) -> list[Ends]:
    """Returns the edges along which a graph gathers and reduces rows.

    Args:
        same: Returns one node for all nodes that hold the same integers.
    """
    found: dict[fx.Node, _Index] = {}
    labels: dict[fx.Node, fx.Node] = {}

    def first(index: fx.Node) -> fx.Node:
        while (of := found[index].of) is not None:
            index = of
        return index

    def meet(nodes: list[fx.Node]) -> fx.Node | None:
        """Notes that values that depend on these integers meet."""
        firsts = [*dict.fromkeys(map(first, nodes))]
        for other in firsts[1:]:
            found[other].of = firsts[0]
        return firsts[0] if firsts else None

    for node in graph.nodes:
        gather, reduction, axis = gather_of(node), reduction_of(node), 0
        if gather is None and reduction is None:
            gather, reduction, axis = gather_of(node, along_parts), reduction_of(node, along_parts), -2
            gather = None if gather is None or gather[0] in labels else gather  # a row per edge has others within
        if gather is not None and _floating(gather[0]) and (index := ids_of(gather[1])) is not None:
            index = same(index)
            uses = found.setdefault(index, _Index())
            uses.gathered.append(_rows(gather[0], axis))
            uses.parted |= axis != 0
            labels[node] = index
            continue
        if node.target is typed_product and (index := ids_of(node.args[2])) is not None:
            index = same(index)
            found.setdefault(index, _Index()).gathered.append(_rows(node.args[1]))
            labels[node] = index
            meet([index, *[labels[n] for n in node.args[:1] if n in labels]])
            continue
        if reduction is not None and (index := ids_of(reduction[1])) is not None:
            index = same(index)
            target, _, values = reduction
            uses = found.setdefault(index, _Index())
            uses.reduced.append(_rows(target, axis))
            uses.parted |= axis != 0
            meet([index, *[labels[v] for v in (values,) if v in labels]])
            continue
        size = _rows(node)
        label = meet([labels[n] for n in node.all_input_nodes if n in labels and str(_rows(n)) == str(size)])
        if label is not None:
            labels[node] = label
    groups: dict[fx.Node, list[fx.Node]] = {}
    for index in found:
        groups.setdefault(first(index), []).append(index)
    ends = [ends for group in groups.values() if (ends := _sides([(i, found[i]) for i in group])) is not None]
    if len(ends) != 1:
        return ends
    return [replace(ends[0], node_types=_types_of_nodes(ends[0], found))]


def _types_of_nodes(ends: Ends, found: dict[fx.Node, _Index]) -> fx.Node | None:
    """Returns integers that choose by node: as many as the sources, among few rows, of a number that does not vary."""
    sources, dst = found[ends.src].gathered, found[ends.dst]
    if [str(n) for n in sources[:1]] != [str(n) for n in (dst.reduced or dst.gathered)[:1]]:
        return None  # no program has types of nodes where sources and destinations are different ones
    for index, uses in found.items():
        alone = index not in (ends.src, ends.dst, ends.types) and not uses.reduced
        few = all(type(n) is int and n <= _MOST_TYPES for n in uses.gathered)
        if alone and few and sources and str(_rows(index)) == str(sources[0]):
            return index
    return None


def _sides(group: list[tuple[fx.Node, _Index]]) -> Ends | None:
    """Returns which of the integers that belong to the same edges are sources, destinations and types."""
    group = sorted(group, key=lambda entry: -len(entry[1].reduced))
    reduced = [entry for entry in group if entry[1].reduced]
    if not reduced and any(uses.parted for _, uses in group):
        return None  # rows along another axis are chosen, such as heads
    dst = reduced[0] if reduced else group[-1]
    others = [entry for entry in group if entry is not dst]
    if not others:
        return None
    nodes = str((dst[1].reduced or dst[1].gathered)[0])
    likely = [entry for entry in others if entry[1].reduced or _many(entry[1].gathered, nodes)]
    src = (likely or others)[0]
    types = next((node for node, uses in others if (node, uses) not in likely and node is not src[0]), None)
    src_rows, dst_rows = ([*uses.gathered, *uses.reduced] for _, uses in (src, dst))
    return Ends(src[0], dst[0], types, nodes=(src_rows, dst_rows))


def _many(sizes: list[Any], nodes: str) -> bool:
    """Returns whether rows are those of nodes, not of types: as many as destinations, or of a number that varies."""
    return any(str(size) == nodes or isinstance(size, torch.SymInt) for size in sizes)


def is_view(node: fx.Node) -> bool:
    """Returns whether a node holds the numbers of its first argument in another shape."""
    return _name(node) in _VIEWS


def gather_of(node: fx.Node, along: Callable[[Any, Any], bool] | None = None) -> tuple[fx.Node, fx.Node] | None:
    """Returns the rows and the index of a node that gathers rows.

    Args:
        along: Tells whether an axis of a node is that of its rows; by default, it is the first one.
    """
    args: Any = node.args
    first, along = along is None, along or _first_axis
    if node.op == "call_function" and node.target in _GETITEM and first:
        source, index = args[:2]
    elif _selects(node) and len(args) == 3 and along(args[0], args[1]):
        source, index = args[0], args[2]
    elif first and _name(node) == "index" and len(args) == 2 and isinstance(args[1], list) and len(args[1]) == 1:
        source, (index,) = args  # of ATen
    elif first and _name(node) == "embedding":
        index, source = args[:2] if node.target is F.embedding else args[1::-1]
    else:
        return None
    return (source, index) if isinstance(index, fx.Node) and isinstance(source, fx.Node) else None


def _selects(node: fx.Node) -> bool:
    """Returns whether a node calls ``index_select``, or what torch_geometric has put in its place."""
    return _name(node) == "index_select" or node.target is torch.index_select


def reduction_of(
    node: fx.Node, along: Callable[[Any, Any], bool] | None = None
) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """Returns what a node that reduces rows adds to, the index, and the rows; ``along`` is that of `gather_of`."""
    if _name(node) not in _REDUCTIONS:
        return None
    names = ("self", "dim", "index", "source")
    given: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    target, index, values = given.get("self"), given.get("index"), given.get("source", given.get("src"))
    if not (isinstance(index, fx.Node) and isinstance(values, fx.Node) and isinstance(target, fx.Node)):
        return None
    return (target, index, values) if (along or _first_axis)(target, given["dim"]) else None


def _name(node: fx.Node) -> str:
    """Returns the name of a function, method or operation, the same for one that writes to its argument."""
    return name_of(node).partition(".")[0].removesuffix("_") if node.op in CALLS else ""


def _first_axis(source: Any, axis: Any) -> bool:
    value = _value(source)
    return isinstance(value, Tensor) and type(axis) is int and value.dim() > 0 and axis % value.dim() == 0


def along_parts(source: Any, axis: Any) -> bool:
    """Returns whether an axis is that of the rows [..., N, F] of several graphs."""
    value = _value(source)
    return isinstance(value, Tensor) and type(axis) is int and value.dim() > 2 and axis % value.dim() == value.dim() - 2


def ids_of(node: fx.Node, dtypes: tuple[torch.dtype, ...] = (torch.int64,)) -> fx.Node | None:
    """Returns the node with one integer for each row, of which an index is a view; None for another index."""
    while isinstance(value := _value(node), Tensor) and value.dtype in dtypes and value.dim():
        if value.dim() == 1 and not is_view(node):
            return node
        if not is_view(node) or not isinstance(node.args[0], fx.Node):
            return None
        node = node.args[0]
    return None


def _row(node: fx.Node) -> tuple[fx.Node, int] | None:
    """Returns the index [2, E] and the row of it that a node holds."""
    if node.target not in _GETITEM or type(node.args[1]) is not int:
        return None
    source, row = node.args
    if isinstance(source, fx.Node) and _name(source) == "unbind" and len(source.args) == 1:
        source = source.args[0]
    value = _value(source)
    both = isinstance(value, Tensor) and value.dim() == 2 and value.shape[0] == 2
    return (source, row % 2) if both and isinstance(source, fx.Node) and isinstance(row, int) else None


def _value(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def _floating(node: Any) -> bool:
    value = _value(node)
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0


def _rows(node: Any, axis: int = 0) -> Any:
    """Returns the number of rows of a node's tensor; None if it has none."""
    value = _value(node)
    return value.shape[axis] if isinstance(value, Tensor) and value.dim() else None
