"""Holds the options and the state of a compiled layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from dacergnn.config import Config, OnUnsupported
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.captured import Captures
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.plan_use import LayerUse, PlanUse


class Core(RunsPrograms):
    """Holds the state of a compiled layer, which shares all its attributes with the original.

    Args:
        original: The layer of the library, whose attributes the compiled layer shares.
    """

    def __init__(self, original: nn.Module, config: Config, graphs: GraphCache, on_unsupported: OnUnsupported) -> None:
        self.original = original
        self.config = config
        self.graphs = graphs
        self.on_unsupported: OnUnsupported = on_unsupported
        self.find_self: Callable[[], nn.Module | None] = lambda: None
        """Returns the module that users call and that hooks receive; None if it is the original."""
        self.warned: set[str] = set()
        self.compiled: dict[Any, CompiledProgram] = {}
        self.plan_use: LayerUse | None = None if config.plan is None else PlanUse(config.plan).layer()
        """Notes the questions to the plan, which may belong to a whole model; None if there is no plan."""
        self.captures: Captures | None = Captures(self, self.config.check_graph) if config.cuda_graph else None
        """The calls that are replayed as CUDA graphs; None without ``cuda_graph``."""

    @property
    def compiled_programs(self) -> dict[Any, CompiledProgram]:
        return self.compiled

    def forget_calls(self) -> None:
        if self.captures is not None:
            self.captures = Captures(self, self.config.check_graph)

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return type(self.original).__name__
