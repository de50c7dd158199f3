"""The module that stands in for a layer of another library."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.config import Config, OnUnsupported
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends import Binding, Frontend, Program
from dacergnn.frontends.parameters import Parameters
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import Profile
from dacergnn.modules.base import ProgramModule
from dacergnn.modules.captured import Captures
from dacergnn.modules.compiled import CompiledProgram, compiled_program
from dacergnn.modules.elements import autocast_type, cast, is_autocast, with_parameters, without_autocast
from dacergnn.modules.follower import Followed
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.repeated import Repeated
from dacergnn.modules.traced import register_layer, traced_call

log = logging.getLogger("dacergnn.modules")
_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook")


class CompiledLayer(ProgramModule):
    """Takes the arguments of ``original`` and returns its results, computed by compiled programs.

    Parameters, buffers, submodules and hooks are those of the original, under the same names. A call that
    the program does not cover (dropout while training, say) runs the original, with a warning once.
    """

    original: nn.Module
    on_unsupported: OnUnsupported
    refusal: str | None
    """Why the last uncompiled call ran the original."""
    _captures: Captures | None
    """Calls that are replayed as CUDA graphs; None if none are to be."""
    _repeated: Repeated | None
    follower: nn.Module | None
    """The activation that the layer's calls apply, too."""

    def __init__(
        self,
        original: nn.Module,
        frontend: Frontend,
        config: Config,
        graphs: GraphCache,
        on_unsupported: OnUnsupported = "warn",
    ) -> None:
        super().__init__()
        for name, value in original.__dict__.items():
            if name in _SHARED or name.endswith("_hooks") or "_hooks_" in name:
                self.__dict__[name] = value
        self.__dict__.update(
            original=original,
            frontend=frontend,
            config=config,
            graphs=graphs,
            on_unsupported=on_unsupported,
            training=original.training,
            refusal=None,
            _warned=set[str](),
            _repeated=None,
            follower=None,
            _followed=Followed(),
            _captures=Captures(self) if config.cuda_graph else None,
            _compiled=dict[tuple[object, ...], tuple[Program, CompiledProgram]](),
        )
        self.__dict__["number"] = register_layer(self)

    @property
    def kind(self) -> str:
        return type(self.original).__name__

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledLayer:
        original = copy.deepcopy(self.original, memo)
        result = type(self)(original, type(self.frontend)(original), self.config, self.graphs, self.on_unsupported)
        result.__dict__["follower"] = copy.deepcopy(self.follower, memo)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        made_by = (type(self), self.original, type(self.frontend), self.config, self.on_unsupported, self.follower)
        return _restore, made_by

    @property
    def takes_activations(self) -> bool:
        """Whether `follow` may be asked for: hooks would see other results."""
        return not self._forward_hooks

    def follow(self, activation: nn.Module) -> None:
        """Apply an activation to the results of all calls from now on."""
        self.__dict__.update(follower=activation, _repeated=None)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            original = self.__dict__.get("original")
            if original is None or name.startswith("__"):
                raise
            return getattr(original, name)

    def train(self, mode: bool = True) -> CompiledLayer:
        self.original.train(mode)
        return super().train(mode)

    def extra_repr(self) -> str:
        followed = "" if self.follower is None else f" with {self.follower}"
        return f"compiled {type(self.original).__name__}{followed}"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            return self.run(self.frontend, args, kwargs)
        try:
            self.frontend.edges(*args, **kwargs)
        except UnsupportedCallError:
            return self.uncompiled(*args, **kwargs)
        return traced_call(self, args, kwargs)

    def run(self, frontend: Frontend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An eager call through ``frontend``."""
        try:
            if self._captures is None or frontend is not self.frontend or not frontend.repeatable:
                return self._run(frontend, args, kwargs)
            return self._captures.run(self._captured, args, kwargs, self._own_parameters(), self.training)
        except UnsupportedCallError as reason:
            return self.fall_back(str(reason), args, kwargs)

    def _captured(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self.frontend, args, kwargs)

    def _own_parameters(self) -> list[Tensor]:
        found = self.__dict__.get("_parameters_within")
        if found is None:
            paths = [tuple(name.split(".")) for name, _ in self.original.named_parameters()]
            found = self.__dict__["_parameters_within"] = Parameters(self.original, paths)
        return found.read(self.original)

    def _run(self, frontend: Frontend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        autocast = is_autocast()
        own = frontend is self.frontend and not autocast
        last = self._repeated
        if own and last is not None and last.covers(args, kwargs):
            tensors = last.again(*args, **kwargs)
            if tensors[0].dtype is last.compiled.dtype:
                self.remember(last.compiled, last.graph)
                return last.finish(last.compiled.stacked(last.graph, tensors, last.stacks))
        graph = self.find_graph(frontend, args, kwargs)
        if autocast:
            return self._autocast(frontend, graph, args, kwargs)
        binding = self._bind(frontend, graph, args, kwargs)
        sparse = binding.sparse
        compiled = self.compiled(binding.program, binding.dtype, graph, sparse)
        if own and binding.again is not None and not sparse:
            # Noting a call takes time, which it saves where graphs do not take turns.
            same = self.last_call is not None and self.last_call[1] is graph
            self.__dict__["_repeated"] = Repeated.of(graph, compiled, binding, args, kwargs) if same else None
        return self._execute(binding, graph, compiled)

    def _autocast(self, frontend: Frontend, graph: HeteroGraph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call under autocast: arguments and parameters are cast to one type, in which gradients flow back."""
        module = frontend.module
        own = next((p.dtype for p in module.parameters()), None)
        dtype = None if own is None else autocast_type(graph.device, self.config, own)
        if dtype is not None:
            args, kwargs = cast((args, kwargs), dtype)
        if dtype is not None and dtype is not own:
            frontend = copy.copy(frontend)
            frontend.module = with_parameters(module, {n: p.to(dtype) for n, p in module.named_parameters()})
        with without_autocast():
            binding = self._bind(frontend, graph, args, kwargs)
            return self._execute(binding, graph, self.compiled(binding.program, binding.dtype, graph, binding.sparse))

    def _bind(self, frontend: Frontend, graph: HeteroGraph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Binding:
        binding = frontend.bind(graph, *args, **kwargs)
        if binding.activation is None and self.follower is None:
            return binding
        for function in (binding.activation, self.follower):
            if function is not None:
                binding = self._followed.bind(binding, function)
        return binding

    def find_graph(self, frontend: Frontend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HeteroGraph:
        """The graph that a call is about, encoded unless it was seen before."""
        try:
            key = frontend.edges(*args, **kwargs)
        except TypeError:
            self.original.forward(*args, **kwargs)  # names, as Python does, the argument that is too much or missing
            raise
        if key is None:
            return self.graphs.encode(lambda: frontend.graph(*args, **kwargs))
        return self.graphs.find(frontend.graph_owner(), key, lambda: frontend.graph(*args, **kwargs))

    def _execute(self, binding: Binding, graph: HeteroGraph, compiled: CompiledProgram) -> Any:
        self.remember(compiled, graph)
        arrays, stacks = binding.arrays, binding.stacks
        if stacks is None:
            return binding.finish(compiled(graph, [arrays[name] for name in compiled.inputs]))
        tensors = [arrays[name] for name in compiled.inputs if name not in stacks.names]
        return binding.finish(compiled.stacked(graph, [*tensors, *binding.parts], stacks))

    def compiled(
        self, program: Program, dtype: torch.dtype, graph: HeteroGraph, sparse: frozenset[str] = frozenset()
    ) -> CompiledProgram:
        """The compiled form of the program of a call whose arrays ``sparse`` are sparse."""
        index = graph.index_dtype
        # Hashing a program takes longer than a lookup; it is kept, so that its id stays its own.
        key = (id(program), dtype, index, graph.single_typed, graph.device.type, sparse)
        found = self._compiled.get(key)
        if found is None:
            profile = Profile.of(self.graphs.like(graph))
            compiled = compiled_program(program, dtype, index, self.config.on(graph.device.type), profile, sparse)
            found = self._compiled[key] = (program, compiled)
        return found[1]

    def fall_back(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, expected: bool = True) -> Any:
        """Run the original layer; warns once of every reason that was to be expected or turns out to be ours."""
        if expected and self.on_unsupported == "error":
            self.warn(reason)
        try:
            result = self.uncompiled(*args, **kwargs)
        except Exception as error:
            if not expected:
                raise
            raise UnsupportedCallError(f"{self.kind} cannot run this call, compiled or not: {reason}") from error
        self.warn(reason)
        return result

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        """The original's result; the hooks are the same, and run around this call already."""
        result = self.original.forward(*args, **kwargs)
        return result if self.follower is None else self.follower(result)

    def warn(self, reason: str) -> None:
        """Say once of every reason that a call ran the original layer, or raise, as ``on_unsupported`` has it."""
        if self.on_unsupported == "error":
            raise UnsupportedCallError(f"{self.kind} cannot be compiled: {reason}")
        self.__dict__["refusal"] = reason
        if self.on_unsupported == "warn" and reason not in self._warned:
            self._warned.add(reason)
            warnings.warn(f"{self.kind} runs uncompiled: {reason}", stacklevel=7)


def _restore(
    layer: type[CompiledLayer],
    original: nn.Module,
    frontend: Callable[[nn.Module], Any],
    config: Config,
    on_unsupported: OnUnsupported,
    follower: nn.Module | None = None,
) -> CompiledLayer:
    """A layer from its pickle; builds come from the cache, graphs are encoded again."""
    result = layer(original, frontend(original), config, GraphCache(), on_unsupported)
    result.__dict__["follower"] = follower
    return result
