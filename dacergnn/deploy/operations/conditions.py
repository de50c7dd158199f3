"""Conditions on sizes that the model was exported under."""

from __future__ import annotations

import sympy
from torch import fx

from dacergnn.deploy.builder import NetworkBuilder
from dacergnn.deploy.operations.table import handles, value_of


@handles("aten::_assert_scalar")
def _assert_scalar(builder: NetworkBuilder, node: fx.Node) -> None:
    condition, text = node.args
    value = value_of(condition)
    expr = value if isinstance(value, bool) else value.node.expr
    if isinstance(expr, bool) or expr in (sympy.true, sympy.false):
        return
    own = {symbol for array in builder.inputs for size in array.shape for symbol in size.free_symbols}
    if expr.free_symbols <= own:
        builder.check_sizes(expr, str(text))


@handles("aten::sym_constrain_range_for_size", "aten::sym_constrain_range", "aten::_assert_tensor_metadata",
          "aten::_assert_async")  # fmt: skip
def _nothing(builder: NetworkBuilder, node: fx.Node) -> None:
    return None
