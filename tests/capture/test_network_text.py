"""Networks as text: what became of a plain model, and of one that torch computes in part."""

from __future__ import annotations

from inspect import signature

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.graph_forward import compiled_forwards
from tests.capture.plain_models import MODELS, WIDTH, arguments


def texts(model: nn.Module) -> list[str]:
    fast = dacergnn.optimize(model.double(), on_unsupported="error")
    named = arguments(30, 90)
    fast(*[named[name] for name in signature(model.forward).parameters])
    (forward,) = compiled_forwards(fast)
    assert isinstance(forward, CapturedForward)
    return [text for graph in forward.graphs for text in graph.texts]


class Dropped(nn.Module):
    """Sums neighbours, then takes their mean without gradients, and drops some."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        both = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        h = torch.zeros_like(x).index_add_(0, both[1], self.linear(x)[both[0]])
        with torch.no_grad():
            mean = h.mean(0)
        return F.dropout(h - mean, 0.5, self.training)


def test_a_model_that_becomes_one_program() -> None:
    assert texts(MODELS["MeshGraphNet"]()) == [
        """%26, %27 = run MeshGraphNet(x, e, edges.0.0.weight, edges.0.0.bias, edges.0.2.weight, edges.0.2.bias)"""
    ]


def test_a_model_that_torch_computes_in_part() -> None:
    assert texts(Dropped()) == [""]
