"""Products of rows with the matrices that their types choose, as `dgl.ops.gather_mm` computes them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.edges import EndIndex
from dacergnn.frontends.symbolic.value import Value
from dacergnn.runtime.transformed import is_fake


def typed_product(rows: Tensor, weights: Tensor, types: Tensor) -> Tensor:
    """Multiplies each row [K] with one of the matrices [T, K, M]; captured graphs hold this as one function."""
    if isinstance(types, EndIndex):
        if types.side == "ntype":
            types.edges.set_rows("src", rows.shape[0])
        value: Any = torch.bmm(rows.unsqueeze(1), weights[types]).squeeze(1)
        operands = tuple([v.node if type(v) is Value else v for v in (rows, weights)])
        call = (typed_product, (*operands, types.plain), {}, None)  # where no program computes it
        return value.owner.record(value.node.expr, value.shape, value.dtype, call)
    if is_fake():  # torch infers the shape
        return rows.new_empty(rows.shape[0], weights.shape[2])
    if isinstance(rows, Value):
        raise UnsupportedCallError("types of rows are neither those of edges nor of nodes.")
    product: Any = import_module("dgl.ops.gather_mm").gather_mm  # a matrix for each row would take much memory
    return product(rows, weights, idx_b=types)
