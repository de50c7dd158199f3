"""Runs the forward of a module by what torch's Dynamo captures of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any

import torch
from torch import fx

from dacergnn.modules.capture.captured_graph import CapturedGraph
from dacergnn.modules.core import Core
from dacergnn.modules.runner import Runner
from dacergnn.modules.torch_operator import skipped_by_dynamo
from dacergnn.runtime.transformed import is_transformed

NOTHING = (
    "nothing to compile: no rows are gathered or reduced by the ends of edges in what torch captures of it; "
    "`torch._dynamo.explain` tells what that is"
)


class CapturedForward(Runner):
    """Runs a forward, a function that takes the module first, by the graphs that torch has captured of it."""

    runs_one_program = False

    def __init__(self, core: Core, function: Callable[..., Any]) -> None:
        super().__init__(core)
        self.function = function
        self.graphs: list[CapturedGraph] = []
        self._settled: set[object] = set()
        """Kinds of calls for which nothing new was captured."""
        # torch keeps what it has captured, up to a limit, with the code object; this module has one of its own.
        own = function
        if isinstance(function, FunctionType):
            code = function.__code__.replace()
            own = FunctionType(
                code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
            )
            own.__kwdefaults__ = function.__kwdefaults__
        self._run = torch.compile(own, backend=self._keep, dynamic=True)

    def _keep(self, module: fx.GraphModule, examples: Sequence[Any]) -> CapturedGraph:
        graph = CapturedGraph(module, self.core)
        self.graphs.append(graph)
        return graph

    @skipped_by_dynamo
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_transformed():
            return self.uncompiled(*args, **kwargs)
        kind = self.original.training, torch.is_grad_enabled(), len(args), (*kwargs,)
        before = len(self.graphs)
        with nullcontext() if kind in self._settled else _capture():
            result = self._run(self.original, *args, **kwargs)
        if len(self.graphs) == before:
            self._settled.add(kind)
        elif not before and not any(graph.reader.ends for graph in self.graphs):
            self.warn(NOTHING)
        return result

    def uncompiled(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.original, *args, **kwargs)


def _capture() -> Any:
    """Returns a context in which torch goes on where sizes depend on numbers, and sees hooks that come later."""
    options: Any = torch._dynamo.config  # pyright: ignore[reportPrivateUsage]
    return options.patch(capture_dynamic_output_shape_ops=True, skip_nnmodule_hook_guards=False)
