"""The module that stands in for a layer of another library."""

from __future__ import annotations

import copy
import weakref
from functools import update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import nn

from dacergnn.config import Config, OnUnsupported
from dacergnn.errors import UnsupportedCallError
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.derived_classes import made_once
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.layer_core import LayerCore
from dacergnn.modules.loaded import LoadedProgram
from dacergnn.modules.plan_use import LayerUse
from dacergnn.modules.torch_operator import INLINED, operator_call

_CORE = "_dacergnn"


class CompiledLayer(nn.Module):
    """Takes the arguments of the original layer and returns its results, computed by compiled programs.

    A compiled layer is an instance of a class made of this one and of the original's class (`compile_layer`). The two
    layers share one dictionary of attributes. Hence parameters, options, submodules and hooks that are set on either
    layer count for both, at the next call.
    """

    __slots__ = (_CORE,)
    _dacergnn: LayerCore

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        core = self._dacergnn
        if not torch.compiler.is_compiling():
            return core.call(args, kwargs)
        if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
            return core.traced(args, kwargs)
        frontend = core.frontend
        try:
            if frontend is None or (INLINED.on and frontend.inlined):
                return core.runner.uncompiled(*args, **kwargs)
            frontend.edges(*args, **kwargs)
        except UnsupportedCallError:
            return core.runner.uncompiled(*args, **kwargs)
        return operator_call(core, args, kwargs)

    def save_sdfg(self, folder: str | Path) -> list[Path]:
        return self._dacergnn.save_sdfg(folder)

    def load_sdfg(self, folder: str | Path) -> list[Path]:
        return self._dacergnn.load_sdfg(folder)

    def unload_sdfg(self) -> None:
        self._dacergnn.unload_sdfg()

    save_sdfg.__doc__ = RunsPrograms.save_sdfg.__doc__
    load_sdfg.__doc__ = RunsPrograms.load_sdfg.__doc__
    unload_sdfg.__doc__ = RunsPrograms.unload_sdfg.__doc__

    def __getattr__(self, name: str) -> Any:
        if name == _CORE:  # a copy that was made attribute by attribute has none
            return _stand_for(self, LayerCore(_plain(self, None), Config(), GraphCache()))
        try:
            return super().__getattr__(name)
        except AttributeError:
            core = self._dacergnn
            if name.startswith("__"):
                raise
            # The original may have another class by now, through parametrizations for example.
            original = core.find_original()
            return getattr(original if hasattr(type(original), name) else core, name)

    def __repr__(self) -> str:
        return f"compiled {self._dacergnn.original!r}"

    def __copy__(self) -> CompiledLayer:
        return _again(self, copy.copy(self._dacergnn.original))

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledLayer:
        core = self._dacergnn
        # Noted before the original is copied, since an attribute may lead back here: PyG keeps bound methods.
        result = memo[id(self)] = _blank(type(core.original))
        return _again(self, copy.deepcopy(core.original, memo), result)

    def __reduce__(self) -> tuple[Any, ...]:
        core = self._dacergnn
        state = core.original, *_options(core)
        return _blank, (type(core.original),), state, None, None, _restore  # the state may lead back here

    def __prepare_scriptable__(self) -> nn.Module:
        """Returns the module that torch.jit.script takes in place of this one."""
        return self._dacergnn.original


def core_of(layer: CompiledLayer) -> LayerCore:
    """Returns the core of a compiled layer, which holds its state."""
    return layer._dacergnn  # pyright: ignore[reportPrivateUsage]


def compile_layer(core: LayerCore, layer: CompiledLayer | None = None) -> CompiledLayer:
    """Returns the compiled layer for the original of ``core``: the blank ``layer`` if that is given, or a new one."""
    if layer is None:
        layer = _blank(type(core.original))
    layer.__dict__ = core.original.__dict__
    _stand_for(layer, core)
    return layer


def _blank(original: type[nn.Module]) -> CompiledLayer:
    """Returns a compiled layer for a class, still without a core."""
    kind = _compiled_class(original)
    layer = kind.__new__(kind)
    assert isinstance(layer, CompiledLayer)
    return layer


@made_once
def _compiled_class(original: type[nn.Module]) -> type[nn.Module]:
    """Returns the class of compiled layers for a class, with the same names."""

    ours: Any = CompiledLayer.forward
    # A function of its own, since it has the signature of the original's forward.
    forward = update_wrapper(FunctionType(ours.__code__, ours.__globals__), original.forward)
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (CompiledLayer, original), {**names, "__slots__": (), "forward": forward})


def _stand_for(layer: CompiledLayer, core: LayerCore) -> LayerCore:
    object.__setattr__(layer, _CORE, core)
    layers, original = weakref.ref(layer), core.original
    core.find_original = lambda: _plain(layers(), original)  # a reference to the core would be a cycle
    core.find_self = layers
    return core


def _plain(layer: CompiledLayer | None, original: nn.Module | None) -> nn.Module:
    """Returns the uncompiled form of a layer, with the same attributes.

    It is the original, unless the layer has another class by now: parametrizations add properties to classes.
    """
    if original is not None and (layer is None or CompiledLayer in type(layer).__bases__):
        return original
    added: list[type] = []
    for cls in type(layer).__mro__:
        if CompiledLayer in cls.__bases__:
            base: Any = cls.__bases__[1]
            break
        added.append(cls)
    else:
        raise AssertionError(f"{type(layer).__name__} is not made by compile_layer")
    for cls in reversed(added):  # classes that parametrizations have added
        names = {n: v for n, v in vars(cls).items() if n not in ("__dict__", "__weakref__")}
        base = type(cls.__name__, (base,), names)
    plain: nn.Module = object.__new__(base)
    plain.__dict__ = layer.__dict__
    return plain


def _again(layer: CompiledLayer, original: nn.Module, blank: CompiledLayer | None = None) -> CompiledLayer:
    """Returns a layer for a copy of the original that shares graphs with ``layer``; uses ``blank`` if that is given."""
    core = core_of(layer)
    return _restore(blank, (original, *_options(core)), core.graphs)


def _options(core: LayerCore) -> tuple[Config, OnUnsupported, LayerUse | None, dict[Any, LoadedProgram]]:
    """Returns what copies and pickles of a layer take over besides the original; builds come from the cache."""
    return core.config, core.on_unsupported, core.plan_use, core.loaded_programs


def _restore(
    layer: CompiledLayer | None,
    state: tuple[nn.Module, Config, OnUnsupported, LayerUse | None, dict[Any, LoadedProgram]],
    graphs: GraphCache | None = None,
) -> CompiledLayer:
    """Returns a layer with the state of another one, which is the blank ``layer`` if that is given."""
    original, config, on_unsupported, plan_use, loaded = state
    core = LayerCore(original, config, graphs or GraphCache(config.check_graph), on_unsupported)
    core.plan_use = plan_use
    core.compiled_programs.update(loaded)
    return compile_layer(core, layer)
