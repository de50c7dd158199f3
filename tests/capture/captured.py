"""Holds what tests of captured models share: how they are called, compared, and asked what ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from dacergnn.frontends.symbolic.tape import ProgramRun
from dacergnn.modules.capture.backend import compile_graph
from dacergnn.modules.capture.captured_graph import CapturedGraph
from dacergnn.modules.graph_forward import compiled_forwards
from tests.capture.plain_models import WIDTH, arguments

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


class Sum(nn.Module):
    """Sums transformed neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout, self.slope = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), 0.25

    def forward(self, x: Tensor, edge_index: Tensor, scale: float = 1.0) -> Tensor:
        src, dst = edge_index
        h = self.dropout(self.linear(x))
        return F.leaky_relu(torch.zeros_like(h).index_add_(0, dst, h[src] * scale), self.slope)


def pair(kind: Callable[[], nn.Module], **options: Any) -> tuple[nn.Module, Any]:
    """Returns a module in double precision, and what optimize makes of it."""
    torch.manual_seed(0)
    module = kind().double()
    return module, dacergnn.optimize(module, **{"on_unsupported": "error", **options})


def given(module: Any, nodes: int = 30, edges: int = 90, seed: int = 0) -> list[Any]:
    """Returns arguments of a module; features require gradients."""
    named = arguments(nodes, edges, seed)
    args = [named[name] for name in signature(module.forward).parameters if name in named]
    return [a.clone().requires_grad_() if a.is_floating_point() else a.clone() for a in args]


def outcome(call: Callable[..., Any], args: Sequence[Any], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Returns results of a call, and gradients of features and parameters."""
    results = call(*args)
    results = [*results] if isinstance(results, tuple) else [results]
    leaves = [a for a in (*args, *leaves) if isinstance(a, Tensor) and a.requires_grad]
    return [*results, *torch.autograd.grad(sum(r.square().sum() for r in results), leaves, allow_unused=True)]


def assert_same(fast: Callable[..., Any], module: nn.Module, args: Sequence[Any], seed: int = 0) -> None:
    """Compares values and gradients of a call; both share their parameters."""
    found, expected = [], []
    for call, values in ((fast, found), (module, expected)):
        torch.manual_seed(seed)
        values += outcome(call, args, [*module.parameters()])
    assert_close(found, expected)


def ran(graphs: Sequence[CapturedGraph]) -> bool:
    """Returns whether all recorded calls of captured graphs ran programs, and there are such."""
    networks = [network for graph in graphs for _, network in graph.networks]
    return bool(networks) and all(any(isinstance(s, ProgramRun) for s in n.steps) for n in networks)


def captured(fast: nn.Module) -> list[CapturedGraph]:
    (forward,) = compiled_forwards(fast)
    graphs: list[CapturedGraph] = forward.graphs  # pyright: ignore[reportAttributeAccessIssue]
    return graphs


class Backend:
    """Serves as a back end that keeps the graphs it was given."""

    def __init__(self, **options: Any) -> None:
        self.graphs: list[Any] = []
        self.options = options

    def __call__(self, module: Any, examples: Any) -> Any:
        self.graphs.append(compile_graph(module, examples, options=self.options))
        return self.graphs[-1]
