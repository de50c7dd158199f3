"""What a compiled layer was compiled with, and what is to be told of it."""

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
    """Stands behind a compiled layer, which shares all its attributes with the original and holds nothing else.

    Args:
        original: The layer of the library; its attributes are those of the compiled layer.
    """

    def __init__(self, original: nn.Module, config: Config, graphs: GraphCache, on_unsupported: OnUnsupported) -> None:
        self.original = original
        self.config = config
        self.graphs = graphs
        self.on_unsupported: OnUnsupported = on_unsupported
        self.find_self: Callable[[], nn.Module | None] = lambda: None
        """Returns the module that users call, which hooks are given; None where that is the original."""
        self.follower: nn.Module | None = None
        """The activation that calls of the layer apply, too."""
        self.refusal: str | None = None
        """Why the last uncompiled call ran the original."""
        self.warned: set[str] = set()
        self.compiled: dict[Any, CompiledProgram] = {}
        self.plan_use: LayerUse | None = None if config.plan is None else PlanUse(config.plan).layer()
        """Notes what is asked of the plan, which may be that of a whole model; None if there is no plan."""
        self.captures: Captures | None = Captures(self, self.config.check_graph) if config.cuda_graph else None
        """Calls that are replayed as CUDA graphs; None if none are to be."""

    @property
    def compiled_programs(self) -> dict[Any, CompiledProgram]:
        return self.compiled

    def forget_calls(self) -> None:
        if self.captures is not None:
            self.captures = Captures(self, self.config.check_graph)

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return type(self.original).__name__

    @property
    def is_watched(self) -> bool:
        """Returns whether hooks see the layer's own results."""
        return bool(vars(self.original)["_forward_hooks"])

    @property
    def applied(self) -> Callable[[Any], Any] | None:
        """The activation, where nothing else sees the layer's own results: no hook."""
        return None if self.is_watched else self.follower
