"""Runs calls of a layer that has a front end: one program, whose arrays the front end names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dacergnn.errors import ArrayError, UnsupportedCallError, UnsupportedMachineError
from dacergnn.frontends import Binding, Frontend
from dacergnn.frontends.missing_gradients import Reached
from dacergnn.frontends.parameters import Parameters
from dacergnn.graph import HeteroGraph
from dacergnn.graph.traced import encodings_of
from dacergnn.modules.arrivals import is_collecting
from dacergnn.modules.autocast import ResultTypes, autocast_type, is_autocast, with_types, without_autocast
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.core import Core
from dacergnn.modules.elements import cast, with_parameters
from dacergnn.modules.exported import run_traced
from dacergnn.modules.known_call import Repeated, run
from dacergnn.modules.layer_activations import Activated
from dacergnn.modules.runner import Runner
from dacergnn.modules.signature import CallSignature

_Mode = tuple[bytes, bool]
"""A mode says which parts of the layer are in training, and whether gradients are on."""
_ATTEMPTS = 8
"""The number of calls of a mode that are noted until one is repeated, or the layer changes."""


class FrontendRunner(Runner):
    """Takes the arguments of the original and returns its results, computed by the program that ``frontend`` gives.

    A call that the program does not cover runs the original, with a warning once.
    """

    def __init__(self, core: Core, frontend: Frontend) -> None:
        super().__init__(core)
        self.frontend = frontend
        self._training = b""
        self._generation = 0
        """Counts how often tensors of the layer that are not parameters became other objects."""
        self.repeated: dict[_Mode, Repeated] = {}
        """Holds for each mode how a call like the last one runs without being examined."""
        self.attempts: dict[_Mode, int] = {}
        """Counts for each mode the calls that may still be noted; a missing mode has all of them left."""
        self._activated = Activated()
        self._parameters_within: Parameters | None = None
        self._result_types = ResultTypes(core.original)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.run(self.frontend, args, kwargs)

    def run(self, frontend: Frontend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs an eager call through ``frontend``."""
        captures = self.core.captures
        try:
            if captures is None or frontend is not self.frontend or not frontend.repeatable:
                return self._run(frontend, args, kwargs)
            return captures.run(self._captured, args, kwargs, self._own_tensors(), (self._training, self._generation))
        except (UnsupportedCallError, UnsupportedMachineError) as reason:
            return self.refused(reason, args, kwargs)

    def traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of a call that torch.export traces: torch's operations, and an operator for the program.

        Raises:
            UnsupportedCallError: The program does not cover the call.
        """
        frontend = self.frontend
        frontend.edges(*args, **kwargs)
        if not frontend.repeatable:
            raise UnsupportedCallError("calls draw random numbers; export the model after eval().")
        graph = frontend.graph(*args, **kwargs)
        traced = encodings_of(graph)
        assert traced is not None
        binding = self._bind(frontend, graph, args, kwargs)
        if binding.sparse:
            raise UnsupportedCallError(f"{', '.join(binding.sparse)} is sparse; pass dense features to torch.export.")
        compiled = self.compiled(binding.program, binding.dtype, graph)
        reached = None if binding.results is None else Reached(binding.results)
        if binding.assemble is not None:
            arrays = binding.assemble(binding.parts, lambda *_: None)
        else:
            arrays = {name: array.contiguous() for name, array in binding.arrays.items()}
            arrays |= {name: function(arrays[name]) for name, function in binding.made.items()}
            if binding.stacks is not None:
                arrays |= binding.stacks.arrays(binding.parts)
        outputs = run_traced(compiled, traced, [arrays[name] for name in compiled.inputs])
        return binding.finish(outputs) if reached is None else binding.finish(outputs, reached)

    def forget_calls(self) -> None:
        super().forget_calls()
        self.repeated, self.attempts = {}, {}

    def _captured(self, instead: Mapping[int, Tensor], *args: Any, **kwargs: Any) -> Any:
        frontend = self.frontend
        if instead:
            named = frontend.module.named_parameters(remove_duplicate=False)
            frontend = frontend.of(with_parameters(frontend.module, {n: instead.get(id(p), p) for n, p in named}))
        return self._run(frontend, args, kwargs)

    def _own_tensors(self) -> list[Tensor]:
        """Returns the parameters and the buffers of the layer."""
        parameters = self._parameters_within
        if parameters is None:
            paths = [tuple(name.split(".")) for name, _ in self.original.named_parameters()]
            parameters = self._parameters_within = Parameters(self.original, paths)
        return [*parameters.read(self.original), *self.original.buffers()]

    def renew(self, training: bytes, *, same_tensors: bool) -> None:
        self._training = training
        if not same_tensors:
            self.attempts = {}
            self._generation += 1
        self.repeated = {mode: call for mode, call in self.repeated.items() if same_tensors and call.renewed()}

    def _run(self, frontend: Frontend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_collecting() is not None:
            return self._collected(frontend, args, kwargs)
        own = frontend is self.frontend
        mode = self._training, torch.is_grad_enabled()
        last = self.repeated.get(mode) if own else None
        leaves = None if last is None else last.signature.leaves(args, kwargs)
        autocast = is_autocast()
        if last is not None and leaves is not None and last.settled and not autocast:
            tensors = last.tensors(leaves)
            if tensors is not None:
                self.attempts.pop(mode, None)
                self.core.remember(last.compiled, last.graph)
                return run(last.compiled, last.graph, tensors, last.binding)
        graph = self.find_graph(frontend, args, kwargs)
        if autocast:
            return self._autocast(frontend, graph, args, kwargs)
        binding = self._bind(frontend, graph, args, kwargs)
        compiled = self.compiled(binding.program, binding.dtype, graph, binding.sparse)
        if own and (binding.repeats or binding.reshapes) and not binding.sparse:
            repeated = self._noted(mode, args, kwargs, graph, compiled, binding, None if leaves is None else last)
            if repeated is not None:
                self.repeated[mode] = repeated
            else:
                self.repeated.pop(mode, None)
        return self._execute(binding, graph, compiled)

    def _collected(self, frontend: Frontend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Encodes the graph of a call, and returns zeros."""
        self.find_graph(frontend, args, kwargs)
        try:
            shape = frontend.result(*args, **kwargs)
        except UnsupportedCallError:  # nobody but the layer knows what it returns
            return self.uncompiled(*args, **kwargs)
        return _zeros(shape, (args, kwargs))

    def _noted(
        self,
        mode: _Mode,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        graph: HeteroGraph,
        compiled: CompiledProgram,
        binding: Binding,
        before: Repeated | None,
    ) -> Repeated | None:
        """Returns how to repeat a call; None if graphs alternate, or if notes, which take time, have been useless.

        Args:
            before: The notes on an earlier call, if this one is like it.
        """
        core = self.core
        left = self.attempts.get(mode, _ATTEMPTS)
        if left == 0 or core.last_call is None or core.last_call[1] is not graph:
            return None
        self.attempts[mode] = left - 1
        if before is not None and before.compiled is compiled:
            return before.settle(binding)
        check = core.config.check_graph
        signature = CallSignature.of(args, kwargs, check)
        leaves = None if signature is None else signature.leaves(args, kwargs)
        if signature is None or leaves is None:
            return None
        repeated = Repeated(signature, leaves, self.original, graph, compiled, binding)
        if not repeated.possible:
            return None
        if repeated.unused:
            # Kept tensors may depend on the numbers in features that the program does not take.
            repeated.signature = CallSignature(args, kwargs, check, repeated.unused)
        return repeated

    def _autocast(self, frontend: Frontend, graph: HeteroGraph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call under autocast: casts arguments and parameters to one type, with gradients through the casts."""
        module = frontend.module
        own = next((p.dtype for p in module.parameters()), None)
        types = self._result_types.of(args, kwargs)
        dtype = None if own is None else autocast_type(graph.device, self.core.config, own)
        if dtype is not None:
            args, kwargs = cast((args, kwargs), dtype)
        if dtype is not None and dtype is not own:
            named = module.named_parameters(remove_duplicate=False)
            frontend = frontend.of(with_parameters(module, {n: p.to(dtype) for n, p in named}))
        with without_autocast():
            binding = self._bind(frontend, graph, args, kwargs)
            compiled = self.compiled(binding.program, binding.dtype, graph, binding.sparse)
            return with_types(self._execute(binding, graph, compiled), types)

    def _bind(self, frontend: Frontend, graph: HeteroGraph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Binding:
        binding = frontend.bind(graph, *args, **kwargs)
        _check_types(binding)
        return binding if binding.activation is None else self._activated.bind(binding, binding.activation)

    def find_graph(self, frontend: Frontend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HeteroGraph:
        """Returns the graph of a call, encoded unless it was seen before."""
        try:
            key = frontend.edges(*args, **kwargs)
        except TypeError:
            type(self.original).forward(self.original, *args, **kwargs)  # Python's error names the argument
            raise
        graphs = self.core.graphs
        if key is None:
            return graphs.encode(lambda: frontend.graph(*args, **kwargs))
        return graphs.find(frontend.graph_owner(), key, lambda: frontend.graph(*args, **kwargs))

    def _execute(self, binding: Binding, graph: HeteroGraph, compiled: CompiledProgram) -> Any:
        self.core.remember(compiled, graph)
        tensors, made = binding.tensors(compiled.inputs)
        for slot, function in made:
            tensors[slot] = function(tensors[slot])
        result = run(compiled, graph, tensors, binding)
        self.check_plan()
        return result


def _zeros(shape: Any, arguments: Any) -> Any:
    """Returns zeros of the shapes in a structure, with the type and the device of the features in ``arguments``."""
    if isinstance(shape, dict):
        return {name: _zeros(own, arguments) for name, own in shape.items()}
    if isinstance(shape, list):
        return tuple([_zeros(own, arguments) for own in shape])
    if shape is None:
        return None
    like = next(t for t in tree_leaves(arguments) if isinstance(t, Tensor) and t.is_floating_point())
    return torch.zeros(shape, dtype=like.dtype, device=like.device)


def _check_types(binding: Binding) -> None:
    """Raises ArrayError unless all arrays have one element type, before anything is built for them."""
    types = {array.dtype for array in (*binding.arrays.values(), *binding.parts)}
    if len(types) == 1:
        return
    weights = binding.dtype
    for name, array in (*binding.arrays.items(), *zip(binding.names, binding.parts, strict=False)):
        if array.dtype is not weights:
            raise ArrayError(name, f"has dtype {array.dtype}, but the layer has {weights}; use .to({weights})")
    for stack, parts in binding.stacks.split(binding.parts) if binding.stacks is not None else ():
        for number, part in enumerate(parts):
            if part.dtype is not weights:
                name = f"part {number} of {', '.join(stack.names)}"
                raise ArrayError(name, f"has dtype {part.dtype}, but the layer has {weights}; use .to({weights})")
