"""Runs one graph that torch has captured, by the networks that its calls have become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx._lazy_graph_module import _LazyGraphModule  # pyright: ignore[reportPrivateUsage]

from dacergnn.config import CheckGraph
from dacergnn.errors import (
    ArrayError,
    DacergnnError,
    GraphError,
    ProgramError,
    UnsupportedCallError,
    UnsupportedMachineError,
)
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.features import is_sparse
from dacergnn.frontends.symbolic import Trace
from dacergnn.frontends.symbolic.callers import failing_line
from dacergnn.frontends.symbolic.edges import EdgeSet, Form
from dacergnn.frontends.symbolic.names import Names
from dacergnn.frontends.symbolic.row_sets import RowSet
from dacergnn.frontends.symbolic.sizes import Number
from dacergnn.frontends.symbolic.steps import plain_sizes
from dacergnn.frontends.symbolic.tape import Tape, Unrepeatable
from dacergnn.graph import HeteroGraph
from dacergnn.modules.autocast import is_autocast
from dacergnn.modules.capture.reading import Reader
from dacergnn.modules.contents import same_numbers
from dacergnn.modules.core import Core
from dacergnn.modules.elements import known_elements
from dacergnn.modules.network import Differs, Network
from dacergnn.modules.runner import FAILURES, Runner
from dacergnn.runtime.cuda_device import random_state, set_random_state

_KEPT = 8
_DENSE = {torch.strided}
_functions_enabled: Any = torch._C._EnableTorchFunction  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


class CapturedGraph(Runner):
    """Runs the calls of a captured graph.

    The first call, and calls that have done something else because of their sizes, are recorded: they make a network.

    Args:
        module: The graph, as torch hands it to a back end.
        core: Holds the options, the graphs and the compiled programs.
    """

    runs_one_program = False

    def __init__(self, module: fx.GraphModule, core: Core) -> None:
        super().__init__(core)
        _LazyGraphModule.force_recompile(module)  # so that an error in it shows none of its code
        self.module = module
        self.reader = Reader(module)
        self.networks: list[tuple[list[float], Network]] = []
        self.problem: str | None = None
        """The reason why some calls run the graph as it is, if they do."""
        self._tries = _KEPT

    @property
    def texts(self) -> list[str]:
        """Returns the networks as text, those of the last call first."""
        return [network.text(self.reader.labels) for _, network in self.networks]

    def __call__(self, *args: Any) -> Any:
        if not self.reader.compiles or is_autocast():
            return self.module.forward(*args)
        leaves = [Number(a) if type(a) is int else a for a in args]
        numbers = [args[i].item() for i in self.reader.numbers]
        for known, network in self.networks:
            if known == numbers and network.fits(leaves):
                try:
                    return self._run(network, leaves, args)
                except Differs:
                    continue
        if not self._tries:
            return self.module.forward(*args)
        self._tries -= 1
        if not self._tries:
            self.problem = (
                f"{_KEPT} calls have done something else each, because of their sizes or numbers; calls unlike these "
                "are not compiled. Pass a number that changes as a tensor."
            )
            self.warn(self.problem)
        return self._recorded(args, leaves, numbers)

    @property
    def check(self) -> CheckGraph:
        """Returns whether integers are compared."""
        return self.core.config.check_graph

    def graph_of(self, form: Form, kept: set[int]) -> HeteroGraph:
        """Returns the graph of some edges; ``kept`` holds the ids of tensors that others keep."""
        return form.find(self.core.graphs, all(id(t) in kept for t in form.tensors))

    def run_program(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the outputs of a program for arrays in the order of its parameters."""
        try:
            compiled = self.compiled(program, arrays[0].dtype, graph)
            if {a.layout for a in arrays} != _DENSE:
                sparse = frozenset([n for n, a in zip(compiled.inputs, arrays, strict=True) if is_sparse(a)])
                compiled = self.compiled(program, arrays[0].dtype, graph, sparse)
            self.core.remember(compiled, graph)
            return compiled(graph, list(arrays))
        except ProgramError as error:  # recorded values may be nested deeper, or have more axes, than those of programs
            raise UnsupportedCallError(str(error)) from error

    def _run(self, network: Network, leaves: list[Any], args: tuple[Any, ...]) -> Any:
        captures = self.core.captures
        if captures is None:
            return network.run(self, leaves, {*map(id, leaves)})
        own = [place for place, node in enumerate(self.reader.inputs) if node in self.reader.paths]
        given = tuple([None if place in own else value for place, value in enumerate(args)])
        parameters = {place: args[place] for place in own}
        again = partial(self._again, network, parameters)
        return captures.run(again, given, {}, [*network.own, *parameters.values()], network)

    def _again(
        self, network: Network, parameters: Mapping[int, Tensor], instead: Mapping[int, Tensor], *given: Any
    ) -> Any:
        values: list[Any] = [parameters.get(place, value) for place, value in enumerate(given)]
        leaves = [Number(v) if isinstance(v, int) else instead.get(id(v), v) for v in values]
        return network.run(self, leaves, {*map(id, leaves)}, instead)

    def _recorded(self, args: tuple[Any, ...], leaves: list[Any], numbers: list[float]) -> Any:
        before = _Before(args)
        tape = Tape([(leaf, ()) for leaf in leaves], self.reader.constants)
        trace = Trace(_Runtime(self, tape, args))
        try:
            with _functions_enabled():  # torch disables them where it has looked into a subclass of tensors
                result = self.reader.run(trace, tape, leaves)
                result = trace.results(result)
            template = tape.template(tuple(result))
        except (DacergnnError, Unrepeatable, *FAILURES) as error:
            before.restore()
            return self._uncompiled(args, error)
        if tape.problem is not None:
            self._tries, self.problem = 0, tape.problem
            self.warn(tape.problem)
            return plain_sizes(tuple(result))
        network = Network(tape, len(leaves), template)
        if network.finds_out_late:
            return plain_sizes(tuple(result))
        others = [(known, n) for known, n in self.networks if known != numbers or not network.widen(n)]
        self.networks = [(numbers, network), *others[: _KEPT - 1]]
        return plain_sizes(tuple(result))

    def _uncompiled(self, args: tuple[Any, ...], error: Exception) -> Any:
        """Runs the graph as it is; later calls do so at once, unless torch cannot run this call either."""
        try:
            result = self.module.forward(*args)
        except Exception:
            if isinstance(error, ArrayError | GraphError):
                raise error from None
            raise
        self._tries = 0
        reason = str(error)
        if not isinstance(error, DacergnnError):
            reason = f"{type(error).__name__}: {error}"
            reason = f"a fault of dacergnn, please report it: {reason} at {failing_line(error)}"
        if self.core.on_unsupported == "error":
            if isinstance(error, UnsupportedMachineError):
                raise error
            raise UnsupportedCallError(f"{self.core.kind} cannot be compiled: {reason}") from error
        self.problem = reason
        self.warn(reason)
        return result


class _Runtime:
    """Finds graphs and runs programs for one call."""

    def __init__(self, owner: CapturedGraph, tape: Tape, args: Sequence[Any]) -> None:
        self.owner = owner
        self.tape: Tape | None = tape
        self.kept = {*map(id, args)}
        self.names: Names = owner.reader.names(owner.core.kind, args)

    def elements(self, device: torch.device) -> tuple[torch.dtype, ...]:
        return known_elements(self.owner.core.config.implementation, device.type)

    def find_graph(self, edges: EdgeSet | RowSet) -> HeteroGraph:
        return edges.find(self.owner.core.graphs, self.kept)

    def run(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.owner.run_program(program, graph, arrays)


class _Before:
    """Holds what a call that fails may have changed: random numbers, and the tensors that it was given."""

    def __init__(self, args: Sequence[Any]) -> None:
        tensors = [a for a in args if isinstance(a, Tensor)]
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._state, self._grad = random_state(self._device), torch.is_grad_enabled()
        self._tensors = [(t, t._version, t.detach().clone()) for t in tensors if not t.is_inference()]

    def restore(self) -> None:
        """Gives them back."""
        torch.set_grad_enabled(self._grad)
        set_random_state(self._device, self._state)
        with torch.no_grad():
            for tensor, version, numbers in self._tensors:  # norms of batches write to buffers without a new version
                if tensor._version != version or not same_numbers(tensor, numbers):
                    tensor.copy_(numbers)
