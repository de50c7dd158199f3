"""The back end of torch.compile: ``torch.compile(model, backend="dacergnn")``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from dacergnn.config import Config, OnUnsupported
from dacergnn.errors import DacergnnError
from dacergnn.modules.capture.captured_graph import CapturedGraph
from dacergnn.modules.capture.refusals import refusal
from dacergnn.modules.core import Core
from dacergnn.modules.graphs import GraphCache

_OPTIONS = ("config", "on_unsupported")


class GraphCore(Core):
    """Holds the state of a graph whose model is not known."""

    @property
    def kind(self) -> str:
        return "model"


def compile_graph(
    module: fx.GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Returns a function for a graph that torch has captured: along edges it runs compiled programs.

    Args:
        module: The graph.
        examples: The inputs for which torch has captured it, which are not needed.
        options: The ``options`` of `torch.compile`: "config", a `Config`, and "on_unsupported", which says what happens
            to a graph that cannot be compiled ("warn" and "ignore" run it as it is, "error" raises).

    Raises:
        DacergnnError: There is another option, or one has another value.
    """
    given = dict(options or {})
    for name in given:
        if name not in _OPTIONS:
            raise DacergnnError(f'options["{name}"] is not known; the options are {" and ".join(_OPTIONS)}.')
    config, on_unsupported = given.get("config") or Config(), given.get("on_unsupported", "warn")
    if not isinstance(config, Config):
        raise DacergnnError(f'options["config"] is a {type(config).__name__}; pass a dacergnn.Config.')
    if on_unsupported not in ("warn", "error", "ignore"):
        raise DacergnnError(f'options["on_unsupported"]={on_unsupported!r} is not one of "warn", "error", "ignore".')
    graph = captured_graph(module, config, on_unsupported)
    reason = refusal(module.graph)
    if reason is None:
        return graph
    graph.warn(reason)
    return module.forward


def captured_graph(module: fx.GraphModule, config: Config, on_unsupported: OnUnsupported) -> CapturedGraph:
    """Returns the runner of a graph with a state of its own."""
    return CapturedGraph(module, GraphCore(module, config, GraphCache(config.check_graph), on_unsupported))
