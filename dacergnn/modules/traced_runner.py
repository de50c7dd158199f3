"""Runs calls of a layer without a front end that torch does not capture: records the layer's own Python each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.errors import DacergnnError, UnsupportedCallError, UnsupportedMachineError
from dacergnn.frontends import ProgramSource
from dacergnn.frontends.linear import has_hooks, observed
from dacergnn.frontends.pyg.traced import MessagePassingTracer
from dacergnn.frontends.symbolic.callers import failing_line, is_own_fault
from dacergnn.frontends.symbolic.edges import EdgeSet, unseen
from dacergnn.frontends.symbolic.names import Names
from dacergnn.frontends.symbolic.row_sets import RowSet
from dacergnn.frontends.symbolic.tape import Tape
from dacergnn.graph import HeteroGraph
from dacergnn.modules.autocast import ResultTypes, is_autocast, with_types, without_autocast
from dacergnn.modules.contents import Contents, as_before
from dacergnn.modules.core import Core
from dacergnn.modules.elements import cast, known_elements
from dacergnn.modules.program_runner import ProgramRunner
from dacergnn.modules.runner import FAILURES, as_both
from dacergnn.modules.user_code import asks_for_ids, compares_identities, compares_types
from dacergnn.runtime.dynamo import skipped_by_dynamo


class TracedRunner(ProgramRunner):
    """Runs the layer's own Python with recorded values; compiled programs compute the values that it asks for.

    Attributes, options and preprocessing of edges are honoured at every call. A call that no program covers runs the
    original, with a warning once (or as ``on_unsupported`` says).
    """

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._tracer = MessagePassingTracer(core.original)
        self._result_types = ResultTypes(core.original)

    @skipped_by_dynamo
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_autocast():  # programs are recorded in the type of the parameters
            parameter = next(self.original.parameters(), None)
            types = self._result_types.known(args, kwargs)
            if types is None:  # nobody may run a user's own forward for its types alone
                return self._result_types.note(args, kwargs, self.uncompiled(*args, **kwargs))
            if parameter is not None:
                args, kwargs = cast((args, kwargs), parameter.dtype)
            with without_autocast():
                return with_types(self._call(args, kwargs), types)
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            _check_hooks(self.original)
            runtime = _Runtime(self, {id(a) for a in (*args, *kwargs.values())}, Names.of(self.original))
            with as_before(self.original, (args, kwargs), (DacergnnError, *FAILURES)) as runtime.before:
                _check_code(runtime.before)
                result = self._tracer.call(runtime, args, kwargs)
                runtime.before.check_unwritten()
            self.check_plan()
        except (UnsupportedCallError, UnsupportedMachineError) as reason:
            return self.refused(reason, args, kwargs)
        except DacergnnError:
            raise
        except FAILURES as error:
            kind = f"{type(error).__name__}: {error}"
            if is_own_fault(error):
                reason = f"a fault of dacergnn, please report it: {kind} at {failing_line(error)}"
            else:
                reason = f"{failing_line(error)} cannot be recorded ({kind})"
            if self.core.on_unsupported == "error":
                raise as_both(
                    UnsupportedCallError(f"{self.core.kind} cannot be compiled: {reason}"), type(error)
                ) from error
            return self.fall_back(reason, args, kwargs, expected=False)
        return result


class _Runtime:
    """Finds graphs and runs programs for one call."""

    in_torch = False
    tape: Tape | None = None

    def __init__(self, runner: TracedRunner, kept: set[int], names: Names) -> None:
        self.runner = runner
        self.names = names
        self.kept = kept
        self.before: Contents | None = None

    def known(self, module: nn.Module) -> nn.Module:
        """Returns the compiled layer for its original, and any other module itself."""
        core = self.runner.core
        return (core.find_self() if module is self.runner.original else None) or module

    def note(self, tensor: Tensor, *, shared: bool = False) -> None:
        """Notes a tensor that recorded values are computed from, perhaps after the layer has gone on."""
        if self.before is not None:
            with unseen():
                self.before.note(tensor, shared=shared)

    def elements(self, device: torch.device) -> tuple[torch.dtype, ...]:
        """Returns the types of elements that programs take on a device."""
        return known_elements(self.runner.core.config.implementation, device.type)

    def find_graph(self, edges: EdgeSet | RowSet) -> HeteroGraph:
        """Returns the graph of some edges, encoded unless it was seen before."""
        return edges.find(self.runner.core.graphs, self.kept)

    def run(self, program: ProgramSource, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the outputs of a program for arrays in the order of its parameters."""
        return self.runner.run_program(program, graph, arrays)


def _check_code(before: Contents) -> None:
    """Raises UnsupportedCallError if users' code may see that recorded values are other objects than tensors."""
    for function in before.functions:
        code, name = function.__code__, function.__qualname__
        if compares_types(code):
            raise UnsupportedCallError(f"{name} compares types of tensors; use isinstance.")
        if asks_for_ids(code):
            raise UnsupportedCallError(f"{name} calls id, and recorded values have others than tensors.")
        if before.holds_arguments and compares_identities(code):
            raise UnsupportedCallError(
                f"{name} compares objects by `is`, and an attribute of the layer is an argument of the call; recorded "
                "values are other objects."
            )


def _check_hooks(module: nn.Module) -> None:
    """Raises UnsupportedCallError if hooks see arguments or results of a part, which may not exist as numbers.

    Hooks of torch that set a parameter (weight norm, spectral norm, pruning) do not look at them.
    """
    for name, part in module.named_modules():
        if part is not module and has_hooks(part):
            before = [type(hook).__module__ for hook in vars(part)["_forward_pre_hooks"].values()]
            if observed(part) or not all(home.startswith("torch.nn.utils.") for home in before):
                raise UnsupportedCallError(
                    f"hooks of {name} see tensors that a program does not make; put hooks on the layer itself."
                )
