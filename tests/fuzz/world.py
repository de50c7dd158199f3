"""A module of a library and the compiled one, to which the same is done and which have to do the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn import Config
from tests.compatibility.kinds import F
from tests.fuzz.graphs import MEMORY, Graph, GraphCase
from tests.fuzz.layers import FORMS, Layer

_LIMITS_OF_TORCH = ("nference tensor", "derivative for aten::")
"""Words of errors that originals run into, and compiled layers may not."""


@dataclass
class Side:
    """One of the two modules.

    Args:
        module: What is called.
        handles: Hooks on it that can be removed.
    """

    module: nn.Module
    compiled: bool
    handles: list[Any] = field(default_factory=list)

    def become(self, module: nn.Module) -> None:
        """Go on with another module."""
        self.module, self.handles = module, []


class NotComparableError(Exception):
    """Torch refuses to do something with tensors of inference mode to the original: no measure for the compiled one."""


class World:
    """Both modules, and what they are called with."""

    def __init__(self, layer: Layer, options: dict[str, Any], form: str, case: GraphCase, config: Config) -> None:
        self.layer, self.form, self.config = layer, form, config
        self.graph = Graph(case)
        self.graphs = {case: self.graph}
        self.features = 0
        original = layer.original(options)
        self.sides = Side(original, False), Side(layer.compile(layer.original(options), config), True)

    def go_to(self, case: GraphCase) -> None:
        """Call with another graph from now on, one that was there before perhaps."""
        self.graph = self.graphs.setdefault(case, Graph(case))

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any], list[Tensor]]:
        """What a call takes, and the tensors among that which gradients are asked for."""
        nodes, generator = self.graph.nodes, torch.Generator().manual_seed(self.features)
        x, y = (torch.randn(nodes, F, generator=generator, dtype=torch.float64) for _ in range(2))
        leaves = [x, y, self.graph.weights.clone()]
        for leaf in leaves:
            leaf.requires_grad_()
        return *FORMS[self.form](self.graph, *leaves), leaves

    @property
    def trains(self) -> bool:
        """Whether the original knows gradients: torch keeps no edges of inference mode for them, and those that DGL has
        for maxima over no edge are wrong."""
        empty = self.form.startswith("dgl") and self.graph.dgl.num_edges() == 0
        return not empty and self.graph.case.memory != MEMORY[-1]

    def both(self, action: Callable[[Side], Any]) -> None:
        """Do something to both modules; what comes of it has to be the same."""
        expected, found = [self._attempt(action, side) for side in self.sides]
        if isinstance(expected, RuntimeError) and any(limit in str(expected) for limit in _LIMITS_OF_TORCH):
            raise NotComparableError from expected
        same(found, expected)

    def _attempt(self, action: Callable[[Side], Any], side: Side) -> Any:
        torch.manual_seed(0)
        try:
            return action(side)
        except Exception as error:  # whatever a library raises, as its layers do for graphs that they do not take
            return error

    def call(self, side: Side) -> Any:
        """The results of a call, and all gradients."""
        return self.backward(side, side.module)

    def backward(self, side: Side, function: Callable[..., Any]) -> Any:
        """The same for what calls the module; gradients of the call before go."""
        side.module.zero_grad(set_to_none=True)
        return self.accumulate(side, function)

    def accumulate(self, side: Side, function: Callable[..., Any]) -> Any:
        """The same without that, so that gradients add up."""
        args, kwargs, leaves = self.arguments()
        with torch.set_grad_enabled(self.trains):
            results = tensors_of(function(*args, **kwargs))
        loss = loss_of(results)
        if loss.requires_grad:
            loss.backward()
        return results, [x.grad for x in leaves], gradients(side.module)


def gradients(module: nn.Module) -> dict[str, Tensor | None]:
    return {name: p.grad for name, p in module.named_parameters()}


def loss_of(results: list[Tensor]) -> Tensor:
    """A number that all results count for, each of their elements in its own way."""
    loss = torch.zeros((), dtype=torch.float64)
    for result in results:
        if result.is_floating_point():
            factors = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).view(result.shape)
            loss = loss + (result.square() * factors).sum() + (result * factors).sum()
    return loss


def tensors_of(tree: Any) -> list[Tensor]:
    """The dense tensors of a result, whatever structure it has."""
    if isinstance(tree, Tensor):
        tree = getattr(tree, "as_tensor", lambda: tree)()
        return [tree if tree.layout is torch.strided else tree.to_dense()]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple | list) else ()
    return [tensor for item in items for tensor in tensors_of(item)]


def same(found: Any, expected: Any) -> None:
    """AssertionError unless two outcomes are the same: values, which of them are None, whether something is raised."""
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), f"only the original raises {expected!r}"
    elif isinstance(found, Exception):
        raise AssertionError(f"only the compiled module raises {found!r}") from found
    elif isinstance(expected, Tensor):
        assert isinstance(found, Tensor)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9, equal_nan=True)
    elif isinstance(expected, dict):
        assert [*found] == [*expected]
        same([*found.values()], [*expected.values()])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    else:
        assert found == expected
