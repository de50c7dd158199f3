"""Base of modules that take a `HeteroGraph`: compiled programs, registration, pickles, initial values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.config import Config
from dacergnn.errors import ArrayError
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.features import is_sparse
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import check_kernels
from dacergnn.graph.traced import encodings_of
from dacergnn.modules.autocast import autocast_type, is_autocast
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.elements import cast, with_parameters
from dacergnn.modules.exported import run_traced
from dacergnn.modules.torch_operator import operator_outputs, register_layer
from dacergnn.modules.ways.exchange import Exchange, ExchangingGraph
from dacergnn.program import Program, parse
from dacergnn.program.names import sdfg_name
from dacergnn.runtime.transformed import is_recorded

_CALLS = 64
_OF_PROCESS = ("_last", "_writes", "_calls", "captures", "number")
"""Attributes that copies and pickles make anew."""


class GraphLayer(RunsPrograms, nn.Module, ABC):
    """Represents a module that runs a program on the graph and the arrays of each call.

    Subclasses say which program that is, and where its arrays come from.
    """

    def __init__(self, config: Config | None) -> None:
        nn.Module.__init__(self)
        RunsPrograms.__init__(self, config or Config())
        self._register()

    def _register(self) -> None:
        self.number = register_layer(self)
        self._calls: dict[tuple[Any, ...], CompiledProgram] = {}
        """The programs of the last calls, by graph, element type and form of the arrays."""

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in _OF_PROCESS}
        return {**state, "compiled_programs": self.loaded_programs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"compiled_programs": {}, **state})
        self._register()
        self.captures = self._new_captures()

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def original(self) -> GraphLayer:
        """Returns the module that holds the parameters."""
        return self

    @property
    def _options(self) -> tuple[object, ...]:
        """Returns what the program depends on besides the shapes of its arrays; it may be set at any time."""
        return ()

    @property
    @abstractmethod
    def _names(self) -> Sequence[str]:
        """Returns the names of the program's arrays."""

    @abstractmethod
    def _arrays_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> list[Any]:
        """Returns the program's arrays for the inputs of a call, None for those that are not there."""

    @abstractmethod
    def _program_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> ProgramSource:
        """Returns the program for the inputs of a call."""

    def _element_type(self, tensors: Sequence[Tensor]) -> torch.dtype:
        """Returns the type that a call computes in without autocast."""
        return tensors[0].dtype

    def _check(self, graph: HeteroGraph, arrays: Sequence[Any]) -> None:
        """Raises ArrayError with the reason, if it knows more than the kernels why arrays do not fit."""

    @property
    def notes(self) -> list[str | None]:
        """Returns notes on how calls are repeated, and on what processes exchange, for reports."""
        notes = super().notes
        if self.last_call is not None and isinstance(self.last_call[1], ExchangingGraph):
            exchange = self.last_call[0].way(Exchange)
            notes.append(None if exchange is None else exchange.on(self.last_call[1]).summary)
        return notes

    def forget_calls(self) -> None:
        super().forget_calls()
        self._calls.clear()

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

    def compute(self, graph: HeteroGraph, *inputs: Any) -> Any:
        """Returns the result of a call, or the tuple of its results."""
        if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
            outputs = self._eager(graph, *inputs)
        elif torch.compiler.is_compiling() or is_recorded():
            outputs = tuple(operator_outputs(self, (graph, *inputs), {}))
        elif self.captures is None:
            outputs = self._eager(graph, *inputs)
        else:
            own = [p for p in self._parameters.values() if p is not None]
            outputs = self.captures.run(self._captured, (graph, *inputs), {}, own, self.training)
        return outputs[0] if len(outputs) == 1 else outputs

    def _captured(self, instead: Mapping[int, Tensor], *args: Any) -> Any:
        if not instead:
            return self._eager(*args)
        named = self.named_parameters(remove_duplicate=False)
        layer = with_parameters(self, {n: instead.get(id(p), p) for n, p in named})
        result = layer._eager(*args)
        self.remember(*layer.last_call)
        return result

    def _eager(self, graph: HeteroGraph, *inputs: Any) -> tuple[Tensor, ...]:
        """Runs the kernels of a call."""
        arrays, traced = self._arrays_of(graph, inputs), encodings_of(graph)
        tensors = [a for a in arrays if a is not None]
        try:
            dtype = self._element_type(tensors)
            if is_autocast() and (other := autocast_type(graph.device, self.config, dtype)) is not None:
                dtype, arrays = other, [cast(a, other) for a in arrays]
                tensors = [a for a in arrays if a is not None]
            shapes = [None if a is None else (a.shape, a.layout) for a in arrays]
        except (AttributeError, IndexError):
            self._check(graph, arrays)
            raise
        if traced is not None:  # torch.export refuses modules whose attributes change
            return run_traced(self._specialize(dtype, graph, inputs, arrays), traced, tensors)
        call = (graph.key, dtype, *self._options, *shapes)
        compiled = self._calls.get(call)
        if compiled is None:
            compiled = self._specialize(dtype, graph, inputs, arrays)
            if len(self._calls) >= _CALLS:
                self._calls.clear()
            self._calls[call] = compiled
        self.remember(compiled, graph)
        try:
            return compiled(graph, tensors)
        except ArrayError:
            self._check(graph, arrays)  # raises an error that says more
            raise

    def _specialize(
        self, dtype: torch.dtype, graph: HeteroGraph, inputs: Sequence[Any], arrays: Sequence[Any]
    ) -> CompiledProgram:
        """Returns the program for the row shapes of a call."""
        self._check(graph, arrays)
        named = zip(self._names, arrays, strict=True)
        sparse = frozenset([sdfg_name(n) for n, a in named if a is not None and is_sparse(a)])
        return self.compiled(self._program_of(graph, inputs), dtype, graph, sparse)

    def run(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Tensor]:
        """Runs a traced call with the parameters of ``module``."""
        return dict(enumerate(module._eager(*args)))

    def result(self, graph: HeteroGraph, *inputs: Any) -> dict[int, tuple[int, ...]]:
        """Returns the shapes of a call's results, for tracers."""
        program = self._program_of(graph, inputs)
        view = Program(parse(program.source, **dict(program.bindings)))
        return {i: (graph.size(view.space(n)), *view.sdfg.arrays[n].shape[1:]) for i, n in enumerate(view.outputs)}


def check_graph(graph: object) -> None:
    """Raises ArrayError unless this is a graph that there are kernels for."""
    if not isinstance(graph, HeteroGraph):
        kind = type(graph).__name__
        raise ArrayError("graph", f"is a {kind}; make a HeteroGraph of it with from_pyg, from_dgl or from_arrays")
    check_kernels("graph", graph.device)
