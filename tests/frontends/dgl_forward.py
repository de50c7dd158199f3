"""What the tests of forwards over DGL graphs share: graphs, and the comparison with DGL itself in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dacergnn.frontends.symbolic.steps import ProgramRun
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.graph_forward import compile_forward, compiled_forwards

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
NODES, EDGES, RELATIONS = 9, 24, 3


def small_graph() -> Any:
    """Edges in no order, some twice, and two nodes without any."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, NODES - 2, (2, EDGES), generator=generator)
    return dgl.graph((ends[0], ends[1]), num_nodes=NODES)


def hetero_graph() -> Any:
    generator = torch.Generator().manual_seed(1)

    def edges(sources: int, destinations: int, count: int) -> tuple[Tensor, Tensor]:
        return (
            torch.randint(0, sources, (count,), generator=generator),
            torch.randint(0, destinations, (count,), generator=generator),
        )

    relations = {
        ("paper", "cites", "paper"): edges(6, 6, 14),
        ("author", "writes", "paper"): edges(4, 5, 9),
        ("paper", "has", "topic"): edges(6, 3, 8),
        ("author", "reviews", "paper"): edges(4, 6, 7),
    }
    return dgl.heterograph(relations, num_nodes_dict={"paper": 7, "author": 4, "topic": 3})


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def compared(module: nn.Module, *args: Any) -> CapturedForward:
    """Check values and gradients of a compiled call against the module as it is; what ran is returned."""
    module = module.double()
    plain = copy.deepcopy(module)
    compiled = compile_forward(module, on_unsupported="error")
    ours, theirs = _separate(args), _separate(args)
    found, expected = _tensors(compiled(*ours)), _tensors(plain(*theirs))
    assert len(found) == len(expected) > 0
    assert all(type(t) is Tensor for t in found)
    torch.testing.assert_close(found, expected)
    weights = [torch.randn_like(t) for t in expected]
    for tensors in (found, expected):
        torch.autograd.backward(tensors, weights)
    pairs = [*zip(_tensors(ours), _tensors(theirs), strict=True)]
    pairs += zip(compiled.parameters(), plain.parameters(), strict=True)
    gradients = [(a.grad, b.grad) for a, b in pairs if b.grad is not None]
    assert gradients
    for a, b in gradients:
        torch.testing.assert_close(a, b)
    (layer,) = compiled_forwards(compiled)
    assert layer.core.last_call is not None
    return layer


def programs(layer: Any) -> list[str]:
    """The programs of all calls of a layer."""
    runs = [step for step in layer.steps if isinstance(step, ProgramRun)]
    return [*dict.fromkeys(str(step.program.source) for step in runs)]


def _separate(tree: Any) -> Any:
    """The same arguments with leaves of their own."""
    if isinstance(tree, Tensor) and tree.is_floating_point():
        return tree.clone().requires_grad_()
    if isinstance(tree, dict):
        return {k: _separate(v) for k, v in tree.items()}
    if type(tree) is tuple:
        return tuple(_separate(v) for v in tree)
    return tree


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree] if tree.is_floating_point() else []
    if isinstance(tree, dict):
        return [t for v in tree.values() for t in _tensors(v)]
    return [t for v in tree for t in _tensors(v)] if isinstance(tree, tuple | list) else []
