"""Base of modules that take a `HeteroGraph`: compiled programs, registration, pickles, initial values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.config import Config
from dacergnn.errors import ArrayError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import check_kernels
from dacergnn.graph.profile import profile_of
from dacergnn.graph.traced import encodings_of
from dacergnn.modules.base import ProgramModule
from dacergnn.modules.captured import Captures
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.elements import with_parameters
from dacergnn.modules.exported import run_traced
from dacergnn.modules.programs import compiled_program
from dacergnn.modules.torch_operator import register_layer
from dacergnn.modules.ways.exchange import Exchange, ExchangingGraph


class GraphLayer(ProgramModule, ABC):
    """Represents a module that runs programs on the graph of each call."""

    _captures: Captures | None
    """The calls that are replayed as CUDA graphs; None without ``cuda_graph``."""
    original: GraphLayer
    number: int

    def __init__(self, config: Config | None) -> None:
        super().__init__()
        self.config = config or Config()
        self._compiled: dict[tuple[Any, ...], CompiledProgram] = {}
        self._register()

    def _register(self) -> None:
        # Traced calls look for these. They are set past nn.Module, which would make the layer its own submodule.
        object.__setattr__(self, "original", self)
        object.__setattr__(self, "number", register_layer(self))
        object.__setattr__(
            self, "_captures", Captures(self, self.config.check_graph) if self.config.cuda_graph else None
        )

    def __getstate__(self) -> dict[str, Any]:
        transient = ("original", "number", "_captures", "_compiled")
        state = {k: v for k, v in super().__getstate__().items() if k not in transient}
        return {**state, "_compiled": self.loaded_programs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_compiled": {}, **state})
        self._register()

    @property
    def notes(self) -> list[str | None]:
        """Returns notes on how calls are repeated, and on what processes exchange, for reports."""
        notes = [] if self._captures is None else [self._captures.summary]
        if self.last_call is not None and isinstance(self.last_call[1], ExchangingGraph):
            exchange = self.last_call[0].way(Exchange)
            notes.append(None if exchange is None else exchange.on(self.last_call[1]).summary)
        return notes

    @property
    def compiled_programs(self) -> dict[Any, CompiledProgram]:
        return self._compiled

    def forget_calls(self) -> None:
        if self._captures is not None:
            object.__setattr__(self, "_captures", Captures(self, self.config.check_graph))

    def reset_parameters(self) -> None:
        """Sets matrices and vectors to Glorot-uniform values, biases to zero, and priors, gates and scalars to one."""
        for name, parameter in self.named_parameters():
            if name == "bias":
                nn.init.zeros_(parameter)
            elif name in ("pri", "skip") or parameter.dim() == 0:
                nn.init.ones_(parameter)
            else:
                rows = parameter.size(-2) if parameter.dim() > 1 else 1
                bound = sqrt(6.0 / (rows + parameter.size(-1)))
                nn.init.uniform_(parameter, -bound, bound)

    @abstractmethod
    def _eager(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernels of a call."""

    def computed(self, compiled: CompiledProgram, graph: HeteroGraph, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Returns the results of a program; while torch.export traces, those of an operator that carries it."""
        traced = encodings_of(graph)
        if traced is not None:
            return run_traced(compiled, traced, inputs)
        self.remember(compiled, graph)
        return compiled(graph, inputs)

    def _run(self, *args: Any) -> Any:
        """Returns the result of a call; replays it if possible."""
        if self._captures is None:
            return self._eager(*args)
        own = [p for p in self._parameters.values() if p is not None]
        return self._captures.run(self._captured, args, {}, own, self.training)

    def _captured(self, instead: Mapping[int, Tensor], *args: Any) -> Any:
        if not instead:
            return self._eager(*args)
        named = self.named_parameters(remove_duplicate=False)
        layer = with_parameters(self, {n: instead.get(id(p), p) for n, p in named})
        result = layer._eager(*args)
        self.remember(*layer.last_call)
        return result

    def compiled(
        self,
        key: tuple[Any, ...],
        graph: HeteroGraph,
        dtype: torch.dtype,
        make: Callable[[], ProgramSource],
        sparse: frozenset[str] = frozenset(),
    ) -> CompiledProgram:
        """Returns the compiled program under ``key``; choices are made for the first graph of its kind."""
        key = (*key, graph.index_dtype, graph.single_typed, graph.device.type, sparse)
        compiled = self._compiled.get(key)
        if compiled is None:
            config, program = self.config.on(graph.device.type), make()
            self.check_loaded(program)
            profile = profile_of(graph, [known.profile for known in self._compiled.values()])
            compiled = compiled_program(program, dtype, graph.index_dtype, config, profile, sparse)
            compiled.title = self.kind
            if encodings_of(graph) is None:  # torch.export refuses modules whose attributes change
                self._compiled[key] = compiled
        return compiled

    def run(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a traced call with the parameters of ``module``."""
        return module.forward(*args, **kwargs)

    @abstractmethod
    def result(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the shapes of a call's results, for tracers."""


def check_graph(graph: object) -> None:
    """Raises ArrayError unless this is a graph that there are kernels for."""
    if not isinstance(graph, HeteroGraph):
        kind = type(graph).__name__
        raise ArrayError("graph", f"is a {kind}; make a HeteroGraph of it with from_pyg, from_dgl or from_arrays")
    check_kernels("graph", graph.device)
