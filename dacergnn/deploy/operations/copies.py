"""Steps that move rows, or add them up by an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.literals import literal
from dacergnn.deploy.network import Array, Call, ScatterRows
from dacergnn.deploy.operations.table import Repeated, arguments, handles, value_of
from dacergnn.deploy.places import label_of
from dacergnn.deploy.sizes import ZERO, size_of
from dacergnn.frontends.symbolic.expr import Untranslatable


@handles("aten::cat")
def _cat(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    return _joined(builder, node, a["tensors"], a["dim"])


@handles("aten::stack")
def _stack(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    if a["dim"] % node.meta["val"].dim() != 0:
        raise Untranslatable
    return _joined(builder, node, a["tensors"], 0)


def _joined(builder: NetworkBuilder, node: fx.Node, tensors: Sequence[fx.Node], dim: int) -> Array:
    dim = dim % node.meta["val"].dim()
    if dim and node.meta["val"].is_floating_point():
        raise Untranslatable  # a form of rows
    arrays = [builder.needs_array(t) for t in tensors]
    arrays = [array for array in arrays if array.shape != (ZERO,)] or arrays[:1]  # torch skips these
    made = builder.array(node)
    builder.copied(made, arrays, dim, label_of(node))
    return made


@handles("aten::new_zeros", "aten::zeros", "aten::zeros_like", "aten::new_ones", "aten::ones", "aten::ones_like",
          "aten::full", "aten::new_full", "aten::full_like")  # fmt: skip
def _fill(builder: NetworkBuilder, node: fx.Node) -> Any:
    value: Tensor = node.meta["val"]
    name = node.target._schema.name  # type: ignore[union-attr]
    number = 0 if "zeros" in name else 1 if "ones" in name else value_of(arguments(node)["fill_value"])
    if not isinstance(number, int | float):
        raise Untranslatable  # an open size
    sizes: Any = value.shape  # integers, or symbols of torch
    if all(isinstance(size, int) for size in sizes):
        return builder.constant(torch.full(tuple(value.shape), number, dtype=value.dtype), node.name)
    if value.is_floating_point() and all(isinstance(size, int) for size in sizes[1:]):
        return builder.recorder.constant(number, [*map(builder.recorder.number, sizes)], value.dtype)
    return builder.filled(number, value.dtype, *map(size_of, sizes))


@handles("aten::index_select")
def _index_select(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    if a["dim"] % a["self"].meta["val"].dim() != 0:
        raise Untranslatable
    return _gather(builder, node, a["self"], a["index"], wraps=False)


@handles("aten::embedding")
def _embedding(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    return _gather(builder, node, a["weight"], a["indices"], wraps=False)


def gathered(builder: NetworkBuilder, node: fx.Node) -> Array:
    """Copies the rows that the index of a node chooses."""
    a = arguments(node)
    indices = a["indices"]
    if len(indices) != 1 or indices[0] is None or indices[0].meta["val"].dtype not in (torch.int32, torch.int64):
        raise Untranslatable
    return _gather(builder, node, a["self"], indices[0], wraps=True)


def _gather(builder: NetworkBuilder, node: fx.Node, source: fx.Node, index: fx.Node, *, wraps: bool) -> Array:
    made = builder.array(node)
    rows, place, label = builder.needs_array(source), builder.needs_array(index), label_of(node)
    checked = place, place.elements, rows.shape[0], literal(label), str(wraps).lower()
    builder.steps.append(Call("check_index", [], checked, label))
    builder.gather(made, rows, place, label)
    return made


@handles("aten::scatter_add", "aten::index_add")
def _scatter_add(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    source: Any = a.get("src", a.get("source"))
    if a.get("alpha", 1) != 1:
        raise Untranslatable
    return _scatter(builder, node, a["self"], a["dim"], a["index"], source, "sum", include=True)


@handles("aten::scatter_reduce")
def _scatter_reduce(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    if a["reduce"] not in ScatterRows.KINDS or (a["reduce"] == "mean" and a["include_self"]):
        raise Untranslatable
    return _scatter(builder, node, a["self"], a["dim"], a["index"], a["src"], a["reduce"], include=a["include_self"])


def _scatter(
    builder: NetworkBuilder, node: fx.Node, first: fx.Node, dim: int, index: fx.Node, source: fx.Node, reduce: str, *,
    include: bool,
) -> Array:  # fmt: skip
    value: Tensor = node.meta["val"]
    if dim % value.dim() != 0 or value.dtype not in (torch.float32, torch.float64):
        raise Untranslatable
    place = builder.get(index)
    if isinstance(place, Repeated):
        place = place.index
    elif not isinstance(place, Array) or (len(place.shape) > 1 and index.meta["val"].dim() != 1):
        raise Untranslatable
    made, arrays = builder.array(node), (builder.needs_array(first), builder.needs_array(source))
    builder.steps.append(ScatterRows(made, arrays[0], place, arrays[1], reduce, include, label_of(node)))
    return made
