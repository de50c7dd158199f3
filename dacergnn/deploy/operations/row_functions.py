"""Steps that apply functions to whole rows, or reduce over all rows."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.network import Array, RowFunction
from dacergnn.deploy.operations.table import arguments, handles
from dacergnn.deploy.places import label_of
from dacergnn.deploy.sizes import product
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
    rows, width = product(known.shape[:-1]), known.shape[-1]
    builder.steps.append(RowFunction(function, [made], known, rows, width, label_of(node)))
    return made


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
    known = builder.needs_array(a["self"])
    rows, width = product(known.shape[:-1]), known.shape[-1]
    if name.startswith("arg"):
        places = builder.array(node)
        builder.steps.append(RowFunction(f"{function}:places", [places], known, rows, width, label_of(node)))
        return places
    if name.startswith("a"):
        made = builder.array(node)
        builder.steps.append(RowFunction(f"{function}:values", [made], known, rows, width, label_of(node)))
        return made
    made = [builder.array(value) for value in node.meta["val"]]
    builder.steps.append(RowFunction(f"{function}:both", made, known, rows, width, label_of(node)))
    return made


@handles("aten::sum", "aten::mean")
def _sum(builder: NetworkBuilder, node: fx.Node) -> Array:
    a = arguments(node)
    source: Tensor = a["self"].meta["val"]
    dims = a.get("dim")
    if dims is None or [d % source.dim() for d in dims] != [0] or not source.is_floating_point():
        raise Untranslatable
    known, made = builder.needs_array(a["self"]), builder.array(node)
    mean = str("mean" in node.target._schema.name).lower()  # type: ignore[union-attr]
    step = RowFunction(f"sum_of_rows<{mean}>", [made], known, known.shape[0], known.width, label_of(node))
    builder.steps.append(step)
    return made
