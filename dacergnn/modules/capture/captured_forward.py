"""Runs the forward of a module by what torch's Dynamo captures of it."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import copysign
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from dacergnn.errors import ArrayError, DacergnnError, GraphError, UnsupportedCallError, UnsupportedMachineError
from dacergnn.frontends.pyg.message_passing import MESSAGE_HOOKS, is_message_passing, message_hooks
from dacergnn.frontends.symbolic.callers import failing_line
from dacergnn.frontends.symbolic.row_sets import MANY_ROWS
from dacergnn.frontends.symbolic.steps import ProgramRun, Step
from dacergnn.modules.autocast import is_autocast
from dacergnn.modules.capture.captured_graph import CapturedGraph
from dacergnn.modules.capture.given import classes_of, has_negative_zeros, holds_own, longest_features
from dacergnn.modules.capture.options import CAPTURE_OPTIONS, DIVIDING_OPTIONS, MOST_GRAPHS
from dacergnn.modules.capture.refusals import failure, obstacle, refusal, shortfall
from dacergnn.modules.capture.sources import place_of
from dacergnn.modules.contents import as_before
from dacergnn.modules.core import Core
from dacergnn.modules.runner import Runner
from dacergnn.modules.snapshot import Snapshot
from dacergnn.modules.torch_operator import INLINED
from dacergnn.runtime.dynamo import skipped_by_dynamo
from dacergnn.runtime.transformed import is_fake, is_transformed, leave_transforms

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_set_eval_frame: Callable[[Any], Any] = _C._dynamo.eval_frame.set_eval_frame
_MOST_IN_A_ROW = 4
"""Limits how many calls in a row are captured anew; then a model with compiled layers runs layer by layer.

A call in training, one without gradients and one in evaluation are three kinds. A number that each call changes would
have each call captured, which takes seconds.
"""
_GLOBAL_HOOKS = [v for n, v in vars(nn.modules.module).items() if n.startswith("_global_") and isinstance(v, dict)]
NOTHING = (
    "nothing to compile: no rows are gathered or reduced by the ends of edges in what torch captures of it; "
    "`torch._dynamo.explain` tells what that is"
)


BETWEEN = "nothing to compile between its layers: less is computed of their rows than a program is made for"


class _ReadsNumber(UnsupportedCallError):
    """Says that a graph reads a number of what it computes, where torch should divide it into two."""


class CapturedForward(Runner):
    """Runs a forward, a function that takes the module first, by the graphs that torch has captured of it.

    Args:
        layered: Whether layers of the module are compiled by themselves. They run, and nobody is warned, where a call
            is not captured.
        operators: Whether some of these layers are operators in what is captured. Then little is gained for few rows.
        reason: Why calls are not captured, if that is known.
    """

    runs_one_program = False
    whole = False
    """Tells whether a forward is captured as one graph or not at all."""

    def __init__(
        self,
        core: Core,
        function: Callable[..., Any],
        *,
        layered: bool = False,
        operators: bool = False,
        reason: str | None = None,
    ) -> None:
        super().__init__(core)
        self.function, self.layered, self.operators = function, layered, operators
        self.graphs: list[CapturedGraph] = []
        self._settled: set[object] = set()
        """Kinds of calls for which nothing new was captured."""
        self.most_in_a_row = _MOST_IN_A_ROW if layered else MOST_GRAPHS
        """Tells how many calls may be captured anew in a row."""
        self.ran = 0
        """Counts the runs of captured graphs, also those that fail."""
        self._begun = 0  # how many there were when the last call began
        self._in_a_row = 0
        """Counts the calls that were captured anew since the last that was not."""
        self.reason: str | None = reason
        """Why calls run as they are, if they do."""
        self._options = CAPTURE_OPTIONS
        from torch._dynamo.exc import TorchDynamoException  # takes as long to import as all of torch

        self._failure = TorchDynamoException
        self.failures: tuple[type[Exception], ...] = (TorchDynamoException,)
        """Lists what a call raises that is run as it is then."""
        self._begin()

    def forget_calls(self) -> None:
        super().forget_calls()
        for graph in self.graphs:
            graph.forget_calls()

    def _begin(self) -> None:
        """Forgets what torch has captured."""
        function = self.function
        self.graphs.clear()
        self._settled.clear()
        self._layers: list[nn.Module] = []
        """The layers of PyG in the module at the last capture."""
        self._classes: list[tuple[type, list[Any]]] = []
        """The classes of its parts, with what they held then, since torch does not see that a method is replaced."""
        self._zeros: dict[tuple[int, str], tuple[dict[str, Any], float]] = {}
        """Attributes that were zero in a capture, whose sign torch does not compare: where they are, and the sign."""
        self._seen: Callable[[], bool] = bool
        """Tells whether these classes, and the hooks of messages of these layers, are what they were."""
        # torch keeps what it has captured, up to a limit, with the code object; this module has one of its own.
        own = function
        if isinstance(function, FunctionType):
            code = function.__code__.replace()
            own = FunctionType(
                code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
            )
            own.__kwdefaults__ = function.__kwdefaults__
        itself = weakref.ref(self)  # torch keeps back ends for ever

        def keep(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            forward = itself()
            assert forward is not None
            return forward._keep(module, examples)

        dynamo: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage]
        context: Any = dynamo.optimize(keep, nopython=self.whole, dynamic=True)
        self._own, self._run, self._frames = own, context(own), dynamo.eval_frame
        self._capture = self._capturing(context) if hasattr(context, "callback") else None  # Dynamo may be disabled

    def _capturing(self, context: Any) -> Callable[..., Any]:
        """Returns what torch calls where no graph fits: what `context` captures with, and our options meanwhile."""
        callback, itself = context.callback, weakref.ref(self)

        def capture(*args: Any) -> Any:
            forward = itself()
            assert forward is not None
            with forward._options:
                undo = [enter() for enter in context.enter_exit_hooks]
                try:
                    return callback(*args)
                finally:
                    for leave in undo:
                        leave()

        capture.__dict__["_torchdynamo_orig_backend"] = callback  # torch tells by it whose graphs it may run
        return capture

    def _keep(self, module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """Returns what runs a graph that torch has captured."""
        self._check_code()
        self._layers = [*filter(is_message_passing, self.original.modules())]
        self._classes = [(kind, [*vars(kind).values()]) for kind in classes_of(self.original)]
        for table in map(vars, self.original.modules()):
            zeros = [(name, copysign(1, v)) for name, v in table.items() if type(v) is float and v == 0]
            self._zeros |= {(id(table), name): (table, sign) for name, sign in zeros}
        self._seen = bool
        self._check_code()
        with suppress(UnsupportedMachineError):  # the slower check does without a compiler
            tables = [vars(layer)[name] for layer in self._layers for name in MESSAGE_HOOKS if name in vars(layer)]
            self._seen = Snapshot([*_GLOBAL_HOOKS, *tables, *[vars(k) for k, _ in self._classes]]).unchanged
        refused = shortfall(module.graph, layered=self.layered) or refusal(module.graph)
        if refused is not None:
            raise UnsupportedCallError(refused)
        if self.layered and any(isinstance(e, Tensor) and e.layout is not torch.strided for e in examples):
            raise UnsupportedCallError("torch multiplies by sparse tensors where a model is captured.")
        try:
            graph = CapturedGraph(module, self.core)
        except Exception as error:  # a fault of ours; a call of which nothing has run yet can still run as it is
            if isinstance(error, DacergnnError) or self.ran == self._begun:
                raise
            self.warn(f"a fault of dacergnn, please report it: {error!r} at {failing_line(error)}")
            return module.forward
        if graph.reader.read_number is not None and self._options is CAPTURE_OPTIONS:
            raise _ReadsNumber(f"a number is read ({place_of(graph.reader.read_number)}).")
        self.graphs.append(graph)
        references = weakref.ref(self), weakref.ref(graph)  # torch keeps what it runs by a name in the module of users

        def run(*args: Any) -> Any:
            forward, graph = references[0](), references[1]()
            assert forward is not None
            assert graph is not None
            forward.ran += 1
            return graph(*args)

        return run

    def _check_code(self) -> None:
        """Raises UnsupportedCallError if what torch has captured may not be what the module does.

        PyG leaves hooks of messages out while torch captures a layer, and a class may have other methods by now.
        """
        if self._seen():
            return
        kind = self._changed_class()
        if kind is not None:
            raise UnsupportedCallError(f"an attribute of the class {kind.__name__} is another since the first call.")
        for layer in self._layers:
            hooks = message_hooks(layer)
            if hooks is not None:
                raise UnsupportedCallError(f"{hooks} of a {type(layer).__name__} do not run where torch captures it.")

    def _changed_class(self) -> type | None:
        """Returns a class that has other attributes since the last capture, if there is one."""
        for kind, values in self._classes:
            if len(values) != len(vars(kind)) or any(map(operator.is_not, values, vars(kind).values())):
                return kind
        return None

    @property
    def module(self) -> nn.Module:
        """Returns the module that the forward is given."""
        return self.original

    @property
    def steps(self) -> list[Step]:
        """Returns the steps of the last networks."""
        return [step for graph in self.graphs for _, network in graph.networks[:1] for step in network.steps]

    @property
    def notes(self) -> list[str | None]:
        steps = self.steps
        programs = sum(isinstance(step, ProgramRun) for step in steps)
        captured = f"captured as {len(self.graphs)} graph{'s' * (len(self.graphs) != 1)}"
        summary = f"{captured}: {programs} runs of programs, {len(steps) - programs} calls of torch"
        if self.layered and self.reason is not None:
            summary = f"runs layer by layer: {self.reason}"
        runs = any(graph.reader.compiles for graph in self.graphs)
        return [summary if runs or self.reason else None, *super().notes]

    @property
    def was_captured(self) -> bool:
        """Tells whether a call was captured, or why not; calls of few rows run layer by layer without a try."""
        return bool(self.graphs) or self.reason is not None or not self.operators

    @property
    def runs_whole(self) -> bool:
        """Tells whether calls run what was captured."""
        return bool(self.graphs) and self.reason is None

    @skipped_by_dynamo
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self._call(args, kwargs)
        except (ArrayError, GraphError) as problem:
            self.raise_alike(problem)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_transformed() or is_fake() or (self.layered and is_autocast()) or has_negative_zeros(args, kwargs):
            return self.uncompiled(*args, **kwargs)
        if self.operators and longest_features(self.original, args, kwargs) < MANY_ROWS:
            return self.uncompiled(*args, **kwargs)
        if self.layered:
            self.reason = next((g.problem for g in self.graphs if g.problem is not None), self.reason)
        if self.reason is not None:
            return self._as_written(self.reason, args, kwargs)
        if not self._seen():
            if any(_GLOBAL_HOOKS):  # torch does not capture them
                return self.uncompiled(*args, **kwargs)
            if self._changed_class() is not None:
                self._begin()
            try:
                self._check_code()
            except UnsupportedCallError as reason:
                return self._fail(reason, args, kwargs)
        for (_, name), (table, sign) in self._zeros.items():
            value = table.get(name)
            if type(value) is float and value == 0 and copysign(1, value) != sign:
                self._begin()
                break
        kind = self.original.training, torch.is_grad_enabled(), len(args), (*kwargs,)
        if kind in self._settled:
            return self._again(args, kwargs)
        if any(is_lazy(p) for p in self.original.parameters()):
            return self.uncompiled(*args, **kwargs)
        if self.layered and holds_own(self.original, args, kwargs):
            self.reason = "its layers are called with objects of dacergnn"
            return self.uncompiled(*args, **kwargs)
        before, self._begun = len(self.graphs), self.ran
        try:
            with self._options, as_before(self.original, self.tensors_given(args, kwargs), (Exception,)):
                result = self._run(self.module, *args, **kwargs)
        except self.failures as error:
            return self._fail(error, args, kwargs)
        except Exception as error:  # of the forward itself, or of torch, which fails in many ways
            if self.ran > self._begun or isinstance(error, DacergnnError):
                raise
            return self._fail(error, args, kwargs)
        self._count(len(self.graphs) > before)
        if len(self.graphs) == before:
            self._settled.add(kind)
        elif not before and not any(graph.reader.compiles for graph in self.graphs):
            self._gain_nothing()
        elif not before and self.operators and not any(isinstance(step, ProgramRun) for step in self.steps):
            self.reason = BETWEEN
        return result

    def _gain_nothing(self) -> None:
        """Notes that nothing of a first call is compiled."""
        if self.layered:
            self.reason = NOTHING
        else:
            self.warn(self.obstacle)

    @property
    def obstacle(self) -> str:
        """Returns why nothing of what was captured is compiled."""
        found = (obstacle(graph.module.graph) for graph in self.graphs)
        return next((reason for reason in found if reason is not None), NOTHING)

    def _again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call of a kind for which all has been captured, as far as one can tell from outside.

        Raises:
            UnsupportedCallError: It cannot be captured after all, and a part of it has run.
        """
        captured, self._begun = len(self.graphs), self.ran
        try:
            result = self._look(args, kwargs)
        except self.failures as error:
            if self.ran > self._begun:
                if not isinstance(error, self._failure):
                    raise
                raise UnsupportedCallError(
                    f"{self.core.kind} cannot go on with this call, of which a part has run: {error}"
                ) from error
            return self._fail(error, args, kwargs)
        self._count(len(self.graphs) > captured)
        return result

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call by a graph that fits, as torch.compile does, without what that prepares for other calls."""
        if self._frames._stance.stance != "default":  # of `torch.compiler.set_stance`
            with self._options:
                return self._run(self.module, *args, **kwargs)
        grad, before = torch.is_grad_enabled(), _set_eval_frame(self._capture)
        try:
            with INLINED:
                return self._own(self.module, *args, **kwargs)
        except BaseException:
            torch.set_grad_enabled(grad)  # a graph may have ended between two changes of it
            raise
        finally:
            _set_eval_frame(before)

    def _count(self, captured: bool) -> None:
        """Notes whether a call was captured anew; after many in a row, later calls run as they are, or by layers."""
        self._in_a_row = self._in_a_row + 1 if captured else 0
        if self._in_a_row == self.most_in_a_row:
            self.reason = (
                f"{self.most_in_a_row} calls in a row were captured anew, since something that the forward reads as a "
                "constant was another in each"
            )

    def _fail(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call that cannot be captured; later calls are not captured either, unless this one has a fault."""
        leave_transforms()
        cause = getattr(error, "inner_exception", None) or error  # what a back end has raised
        depends = isinstance(cause, _ReadsNumber) or "data-dependent" in str(error)
        if depends and self._options is CAPTURE_OPTIONS:
            self._options = DIVIDING_OPTIONS
            return self._call(args, kwargs)
        reason = failure(error) if cause is error else str(cause).partition("\n")[0]
        if reason.startswith(f"{self.core.kind} cannot be compiled: "):
            raise error
        if not isinstance(error, (self._failure, UnsupportedCallError)):  # perhaps it is the user's, and raised again
            reason = f"{failing_line(error)} cannot be captured ({type(error).__name__}: {reason})"
        result = self._as_written(reason, args, kwargs)
        self.reason = reason
        return result

    def tensors_given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns a structure with all tensors that a call is given, which it may write to."""
        return args, kwargs

    def _as_written(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.layered:
            return self.uncompiled(*args, **kwargs)
        return self.fall_back(reason, args, kwargs, expected=False)  # an error of the forward is raised as it is

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.original, *args, **kwargs)
