"""Faults of the recorder, and of recordings: they are told from what calls cannot do, and no call pays twice."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import dacergnn
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic import trace
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.modules.replay import Recording

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


def test_a_line_that_cannot_be_recorded_is_named() -> None:
    class Sampling(Own):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.propagate(edge_index, x=self.lin(x))
            return h + complex(h.mean().item()).conjugate().strange  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="in forward: `return h \\+ complex"):
        dacergnn.optimize(Sampling(), on_unsupported="error")(X, EDGES)


def test_a_recording_that_fails_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Own()
    fast, runs = dacergnn.optimize(original, on_unsupported="error"), []
    for _ in range(3):
        fast(X, EDGES)
    assert fast.runner.replays._recordings

    def run(*_: Any, **__: Any) -> Any:
        runs.append(1)
        raise RuntimeError("no longer")

    monkeypatch.setattr(Recording, "run", run)
    expected = original(X, EDGES)
    torch.testing.assert_close(fast(X, EDGES), expected)
    assert "one that failed with RuntimeError: no longer, is repeated no more" in " ".join(
        str(dacergnn.explain(fast)).split()
    )
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(fast(X, EDGES), expected)
    assert len(runs) == 1
