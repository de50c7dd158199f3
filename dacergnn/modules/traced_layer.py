"""The module that stands in for a layer without a front end: calls are traced, unless they are like one before."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.config import Config, OnUnsupported
from dacergnn.errors import DacergnnError, UnsupportedCallError
from dacergnn.frontends import Program
from dacergnn.frontends.features import is_sparse
from dacergnn.frontends.symbolic import Computed, Tracer
from dacergnn.frontends.symbolic.edges import EdgeSet
from dacergnn.graph import HeteroGraph
from dacergnn.modules.elements import cast, is_autocast, known_elements, without_autocast
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.layer import CompiledLayer
from dacergnn.modules.replay import Attempt, Call, Replays
from dacergnn.runtime.cuda_device import random_state, set_random_state


class TracedLayer(CompiledLayer):
    """Runs the layer's own Python with recorded values; what it asks for is computed by compiled programs.

    Attributes, options and preprocessing of edges are honoured at every call. A call that no program covers runs the
    original, with a warning once (or as ``on_unsupported`` has it); so do calls inside torch.compile.
    """

    replays: Replays

    def __init__(
        self,
        original: nn.Module,
        frontend: Tracer,
        config: Config,
        graphs: GraphCache,
        on_unsupported: OnUnsupported = "warn",
    ) -> None:
        super().__init__(original, frontend, config, graphs, on_unsupported)  # pyright: ignore[reportArgumentType]
        self.__dict__["replays"] = Replays(original, {})

    @property
    def takes_activations(self) -> bool:
        return False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.uncompiled(*args, **kwargs)
        if is_autocast():  # programs are recorded in the type of the parameters
            parameter = next(self.original.parameters(), None)
            if parameter is not None:
                args, kwargs = cast((args, kwargs), parameter.dtype)
            with without_autocast():
                return self._call(args, kwargs)
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        replays = self.replays
        call = Call.of(args, kwargs)
        recording = None if call is None else replays.find(call)
        attempt = None if call is None or recording is not None else replays.attempt(call)
        try:
            if recording is not None and call is not None:
                self.remember(recording.compiled, recording.graph)
                if self._captures is None:
                    return recording.run(call)
                return self._captures.run(recording.again, args, kwargs, recording.tensors, recording)
            runtime = _Runtime(self, {id(a) for a in (*args, *kwargs.values())}, attempt)
            with _as_before(self.original):
                result = self.__dict__["frontend"].call(runtime, args, kwargs)
            if attempt is not None:
                replays.keep(attempt, result)
            return result
        except UnsupportedCallError as reason:
            return self.fall_back(str(reason), args, kwargs)
        except DacergnnError:
            raise
        except Exception as error:
            reason = f"recording the call fails with {type(error).__name__}: {error}"
            return self.fall_back(reason, args, kwargs, expected=False)


class _Runtime:
    """Finds graphs and runs programs for one call."""

    def __init__(self, layer: TracedLayer, given: set[int], attempt: Attempt | None) -> None:
        self.layer = layer
        self.given = given
        self.attempt = attempt

    def takes(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether programs compute with elements of a type on a device."""
        return dtype in known_elements(self.layer.config.implementation or device.type)

    def find_graph(self, edges: EdgeSet) -> HeteroGraph:
        """The graph of some edges, encoded unless it was seen before."""
        if self.attempt is not None:
            self.attempt.edges += edges.tensors
        return edges.find(self.layer.graphs, self.given)

    def run(self, program: Program, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """The outputs of a program for arrays in the order of its parameters."""
        compiled = self.layer.compiled(program, arrays[0].dtype, graph)
        sparse = frozenset([n for n, a in zip(compiled.inputs, arrays, strict=True) if is_sparse(a)])
        if sparse:
            compiled = self.layer.compiled(program, arrays[0].dtype, graph, sparse)
        self.layer.remember(compiled, graph)
        found = compiled(graph, list(arrays))
        if self.attempt is not None:
            self.attempt.runs.append((compiled, graph, torch.is_grad_enabled()))
            self.attempt.shapes += [t.shape for t in found]
        return found

    def computed(self, computed: Computed) -> None:
        """Take note of what has been run."""
        if self.attempt is not None:
            self.attempt.computed.append(computed)

    def looking(self) -> AbstractContextManager[Any]:
        """A context for the layer's own Python, to see what it does besides."""
        return nullcontext() if self.attempt is None else self.attempt.looks

    def once(self, reason: str) -> None:
        """Take note of why the call cannot be repeated by running its program again."""
        if self.attempt is not None:
            self.attempt.problem = self.attempt.problem or reason


@contextmanager
def _as_before(module: nn.Module) -> Generator[None]:
    """Buffers and random numbers as they were if a call that has begun is run by the original after all."""
    if not module.training:
        yield
        return
    device = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    state = random_state(device)
    buffers = [(b, b.clone()) for b in module.buffers()]
    try:
        yield
    except Exception:
        set_random_state(device, state)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        raise
