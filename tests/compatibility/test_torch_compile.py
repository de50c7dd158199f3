"""Compiled layers within programs of `torch.compile`: for every kind of layer, the values of the original."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.compatibility.comparing import assert_same, every_kind, outcome
from tests.compatibility.kinds import KINDS, Kind, named, outputs

# torch's own tracing warns about parts of torch.
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


COPIED = (
    *("pyg.GATConv", "pyg.HeteroConv-SAGEConv", "pyg.traced-UserLayer", "dgl.GraphConv"),
    *("compile-DGL-forward", "own.RGCN", "compile-program"),
)
"""Kinds of which a deep copy is compiled as well: one for each way that a layer runs in."""


def compiled(kind: Kind, module: nn.Module) -> Any:
    """The module in torch.compile, without breaks, which only graphs of DGL make: torch cannot trace them."""
    whole = kind.name != "compile-DGL-forward" and not kind.name.startswith("dgl")
    return torch.compile(module, fullgraph=whole, backend="aot_eager")


@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:Dynamo does not know")
@every_kind
def test_torch_compile(kind: Kind) -> None:
    original, fast = kind.pair(strict=False)
    model = compiled(kind, fast)
    for _ in range(2):
        assert_same(outcome(kind, model), outcome(kind, original))
    other = copy.deepcopy(fast) if kind.name in COPIED else fast
    with torch.no_grad():
        for parameter in (*other.parameters(), *original.parameters()):
            parameter.mul_(2)
    again = model if other is fast else compiled(kind, other)
    assert_same(outcome(kind, again), outcome(kind, original))


@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:Dynamo does not know")
@pytest.mark.parametrize("kind", [k for k in KINDS if k.name in ("pyg.SAGEConv", "pyg.GCNConv", "own.RGCN")], ids=named)
def test_torch_compile_under_autocast(kind: Kind) -> None:
    original, fast = kind.pair(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = (outputs(m(*kind.arguments(torch.float32)))[0] for m in (original, compiled(kind, fast)))
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
