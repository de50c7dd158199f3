"""Operations that show an array in another shape, or a part of it."""

from __future__ import annotations

from typing import Any

import sympy
from torch import fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import Array, Graph
from dacergnn.deploy.operations.table import NodeTypes, Repeated, arguments, handles, value_of
from dacergnn.deploy.places import label_of
from dacergnn.deploy.sizes import ONE, ZERO, Size, size_of
from dacergnn.frontends.symbolic.expr import Untranslatable
from dacergnn.frontends.symbolic.value import Value


@handles(
    "aten::view", "aten::reshape", "aten::_unsafe_view", "aten::flatten", "aten::unsqueeze", "aten::squeeze",
    "aten::clone", "aten::contiguous", "aten::detach", "aten::detach_", "aten::alias", "aten::lift_fresh_copy",
    "aten::dropout", "aten::_to_copy", "aten::to", "aten::view_as",
)  # fmt: skip
def _same(builder: NetworkBuilder, node: fx.Node) -> Any:
    """Shows an array in another shape, or as it is."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    value, own = node.meta["val"], source.meta["val"]
    if value.dtype != own.dtype or arguments(node).get("train", False):
        raise Untranslatable
    known = builder.known[source]
    if type(known) is Value and [*map(size_of, value.shape)] == [*map(size_of, own.shape)]:
        return known
    known = builder.get(source)
    if isinstance(known, NodeTypes | Graph | Repeated):
        return known
    if not isinstance(known, Array):
        raise Untranslatable
    return builder.array(node, known, ZERO)


@handles("aten::expand")
def _expand(builder: NetworkBuilder, node: fx.Node) -> Repeated:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    own, value = source.meta["val"], node.meta["val"]
    if own.is_floating_point() or own.dim() != value.dim() or own.dim() != 2 or own.shape[1] != 1:
        raise Untranslatable
    return Repeated(builder.needs_array(source))


@handles("aten::select")
def _select(builder: NetworkBuilder, node: fx.Node) -> Any:
    a = arguments(node)
    place = value_of(a["index"])
    return _part(builder, node, a["self"], a["dim"], place, None)


@handles("aten::narrow")
def _narrow(builder: NetworkBuilder, node: fx.Node) -> Any:
    a = arguments(node)
    return _part(builder, node, a["self"], a["dim"], value_of(a["start"]), value_of(a["length"]))


@handles("aten::slice")
def _slice(builder: NetworkBuilder, node: fx.Node) -> Any:
    a = arguments(node)
    size = a["self"].meta["val"].shape[a["dim"]]
    start, end = value_of(a["start"]) or 0, value_of(a["end"])
    if a["step"] != 1:
        raise Untranslatable
    rows = node.meta["val"].shape[a["dim"]]
    if isinstance(start, int) and start == 0 and (end is None or end is size or rows is size or rows == size):
        return _same(builder, node)
    if isinstance(start, int) and start < 0:
        start = size + start
    return _part(builder, node, a["self"], a["dim"], start, rows)


def _part(builder: NetworkBuilder, node: fx.Node, source: fx.Node, dim: int, start: Any, length: Any) -> Any:
    """Shows rows of an array, or drops the row axis if there is no ``length``."""
    if dim % source.meta["val"].dim() != 0:
        raise Untranslatable
    known = builder.get(source)
    if isinstance(known, NodeTypes):
        return known
    if isinstance(known, Graph):
        return builder.edge_row(known, int(start))
    if not isinstance(known, Array):
        raise Untranslatable
    first = size_of(start)
    if first.is_negative:
        first = known.shape[0] + first
    count = ONE if length is None else size_of(length)
    _check_part(builder, node, first, first + count, known)
    return builder.array(node, known, first * known.width)


def _check_part(builder: NetworkBuilder, node: fx.Node, first: Size, stop: Size, known: Array) -> None:
    """Adds the condition that rows ``first`` to ``stop`` are among those of an array, unless that is clear."""
    # torch takes its symbols for positive, but sizes may be 0.
    symbols = (first + stop + known.shape[0]).free_symbols
    plain = {symbol: sympy.Symbol(str(symbol), integer=True, nonnegative=True) for symbol in symbols}
    begin, end, rows = (size.xreplace(plain) for size in (first, stop, known.shape[0]))
    fits = sympy.And(sympy.Ge(begin, 0), sympy.Le(begin, end), sympy.Le(end, rows))
    if fits != sympy.true:
        builder.check_sizes(fits, f"rows {first} to {stop} of {known.shape[0]} in {label_of(node)}")


@handles("aten::unbind")
def _unbind(builder: NetworkBuilder, node: fx.Node) -> list[Any]:
    a = arguments(node)
    known = builder.get(a["self"])
    if a["dim"] != 0:
        raise Untranslatable
    values = node.meta["val"]
    if isinstance(known, Graph):
        used: set[Any] = {user.args[1] for user in node.users if user.users}  # pyright: ignore[reportUnhashable]
        return [builder.edge_row(known, row) if row in used else None for row in range(len(values))]
    if not isinstance(known, Array):
        raise Untranslatable
    return [builder.array(v, known, row * known.width) for row, v in enumerate(values)]


@handles("aten::split_with_sizes", "aten::split", "aten::chunk", "aten::unsafe_split_with_sizes")
def _split(builder: NetworkBuilder, node: fx.Node) -> list[Array]:
    a = arguments(node)
    if a["dim"] % a["self"].meta["val"].dim() != 0:
        raise Untranslatable
    known = builder.needs_array(a["self"])
    parts: list[Array] = []
    start: Size = ZERO
    for value in node.meta["val"]:
        part = builder.array(value, known, start * known.width)
        _check_part(builder, node, start, start + part.shape[0], known)
        start = start + part.shape[0]
        parts.append(part)
    return parts
