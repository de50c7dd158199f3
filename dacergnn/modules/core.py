"""Holds the options and the state of a compiled layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from dacergnn.config import Config, OnUnsupported
from dacergnn.graph import HeteroGraph
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.plan_use import LayerUse, PlanUse


class Core(RunsPrograms):
    """Holds the state of a compiled layer, which shares all its attributes with the original.

    Args:
        original: The layer of the library, whose attributes the compiled layer shares.
    """

    def __init__(self, original: nn.Module, config: Config, graphs: GraphCache, on_unsupported: OnUnsupported) -> None:
        super().__init__(config)
        self.original = original
        self.graphs = graphs
        self.on_unsupported: OnUnsupported = on_unsupported
        self.find_self: Callable[[], nn.Module | None] = lambda: None
        """Returns the module that users call and that hooks receive; None if it is the original."""
        self.warned: set[str] = set()
        self.plan_use: LayerUse | None = None if config.plan is None else PlanUse(config.plan).layer()
        """Notes the questions to the plan, which may belong to a whole model; None if there is no plan."""

    @property
    def kind(self) -> str:
        return type(self.original).__name__

    @property
    def _shares_plan(self) -> bool:
        return self.plan_use is not None

    def _like(self, graph: HeteroGraph) -> HeteroGraph:
        return self.graphs.like(graph)
