"""Networks as text: what became of a plain model, and of one that torch computes in part."""

from __future__ import annotations

import math
from inspect import signature

import pytest
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


class Symmetric(nn.Module):
    """Scales by degrees as PyG's GCNConv does, and once more as others do; the norms are computed once."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        for fills in (True, False, True):
            norm = torch.zeros(len(x), dtype=x.dtype).index_add_(0, dst, torch.ones(len(dst), dtype=x.dtype)).pow_(-0.5)
            infinite = norm == math.inf
            if fills:
                norm.masked_fill_(infinite, 0)
            else:
                norm[infinite] = 0.0
            x = torch.zeros_like(x).index_add_(0, dst, x[src] * (norm[src] * norm[dst]).view(-1, 1)).relu()
        return x


TEXTS = {
    "KGIN": """
%8 = sub(edge_type, 1)
%14 = run KGIN(entities, relations, degree dst torch.float64) on \
edges(edge_index, etype %8, entities.size(0), entities.size(0)) against the flow
return (%14)
""",
    "Equivariant": """
%17 = reshape(coordinate.weight, (-1))
%18, %19 = run Equivariant(position, h, edge.0.weight, edge.0.bias, edge.2.weight, edge.2.bias, %17, \
node.0.weight, node.0.bias, node.2.weight, node.2.bias) on \
edges(edge_index, position.size(0), position.size(0)) against the flow
return (%18, %19)
""",
    "Dropped": """
%7 = flip(edge_index, 0)
%8 = cat([edge_index, %7], dim=1)
%11 = run Dropped(x, linear.weight, linear.bias) on edges(%8, x.size(0), x.size(0))
%12 = mean(%11, 0)  # without gradients
%13 = ones_after_dropout((x.size(0), 6), 0.5, dtype=torch.float64, device=device(type='cpu'))
%14 = sub(%11, %12)
%15 = mul(%14, %13)
return (%15)
""",
    "Symmetric": """
%7 = run Symmetric(x, degree dst torch.float64) on edges(edge_index, x.size(0), x.size(0))
return (%7)
""",
}

MODELS_HERE = {"Dropped": Dropped, "Symmetric": Symmetric}


@pytest.mark.parametrize("name", TEXTS)
def test_networks_as_text(name: str) -> None:
    (text,) = texts({**MODELS, **MODELS_HERE}[name]())
    assert f"\n{text}\n" == TEXTS[name]
