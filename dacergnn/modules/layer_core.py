"""Decides how calls of a compiled layer run in the present state of the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.nn.parameter import is_lazy

from dacergnn.config import Config, OnUnsupported
from dacergnn.errors import ArrayError, GraphError, UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends import Frontend, find_frontend, is_message_passing, takes_graphs
from dacergnn.frontends.frontend import GRAPH_LIBRARIES, has_foreign_methods
from dacergnn.frontends.linear import has_hooks
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.capture.captured_layer import CapturedLayer
from dacergnn.modules.contents import contents_kept
from dacergnn.modules.core import Core
from dacergnn.modules.frontend_runner import FrontendRunner
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.module_state import ModuleState
from dacergnn.modules.runner import OriginalRunner, Runner
from dacergnn.modules.torch_operator import register_layer
from dacergnn.runtime.dynamo import skipped_by_dynamo
from dacergnn.runtime.transformed import is_fake, is_recorded, with_plain_integers

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_is_profiled: Callable[[], bool] = _C._autograd._profiler_enabled


class LayerCore(Core):
    """Chooses how calls of a layer run, anew whenever an option, a hook or a part of the layer has changed."""

    def __init__(
        self, original: nn.Module, config: Config, graphs: GraphCache, on_unsupported: OnUnsupported = "warn"
    ) -> None:
        super().__init__(original, config, graphs, on_unsupported)
        self.number = register_layer(self)
        self.runner = self._choose()
        self._state = ModuleState(original)
        self.find_original: Callable[[], nn.Module] = lambda: original

    @property
    def _shares_plan(self) -> bool:
        return self.plan_use is not None and not (self.plan_use.alone and self.runner.runs_one_program)

    @property
    def frontend(self) -> Any:
        """Returns the front end of the layer; None where calls are captured, or run the original."""
        return getattr(self.runner, "frontend", None)

    @skipped_by_dynamo
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of a call."""
        if is_recorded():  # torch's own operations only
            return self.runner.uncompiled(*args, **kwargs)
        if is_fake():
            return self.runner.fall_back("tensors of FakeTensorMode hold no numbers", args, kwargs)
        unchanged, state = self._state.check
        if not unchanged(state):
            self.refresh()
        try:
            args, kwargs = with_plain_integers((args, kwargs))
        except UnsupportedCallError as reason:
            return self.runner.refused(reason, args, kwargs)
        try:
            if _is_profiled():
                with record_function(f"{self.kind} (compiled)"):
                    return self.runner.call(args, kwargs)
            return self.runner.call(args, kwargs)
        except (ArrayError, GraphError) as problem:
            self.runner.raise_alike(problem)

    def traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of a call that torch.export traces."""
        unchanged, state = self._state.check
        if not unchanged(state):
            self.refresh()
        if not isinstance(self.runner, FrontendRunner):
            reason = "torch.export takes compiled layers that have a front end"
            return self.runner.fall_back(str(self.refused or reason), args, kwargs)
        try:
            return self.runner.traced(args, kwargs)
        except UnsupportedCallError as reason:
            return self.runner.refused(reason, args, kwargs)

    def refresh(self) -> None:
        """Chooses again how calls run if the state of the layer has changed."""
        self.original = self.find_original()
        before, self._state = self._state, ModuleState(self.original)
        self._state.watch()
        if not self._state.same(before):
            runner = self._choose()
            captured = type(runner) is type(self.runner) and isinstance(runner, CapturedForward)
            if not captured or runner.original is not self.runner.original:  # torch compares all options itself
                self.runner = runner
            super().forget_calls()  # recordings belong to the state before
        self.runner.renew(self._state.training, same_tensors=self._state.same_tensors(before))

    def forget_calls(self) -> None:
        super().forget_calls()
        self.runner.forget_calls()

    def run(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call of the layer with the parameters of ``module``."""
        unchanged, state = self._state.check
        if not unchanged(state):
            self.refresh()
        if not isinstance(self.runner, FrontendRunner):
            return type(module).forward(module, *args, **kwargs)
        if module is self.original:
            return self.runner.call(args, kwargs)
        return self.runner.run(self.runner.frontend.of(module), args, kwargs)

    def result(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the shapes of a call's results, for tracers."""
        return self.frontend.result(*args, **kwargs)

    def _choose(self) -> Runner:
        self.refused: UnsupportedLayerError | None = None
        """The reason for which no call can be compiled in the present state of the layer."""
        original = self.original
        if any(is_lazy(p) for p in original.parameters()):
            reason = "it has parameters without a shape, which its first call gives them"
            return OriginalRunner(self, f"{reason}; call it once before it is optimized", silent=True)
        frontend = find_frontend(original)
        try:
            if frontend is not None:
                self._check_hooks(frontend)
                with contents_kept(original):  # parametrizations such as spectral norm write where one reads
                    return FrontendRunner(self, frontend(original))
        except UnsupportedLayerError as reason:
            self.refused = reason
        if takes_graphs(original):
            from dacergnn.modules.capture.dgl_forward import DGLForward  # imports dgl

            return DGLForward(self, type(original).forward)
        try:
            if is_message_passing(original):
                runner = CapturedLayer(self)
                self.refused = None
                return runner
        except UnsupportedLayerError as reason:
            self.refused = reason
        return OriginalRunner(self, str(self.refused or "it computes what no front end expresses"))

    def _check_hooks(self, frontend: type[Frontend]) -> None:
        """Raises UnsupportedLayerError if a part of the layer has hooks, or a forward, that a program would not run."""
        for name, part in self.original.named_children() if frontend.called is not None else ():
            within = [*part.modules()] if name not in (frontend.called or ()) else []
            watched = next((m for m in within if has_hooks(m)), None)
            if watched is not None:
                remedy = "put hooks on the layer itself, or on parts that torch runs"
                raise UnsupportedLayerError(f"hooks of {name}", type(watched).__name__, remedy, self.kind)
            other = next((m for m in within if "forward" in vars(m) or _is_replaced(type(m))), None)
            if other is not None:
                remedy = "replace the whole part by another module"
                raise UnsupportedLayerError(f"forward of {name}", type(other).__name__, remedy, self.kind)


def _is_replaced(cls: type) -> bool:
    """Returns whether the forward of a class of torch or of a graph library is no longer the library's."""
    home = next(c for c in cls.__mro__ if "forward" in vars(c))
    library = home is not nn.Module and home.__module__.partition(".")[0] in (*GRAPH_LIBRARIES, "torch")
    return library and has_foreign_methods(home)
