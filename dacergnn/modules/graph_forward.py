"""Compiles forwards of modules, which torch captures, with stand-ins in the places of graphs of DGL."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from dacergnn.config import Config, OnUnsupported
from dacergnn.errors import DacergnnError, UnsupportedCallError
from dacergnn.frontends.dgl.graph_classes import is_graph
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.contents import FORWARDS
from dacergnn.modules.core import Core
from dacergnn.modules.derived_classes import made_once
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.layer import CompiledLayer, core_of
from dacergnn.runtime.transformed import is_recorded

_COMPILED = "_dacergnn_compiled"
"""Name of the attribute that marks compiled forwards."""


_ORIGINAL = "_dacergnn_original_class"
"""Name of the attribute of a derived class that holds the class of the original."""


_BY_LAYER = "_dacergnn_by_layer"
"""Name of the attribute that says why a model runs layer by layer."""


class _Forwards(dict[Any, CapturedForward]):
    """Holds the compiled forwards of a module by what they run; copies of the module begin with none."""

    owner: nn.Module | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Forwards:
        return _Forwards()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Forwards, ()


def compile_forward(
    target: Any = None, /, *, config: Config | None = None, on_unsupported: OnUnsupported = "warn"
) -> Any:
    """Compiles a forward: a method ``forward(self, ...)``, a class of modules, or a module.

    torch captures it, with stand-ins in the places of DGL graphs, and compiled programs compute what it does along
    edges. The module keeps its parameters, buffers and hooks. A class is
    changed and returned, so is a module.

    Args:
        target: The method, the class or the module; None to decorate with options.
        config: How to compile.
        on_unsupported: What to do with a call that no program expresses: run it as it is and say so once ("warn"), or
            silently ("ignore"), or raise ("error").

    Raises:
        DacergnnError: The target or an option is none of these.
        UnsupportedCallError: In a call, with ``on_unsupported="error"``.
    """
    if on_unsupported not in ("warn", "error", "ignore"):
        raise DacergnnError(f'on_unsupported={on_unsupported!r} is not one of "warn", "error", "ignore".')
    if config is not None and not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DacergnnError(f"config is a {type(config).__name__}; pass a dacergnn.Config.")
    if target is None:
        return lambda decorated: compile_forward(decorated, config=config, on_unsupported=on_unsupported)  # pyright: ignore[reportUnknownLambdaType]
    options = (config or Config(), on_unsupported)
    if isinstance(target, type) and issubclass(target, nn.Module):
        target.forward = _compiled(target.forward, *options)
        return target
    if isinstance(target, nn.Module):
        if "forward" in vars(target):
            raise DacergnnError(f"this {type(target).__name__} has a forward of its own; decorate that of its class.")
        target.__class__ = _subclass(type(target), *options)
        return target
    if not inspect.isfunction(target):
        raise DacergnnError(
            f"compile_forward takes a method forward(self, g, ...), a class of modules or a module, "
            f"not a {type(target).__name__}."
        )
    return _compiled(target, *options)


@made_once
def _subclass(base: type[nn.Module], config: Config, on_unsupported: OnUnsupported) -> type[nn.Module]:
    """Returns a subclass with a compiled forward, for single modules; it has the name of the base."""
    names: dict[str, Any] = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}

    def reduce(self: nn.Module) -> tuple[Any, ...]:
        return _blank, (base, config, on_unsupported), self.__dict__

    if not hasattr(base, "save_sdfg"):
        names["save_sdfg"] = _save_sdfg
    if fx.GraphModule not in base.__mro__:  # what pickles as its graph becomes layers again
        names["__reduce__"] = reduce
    forward = _compiled(base.forward, config, on_unsupported)
    return type(base.__name__, (base,), {**names, _ORIGINAL: base, "forward": forward})


def _save_sdfg(self: nn.Module, folder: str | Path) -> list[Path]:
    """Writes the SDFGs of the program that ran last, as `save_sdfg` of a layer does; returns their paths.

    Raises:
        UnsupportedCallError: The model has not been called yet, or runs layer by layer.
    """
    for runner in compiled_forwards(self):
        if runner.core.last_call is not None:
            return runner.core.save_sdfg(folder)
    raise UnsupportedCallError(
        f"save_sdfg: no call of this {type(self).__name__} has run as one yet; call it once before, or save the SDFGs "
        "of its layers."
    )


def _blank(base: type[nn.Module], config: Config, on_unsupported: OnUnsupported) -> nn.Module:
    """Returns a module without state, which copying and unpickling fill in."""
    return nn.Module.__new__(_subclass(base, config, on_unsupported))


def compiled_forwards(module: nn.Module) -> list[CapturedForward]:
    """Returns the runners of a module's compiled forwards, for reports; none before its first call."""
    return list(vars(module).get(FORWARDS, {}).values())


def run_by_layer(model: nn.Module, reason: str) -> None:
    """Has forwards in a model run layer by layer where they hold compiled layers."""
    for module in filter(is_compiled_forward, model.modules()):
        module.__dict__[_BY_LAYER] = reason
        for runner in compiled_forwards(module):
            if runner.layered:
                runner.reason = reason


def original_forward(module: nn.Module) -> nn.Module | None:
    """Returns a module without the compiled forward that `compile_forward` gave it; None for other modules."""
    base: type[nn.Module] | None = vars(type(module)).get(_ORIGINAL)
    if base is None:
        return None
    original = nn.Module.__new__(base)
    original.__dict__.update({name: value for name, value in vars(module).items() if name != FORWARDS})
    return original


def _compiled(function: Callable[..., Any], config: Config, on_unsupported: OnUnsupported) -> Callable[..., Any]:
    @functools.wraps(function)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # Within another forward, it is a part of that; others record torch's own operations only.
        if torch.compiler.is_compiling() or is_recorded():
            return function(self, *args, **kwargs)
        layers = self.__dict__.get(FORWARDS)
        if layers is None or layers.owner is not self:  # a shallow copy holds the original's
            layers = self.__dict__[FORWARDS] = _Forwards()
            layers.owner = self
        takes_graph = _takes_graph(self, args, kwargs)
        layer = layers.get((function, takes_graph))
        if layer is None:
            layer = _runner(self, function, takes_graph, config, on_unsupported)
            layers[function, takes_graph] = layer
        return layer.call(args, kwargs)

    forward.__dict__[_COMPILED] = True
    return forward


def _runner(
    module: nn.Module, function: Callable[..., Any], takes_graph: bool, config: Config, on_unsupported: OnUnsupported
) -> CapturedForward:
    """Returns a runner for a forward of a module. Layers in it that are compiled have said what cannot be compiled."""
    layers = [core_of(m) for m in module.modules() if isinstance(m, CompiledLayer)]
    if layers:
        core = Core(module, config, layers[0].graphs, "ignore")
        reason = "a graph of DGL is given" if takes_graph else vars(module).get(_BY_LAYER)
        operators = not all(layer.frontend is None or layer.frontend.inlined for layer in layers)
        return CapturedForward(core, function, layered=True, operators=operators, reason=reason)
    core = Core(module, config, GraphCache(config.check_graph), on_unsupported)
    if not takes_graph:
        return CapturedForward(core, function)
    from dacergnn.modules.capture.dgl_forward import DGLForward  # imports dgl

    return DGLForward(core, function)


def _takes_graph(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether a call takes graphs of DGL, or a module holds one."""
    if "dgl" not in sys.modules:
        return False
    return any(map(is_graph, tree_leaves((args, kwargs)))) or any(map(is_graph, vars(module).values()))


def is_compiled_forward(module: nn.Module) -> bool:
    """Returns whether the forward of a module is compiled by `compile_forward`."""
    return _COMPILED in vars(type(module).forward)
