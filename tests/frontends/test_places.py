"""Operators of a recorded layer lead to the lines of the layer's own code."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.program import Program

pytest.importorskip("torch_geometric")
from torch_geometric.nn import MessagePassing


class Gated(MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.value, self.gate = nn.Linear(4, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.value(x)
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        pairs = torch.cat([x_i, x_j], dim=-1)
        gate = self.gate(pairs)
        return torch.sigmoid(gate) * x_j


def test_products_within_a_message_have_their_own_lines() -> None:
    fast = dacergnn.optimize(Gated())
    fast(torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 1, 4, 0]]))
    call = compiled_parts(fast)[0].part.last_call
    assert call is not None
    lines = [
        linecache.getline(place.file, place.line).strip()
        for operator in Program(call[0].sdfg).operators
        if (place := operator.statements[0].place) is not None
    ]
    assert list(dict.fromkeys(lines)) == [
        "x = self.value(x)",
        "pairs = torch.cat([x_i, x_j], dim=-1)",
        "gate = self.gate(pairs)",
        "return torch.sigmoid(gate) * x_j",
    ]
