"""Operations that become steps of their own: those of graphs, and those that move rows or reduce over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import Tensor, fx

from dacergnn.deploy.network import (
    AddLoops,
    Array,
    CheckSizes,
    Constant,
    CopyEdgeRow,
    CopyRows,
    EdgeWeights,
    Fill,
    GatherRows,
    Graph,
    JoinEdges,
    Piece,
    RelationPart,
    RowFunction,
    RunProgram,
    ScatterRows,
    SortEdges,
)
from dacergnn.deploy.places import label_of
from dacergnn.deploy.row_programs import Rows
from dacergnn.deploy.sizes import Size, product, size_of
from dacergnn.frontends.symbolic.call import FEW, Untranslatable
from dacergnn.modules.exported import compiled_of

if TYPE_CHECKING:
    from dacergnn.deploy.reader import Reader

Handler = Callable[["Reader", fx.Node], Any]
MOVEMENTS: dict[str, Handler] = {}
"""What makes steps of operations, by their names in torch; they raise Untranslatable for others of the same name."""
_ZERO, _ONE = sympy.Integer(0), sympy.Integer(1)


@dataclass(frozen=True)
class _NodeTypes:
    """Stands for the types of nodes, which a graph knows itself."""


@dataclass(frozen=True)
class _Repeated:
    """Stands for an index [N] that is repeated for every column."""

    index: Array


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            MOVEMENTS[name] = handler
        return handler

    return register


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Returns the arguments of an operation by name, with the defaults of those that are not given."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    given = dict(zip([argument.name for argument in schema.arguments], node.args, strict=False)) | dict(node.kwargs)
    return {a.name: given.get(a.name, a.default_value) for a in schema.arguments}


def _value(node: Any) -> Any:
    """Returns the number or symbolic number of an argument."""
    return node.meta["val"] if isinstance(node, fx.Node) else node


def _sizes(nodes: Sequence[Any]) -> tuple[Size, ...]:
    return tuple([size_of(_value(node)) for node in nodes])


# Graphs


@_handles("dacergnn::edges")
def _edges(reader: Reader, node: fx.Node) -> Graph:
    a = _arguments(node)
    edges = reader.needs_array(a["edge_index"])
    types = None if a["edge_type"] is None else reader.needs_array(a["edge_type"])
    num_src, num_dst = _sizes([a["num_src"], a["num_dst"]])
    key = ("edges", edges, types, num_src, num_dst, a["num_types"])
    if key not in reader.made:
        sizes = num_src, num_dst, a["num_types"], 1
        graph = reader.made[key] = Graph(reader.name("g"), sizes, typed=False, edges=edges.shape[1])
        if not a["bipartite"] and num_src != num_dst:
            reader.steps.append(CheckSizes(sympy.Le(num_dst, num_src), "destinations that are the first sources"))
        reader.steps.append(SortEdges(graph, edges, types, label_of(node)))
    return reader.made[key]


def _graph(reader: Reader, node: fx.Node, a: dict[str, Any]) -> Graph:
    """Returns the graph that an operator reads: that of earlier steps, or one that is an argument of the model."""
    edges = reader.get(a["edges"])
    if isinstance(edges, Graph):
        return edges
    if not isinstance(edges, Array):
        raise Untranslatable
    types = [reader.needs_array(t) for t in a.get("types", ())]
    num_src, num_dst, num_types, node_types, _ = _sizes(a["sizes"])
    key = ("given", edges, *types)
    if key not in reader.made:
        count = edges.shape[1]
        ends = Array(reader.name("a"), edges.dtype, (sympy.Integer(2), count), edges, _ZERO)
        own = Array(reader.name("a"), edges.dtype, (count,), edges, 2 * count)
        sizes = num_src, num_dst, int(num_types), int(node_types)
        graph = reader.made[key] = Graph(reader.name("g"), sizes, typed=bool(types), edges=count)
        reader.steps.append(SortEdges(graph, ends, own, label_of(node), types[0] if types else None))
    return reader.made[key]


@_handles("dacergnn::typed_edges")
def _typed_edges(reader: Reader, node: fx.Node) -> Graph:
    a = _arguments(node)
    edges = [reader.needs_array(part) for part in a["parts"]]
    counts, (num_dst,) = _sizes(a["counts"]), _sizes([a["num_dst"]])
    numbers, ends = a["numbers"], a["ends"]
    key = ("typed", *edges, *numbers, *ends, counts, num_dst, a["num_types"])
    if key not in reader.made:
        sizes = (sympy.Add(*counts), num_dst, a["num_types"], len(counts))
        total = sympy.Add(*[part.shape[1] for part in edges])
        graph = reader.made[key] = Graph(reader.name("g"), sizes, typed=True, edges=total)
        parts = [
            RelationPart(part, numbers[i], (ends[2 * i], ends[2 * i + 1]), label)
            for i, (part, label) in enumerate(zip(edges, a["labels"].split("\n"), strict=True))
        ]
        reader.steps.append(JoinEdges(graph, parts, counts))
    return reader.made[key]


@_handles("dacergnn::node_types")
def _node_types(reader: Reader, node: fx.Node) -> _NodeTypes:
    return _NodeTypes()


@_handles("dacergnn::with_loops")
def _with_loops(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    edges = reader.needs_array(a["edge_index"])
    count, *nodes = _sizes([a["count"], a["num_src"], a["num_dst"]])
    key = ("loops", edges, count, *nodes)
    made = reader.array(node)
    if key not in reader.made:
        reader.made[key] = made
        step = AddLoops(made, edges, count, (nodes[0], nodes[1]), made.shape[1], label_of(node))
        reader.steps.append(step)
        return made
    known = reader.made[key]
    reader.same_size(made.shape[1], known.shape[1])
    return known


@_handles("dacergnn::edge_weights")
def _edge_weights(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    graph = _graph(reader, node, a)
    key = ("weights", graph, a["kind"], a["dtype"])
    if key not in reader.made:
        made = reader.made[key] = reader.array(node)
        reader.steps.append(EdgeWeights(made, graph, a["kind"]))
    return reader.made[key]


@_handles("dacergnn::program")
def _program(reader: Reader, node: fx.Node) -> list[Array]:
    a = _arguments(node)
    graph = _graph(reader, node, a)
    compiled, order = compiled_of(a["program"])
    arrays = [reader.needs_array(array) for array in a["arrays"]]
    inputs = {name: arrays[place] for name, place in zip(compiled.inputs, order, strict=True)}
    made = [reader.array(value) for value in node.meta["val"]]
    reader.steps.append(RunProgram(compiled, graph, None, inputs, made, label_of(node)))
    return made


# Views


@_handles(
    "aten::view", "aten::reshape", "aten::_unsafe_view", "aten::flatten", "aten::unsqueeze", "aten::squeeze",
    "aten::clone", "aten::contiguous", "aten::detach", "aten::detach_", "aten::alias", "aten::lift_fresh_copy",
    "aten::dropout", "aten::_to_copy", "aten::to", "aten::view_as",
)  # fmt: skip
def _same(reader: Reader, node: fx.Node) -> Any:
    """Shows an array in another shape, or as it is."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    value, own = node.meta["val"], source.meta["val"]
    if value.dtype != own.dtype or _arguments(node).get("train", False):
        raise Untranslatable
    known = reader.known[source]
    if isinstance(known, Rows):
        try:
            return reader.record(node)
        except Untranslatable:
            known = reader.get(source)
    if isinstance(known, _NodeTypes | Graph | _Repeated):
        return known
    if not isinstance(known, Array):
        raise Untranslatable
    return reader.array(node, known, _ZERO)


@_handles("aten::expand")
def _expand(reader: Reader, node: fx.Node) -> _Repeated:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    own, value = source.meta["val"], node.meta["val"]
    if own.is_floating_point() or own.dim() != value.dim() or own.dim() != 2 or own.shape[1] != 1:
        raise Untranslatable
    return _Repeated(reader.needs_array(source))


@_handles("aten::select")
def _select(reader: Reader, node: fx.Node) -> Any:
    a = _arguments(node)
    place = _value(a["index"])
    return _part(reader, node, a["self"], a["dim"], place, None)


@_handles("aten::narrow")
def _narrow(reader: Reader, node: fx.Node) -> Any:
    a = _arguments(node)
    return _part(reader, node, a["self"], a["dim"], _value(a["start"]), _value(a["length"]))


@_handles("aten::slice")
def _slice(reader: Reader, node: fx.Node) -> Any:
    a = _arguments(node)
    size = a["self"].meta["val"].shape[a["dim"]]
    start, end = _value(a["start"]) or 0, _value(a["end"])
    if a["step"] != 1:
        raise Untranslatable
    rows = node.meta["val"].shape[a["dim"]]
    if isinstance(start, int) and start == 0 and (end is None or end is size or rows is size or rows == size):
        return _same(reader, node)
    if isinstance(start, int) and start < 0:
        start = size + start
    return _part(reader, node, a["self"], a["dim"], start, rows)


def _part(reader: Reader, node: fx.Node, source: fx.Node, dim: int, start: Any, length: Any) -> Any:
    """Shows rows of an array, or drops the row axis if there is no ``length``."""
    if dim % source.meta["val"].dim() != 0:
        raise Untranslatable
    known = reader.get(source)
    if isinstance(known, _NodeTypes):
        return known
    if isinstance(known, Graph):
        return _edge_row(reader, known, int(start), node)
    if not isinstance(known, Array):
        raise Untranslatable
    first = size_of(start)
    if first.is_negative:
        first = known.shape[0] + first
    return reader.array(node, known, first * known.width)


_EDGE_ROWS = ("src", "dst", "type", "position")


def _edge_row(reader: Reader, graph: Graph, row: int, node: Any) -> Array:
    key = ("edge row", graph, row)
    if key not in reader.made:
        made = reader.made[key] = reader.array(node)
        reader.steps.append(CopyEdgeRow(made, graph, _EDGE_ROWS[row]))
    return reader.made[key]


@_handles("aten::unbind")
def _unbind(reader: Reader, node: fx.Node) -> list[Any]:
    a = _arguments(node)
    known = reader.get(a["self"])
    if a["dim"] != 0:
        raise Untranslatable
    values = node.meta["val"]
    if isinstance(known, Graph):
        used: set[Any] = {user.args[1] for user in node.users if user.users}  # pyright: ignore[reportUnhashable]
        return [_edge_row(reader, known, row, v) if row in used else None for row, v in enumerate(values)]
    if not isinstance(known, Array):
        raise Untranslatable
    return [reader.array(v, known, row * known.width) for row, v in enumerate(values)]


@_handles("aten::split_with_sizes", "aten::split", "aten::chunk", "aten::unsafe_split_with_sizes")
def _split(reader: Reader, node: fx.Node) -> list[Array]:
    a = _arguments(node)
    if a["dim"] % a["self"].meta["val"].dim() != 0:
        raise Untranslatable
    known = reader.needs_array(a["self"])
    parts: list[Array] = []
    start: Size = _ZERO
    for value in node.meta["val"]:
        part = reader.array(value, known, start * known.width)
        start = start + part.shape[0]
        parts.append(part)
    return parts


# Copies


@_handles("aten::cat")
def _cat(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    return _joined(reader, node, a["tensors"], a["dim"])


@_handles("aten::stack")
def _stack(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    if a["dim"] % node.meta["val"].dim() != 0:
        raise Untranslatable
    return _joined(reader, node, a["tensors"], 0)


def _joined(reader: Reader, node: fx.Node, tensors: Sequence[fx.Node], dim: int) -> Array:
    dim = dim % node.meta["val"].dim()
    if dim and node.meta["val"].is_floating_point():
        raise Untranslatable  # a form of rows
    arrays = [reader.needs_array(t) for t in tensors]
    arrays = [array for array in arrays if array.shape != (_ZERO,)]  # torch skips these
    made = reader.array(node)
    outer, wide = product(made.shape[:dim]), product(made.shape[dim:])
    pieces: list[Piece] = []
    start: Size = _ZERO
    for array in arrays:
        width = array.elements if dim == 0 else product(array.shape[dim:])
        rows = _ONE if dim == 0 else outer
        pieces.append(Piece(array, _ZERO, width, start, width if dim == 0 else wide, rows, width))
        start = start + width
    reader.steps.append(CopyRows(made, pieces, label_of(node)))
    return made


@_handles("aten::new_zeros", "aten::zeros", "aten::zeros_like", "aten::new_ones", "aten::ones", "aten::ones_like",
          "aten::full", "aten::new_full", "aten::full_like")  # fmt: skip
def _fill(reader: Reader, node: fx.Node) -> Array:
    value: Tensor = node.meta["val"]
    name = node.target._schema.name  # type: ignore[union-attr]
    number = 0 if "zeros" in name else 1 if "ones" in name else _value(_arguments(node)["fill_value"])
    sizes: Any = value.shape  # integers, or symbols of torch
    if all(isinstance(size, int) for size in sizes):
        return reader.constant(torch.full(tuple(value.shape), number, dtype=value.dtype), node.name)
    made = reader.array(node)
    reader.steps.append(Fill(made, number, label_of(node)))
    return made


@_handles("aten::index_select")
def _index_select(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    if a["dim"] % a["self"].meta["val"].dim() != 0:
        raise Untranslatable
    return _gather(reader, node, a["self"], a["index"], wraps=False)


@_handles("aten::embedding")
def _embedding(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    return _gather(reader, node, a["weight"], a["indices"], wraps=False)


@_handles("aten::index")
def _index(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    indices = a["indices"]
    if len(indices) != 1 or indices[0] is None or indices[0].meta["val"].dtype not in (torch.int32, torch.int64):
        raise Untranslatable
    return _gather(reader, node, a["self"], indices[0], wraps=True)


def _gather(reader: Reader, node: fx.Node, source: fx.Node, index: fx.Node, *, wraps: bool) -> Array:
    made = reader.array(node)
    arrays = reader.needs_array(source), reader.needs_array(index)
    reader.steps.append(GatherRows(made, *arrays, wraps, label_of(node)))
    return made


@_handles("aten::scatter_add", "aten::index_add")
def _scatter_add(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    source: Any = a.get("src", a.get("source"))
    if a.get("alpha", 1) != 1:
        raise Untranslatable
    return _scatter(reader, node, a["self"], a["dim"], a["index"], source, "sum", include=True)


@_handles("aten::scatter_reduce")
def _scatter_reduce(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    if a["reduce"] not in ScatterRows.KINDS or (a["reduce"] == "mean" and a["include_self"]):
        raise Untranslatable
    return _scatter(reader, node, a["self"], a["dim"], a["index"], a["src"], a["reduce"], include=a["include_self"])


def _scatter(
    reader: Reader, node: fx.Node, first: fx.Node, dim: int, index: fx.Node, source: fx.Node, reduce: str, *,
    include: bool,
) -> Array:  # fmt: skip
    value: Tensor = node.meta["val"]
    if dim % value.dim() != 0 or value.dtype not in (torch.float32, torch.float64):
        raise Untranslatable
    place = reader.get(index)
    if isinstance(place, _Repeated):
        place = place.index
    elif not isinstance(place, Array) or (len(place.shape) > 1 and index.meta["val"].dim() != 1):
        raise Untranslatable
    made, arrays = reader.array(node), (reader.needs_array(first), reader.needs_array(source))
    reader.steps.append(ScatterRows(made, arrays[0], place, arrays[1], reduce, include, label_of(node)))
    return made


# Functions of rows


@_handles("aten::softmax", "aten::_softmax")
def _softmax(reader: Reader, node: fx.Node) -> Array:
    if node.meta["val"].shape[-1] <= FEW:
        raise Untranslatable
    return _row_function(reader, node, "softmax_rows<false>")


@_handles("aten::log_softmax", "aten::_log_softmax")
def _log_softmax(reader: Reader, node: fx.Node) -> Array:
    return _row_function(reader, node, "softmax_rows<true>")


def _row_function(reader: Reader, node: fx.Node, function: str) -> Array:
    a = _arguments(node)
    source: Tensor = a["self"].meta["val"]
    if a["dim"] % source.dim() != source.dim() - 1 or source.dim() < 2 or a.get("dtype") is not None:
        raise Untranslatable
    known, made = reader.needs_array(a["self"]), reader.array(node)
    rows, width = product(known.shape[:-1]), known.shape[-1]
    reader.steps.append(RowFunction(function, [made], known, rows, width, label_of(node)))
    return made


@_handles("aten::max", "aten::min", "aten::amax", "aten::amin", "aten::argmax", "aten::argmin")
def _extreme(reader: Reader, node: fx.Node) -> Any:
    a = _arguments(node)
    source: Tensor = a["self"].meta["val"]
    dim = a.get("dim")
    dim: Any = dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim
    last = dim is not None and not isinstance(dim, list | tuple) and dim % source.dim() == source.dim() - 1
    if not last or not source.is_floating_point():
        raise Untranslatable
    name = node.target._schema.name.partition("::")[2]  # type: ignore[union-attr]
    function = f"extreme_of_rows<{'1' if 'max' in name else '-1'}>"
    known = reader.needs_array(a["self"])
    rows, width = product(known.shape[:-1]), known.shape[-1]
    if name.startswith("arg"):
        places = reader.array(node)
        reader.steps.append(RowFunction(f"{function}:places", [places], known, rows, width, label_of(node)))
        return places
    if name.startswith("a"):
        made = reader.array(node)
        reader.steps.append(RowFunction(f"{function}:values", [made], known, rows, width, label_of(node)))
        return made
    made = [reader.array(value) for value in node.meta["val"]]
    reader.steps.append(RowFunction(f"{function}:both", made, known, rows, width, label_of(node)))
    return made


@_handles("aten::sum", "aten::mean")
def _sum(reader: Reader, node: fx.Node) -> Array:
    a = _arguments(node)
    source: Tensor = a["self"].meta["val"]
    dims = a.get("dim")
    if dims is None or [d % source.dim() for d in dims] != [0] or not source.is_floating_point():
        raise Untranslatable
    known, made = reader.needs_array(a["self"]), reader.array(node)
    mean = str("mean" in node.target._schema.name).lower()  # type: ignore[union-attr]
    step = RowFunction(f"sum_of_rows<{mean}>", [made], known, known.shape[0], known.width, label_of(node))
    reader.steps.append(step)
    return made


# Conditions


@_handles("aten::_assert_scalar")
def _assert_scalar(reader: Reader, node: fx.Node) -> None:
    condition, text = node.args
    value = _value(condition)
    expr = value if isinstance(value, bool) else value.node.expr
    if isinstance(expr, bool) or expr in (sympy.true, sympy.false):
        return
    own = {symbol for array in reader.inputs for size in array.shape for symbol in size.free_symbols}
    if expr.free_symbols <= own:
        reader.steps.append(CheckSizes(expr, str(text)))


@_handles("aten::sym_constrain_range_for_size", "aten::sym_constrain_range", "aten::_assert_tensor_metadata",
          "aten::_assert_async")  # fmt: skip
def _nothing(reader: Reader, node: fx.Node) -> None:
    return None


def is_constant(array: Array) -> bool:
    """Returns whether an array is the same in all calls."""
    return isinstance(array.owner, Constant)
