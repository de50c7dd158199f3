"""Faults of this package are told from what calls cannot do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import dacergnn
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic import trace
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.modules.capture.captured_graph import CapturedGraph

TRACE = str(trace.__file__)
X, EDGES = torch.randn(7, 4), torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0], [1, 2, 3, 4, 5, 6, 0, 3]])


class Own(MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x)).tanh()

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


def test_a_fault_of_the_recorder_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("def materialise(*_, **__):\n    return {}['out']", TRACE, "exec")
    names: dict[str, Any] = {}
    exec(code, names)  # as a line of the recorder's file
    monkeypatch.setattr(Trace, "materialise", names["materialise"])
    original = Own()
    with pytest.warns(UserWarning, match=r"a fault of dacergnn, please report it: KeyError: 'out'"):
        found = dacergnn.optimize(original)(X, EDGES)
    torch.testing.assert_close(found, original(X, EDGES))
    with pytest.raises(UnsupportedCallError, match="a fault of dacergnn"):
        dacergnn.optimize(original, on_unsupported="error")(X, EDGES)


class Divided(nn.Module):
    """Is captured in two graphs: torch divides it where it is told to."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        h = torch.zeros_like(x).index_add(0, dst, x[src])
        torch._dynamo.graph_break()
        return torch.zeros_like(x).index_add(0, dst, h.tanh()[src])


def test_a_fault_after_a_part_has_run_is_none_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that shows it runs as it is, since the call cannot begin again."""
    read: Any = CapturedGraph.__init__

    def once(self: CapturedGraph, *args: Any) -> None:
        monkeypatch.setattr(CapturedGraph, "__init__", fail)
        read(self, *args)

    def fail(*_: Any) -> None:
        raise KeyError("part")

    original = Divided()
    fast = dacergnn.optimize(original)
    monkeypatch.setattr(CapturedGraph, "__init__", once)
    with pytest.warns(UserWarning, match=r"a fault of dacergnn, please report it: KeyError\('part'\)"):
        found = fast(X, EDGES)
    torch.testing.assert_close(found, original(X, EDGES))
    torch.testing.assert_close(fast(2 * X, EDGES), original(2 * X, EDGES))
