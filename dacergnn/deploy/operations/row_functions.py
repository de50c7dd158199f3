"""Steps that apply functions to whole rows, or reduce over all rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import Array, Call
from dacergnn.deploy.operations.table import arguments, handles
from dacergnn.deploy.places import label_of
from dacergnn.deploy.sizes import product, size_of
from dacergnn.frontends.symbolic.call import FEW
from dacergnn.frontends.symbolic.expr import Untranslatable


@handles("aten::softmax", "aten::_softmax")
def _softmax(builder: NetworkBuilder, node: fx.Node) -> Array:
    if node.meta["val"].shape[-1] <= FEW:
        raise Untranslatable
    return _row_function(builder, node, "softmax_rows<false>")


@handles("aten::log_softmax", "aten::_log_softmax")
def _log_softmax(builder: NetworkBuilder, node: fx.Node) -> Array:
    return _row_function(builder, node, "softmax_rows<true>")


def _row_function(builder: NetworkBuilder, node: fx.Node, function: str) -> Array:
    a = arguments(node)
    source: Tensor = a["self"].meta["val"]
    if a["dim"] % source.dim() != source.dim() - 1 or source.dim() < 2 or a.get("dtype") is not None:
        raise Untranslatable
    known, made = builder.needs_array(a["self"]), builder.array(node)
    _each_row(builder, node, function, [made], known)
    return made


def _each_row(builder: NetworkBuilder, node: fx.Node, function: str, made: list[Array], known: Array) -> None:
    given = known, product(known.shape[:-1]), known.shape[-1]
    builder.steps.append(Call(function, made, given, label_of(node)))


@handles("aten::max", "aten::min", "aten::amax", "aten::amin", "aten::argmax", "aten::argmin")
def _extreme(builder: NetworkBuilder, node: fx.Node) -> Any:
    a = arguments(node)
    source: Tensor = a["self"].meta["val"]
    dim = a.get("dim")
    dim: Any = dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim
    last = dim is not None and not isinstance(dim, list | tuple) and dim % source.dim() == source.dim() - 1
    if not last or not source.is_floating_point():
        raise Untranslatable
    name = node.target._schema.name.partition("::")[2]  # type: ignore[union-attr]
    function = f"extreme_of_rows<{'1' if 'max' in name else '-1'}>"
    shape = [size_of(size) for size in tree_leaves(node.meta["val"])[0].shape]
    known = builder.needs_array(a["self"])
    made = [builder.new_array(dtype, *shape) for dtype in (known.dtype, torch.int64)]
    _each_row(builder, node, function, made, known)
    return made[1] if name.startswith("arg") else made[0] if name.startswith("a") else made


@handles("aten::sum", "aten::mean")
def _sum(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    source: Tensor = a["self"].meta["val"]
    dims = a.get("dim")
    if dims is None or [d % source.dim() for d in dims] != [0] or not source.is_floating_point():
        raise Untranslatable
    known, made = builder.needs_array(a["self"]), builder.array(node)
    mean = str("mean" in node.target._schema.name).lower()  # type: ignore[union-attr]
    given = known, known.shape[0], known.width
    builder.steps.append(Call(f"sum_of_rows<{mean}>", [made], given, label_of(node)))
    return made
