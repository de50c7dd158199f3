"""Provides the entry points: `optimize`, `revert`, `explain` and `compile`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from inspect import signature
from types import FunctionType
from typing import Any, overload

from torch import fx, nn

from dacergnn.config import Config, OnUnsupported
from dacergnn.datasets import Dataset
from dacergnn.errors import DacergnnError, ProgramError
from dacergnn.frontends import find_frontend, is_message_passing, takes_graphs
from dacergnn.frontends.dace_program.source import is_dace_program, program_text
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import has_kernels
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.compiled_parts import ANOTHER, UNTOUCHED, compiled_parts
from dacergnn.modules.core import Core
from dacergnn.modules.cuda_graphs import check_capturable
from dacergnn.modules.functions import ProgramFunction
from dacergnn.modules.graph_forward import compile_forward, is_compiled_forward, original_forward
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.layer import CompiledLayer, compile_layer, core_of
from dacergnn.modules.layer_core import LayerCore
from dacergnn.modules.plan_use import PlanUse
from dacergnn.plan import MODEL
from dacergnn.report import NOTHING, Report, layer_report

Filter = Callable[[nn.Module, str], bool]


@dataclass
class _Replacement:
    """Replaces layers in one pass over a module tree, and records which were refused and why."""

    config: Config
    filter_fn: Filter | None
    on_unsupported: OnUnsupported
    graphs: GraphCache
    refused: dict[str, str] = field(default_factory=dict[str, str])
    apart: dict[str, str] = field(default_factory=dict[str, str])
    """Why layers are compiled one by one that would be compiled together, by the name of what holds them."""

    def __post_init__(self) -> None:
        self.plan_use = None if self.config.plan is None else PlanUse(self.config.plan)

    def __call__(self, module: nn.Module, name: str) -> nn.Module | None:
        if isinstance(module, CompiledLayer):
            return module
        frontend = find_frontend(module)
        if not _is_layer(module) or (self.filter_fn is not None and not self.filter_fn(module, name)):
            return None
        core = LayerCore(module, self._config_of(name), self.graphs, self.on_unsupported)
        if core.refused is None:
            if self.plan_use is not None:
                core.plan_use = self.plan_use.layer(name or MODEL)
            return compile_layer(core)
        if frontend is not None and frontend.joins:
            self.apart[name] = (
                f"{type(module).__name__} is not joined; its layers are compiled one by one: {core.refused}"
            )
            return None
        if self.on_unsupported == "error":
            raise core.refused
        self.refused[name] = str(core.refused)
        return None

    def _config_of(self, name: str) -> Config:
        """Returns the config of one layer."""
        plan = self.config.plan
        return self.config if plan is None else replace(self.config, plan=plan.of_layer(name or MODEL))


def optimize(
    model: nn.Module,
    graph: HeteroGraph | Dataset | None = None,
    *,
    config: Config | None = None,
    filter_fn: Filter | None = None,
    on_unsupported: OnUnsupported = "warn",
) -> nn.Module:
    """Returns the model with its supported layers replaced by compiled ones; ``model`` itself stays as it is.

    A model whose own Python torch can capture runs as one: programs hold what lies between its layers as well. Calls
    that cannot be captured run layer by layer, and so do calls of few rows where layers have typed edges, and options
    that are about layers (``plan``, ``memory``, ``tune``, ``cuda_graph``, names of arrays to cache or recompute, other
    levels and passes than the default).

    The result shares all parameters and buffers with ``model``, under the same names. Layers are compiled at
    their first call, for the element type and the gradients that it asks for, and run on any graph.

    Args:
        model: A layer, or a module that holds layers anywhere.
        graph: The graph that the model will mostly be called with, whose encodings such calls share. It is taken to the
            device of the model, if it is on another one.
        config: How to compile layers, and how to call them.
        filter_fn: Takes a module and its qualified name; False leaves the layer as it is.
        on_unsupported: What to do with a layer that has a front end but an option that cannot be expressed, with a
            call of a traced layer that no program expresses ("error" raises UnsupportedCallError), and on a machine
            without a compiler, or with a device or driver that kernels are not for ("error" raises
            UnsupportedMachineError). "warn" and "ignore" run the original. "warn" also warns of a model without
            anything to compile.

    Raises:
        UnsupportedLayerError: With ``on_unsupported="error"``.
        DacergnnError: ``Config(plan=...)`` names a layer that is not compiled.
        ArrayError: ``Config(cuda_graph=True)`` for a graph that is not on a CUDA device.
    """
    _check_model(model)
    if graph is not None and not isinstance(graph, HeteroGraph | Dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DacergnnError(
            f"graph is a {type(graph).__name__}; make a HeteroGraph of it with from_pyg, from_dgl or from_arrays."
        )
    if config is not None and not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DacergnnError(f"config is a {type(config).__name__}; pass a dacergnn.Config.")
    if filter_fn is not None and not callable(filter_fn):
        raise DacergnnError(f"filter_fn is a {type(filter_fn).__name__}; pass a function of a module and its name.")
    if on_unsupported not in ("warn", "error", "ignore"):
        raise DacergnnError(f'on_unsupported={on_unsupported!r} is not one of "warn", "error", "ignore".')
    config = config or Config()
    replacement = _Replacement(config, filter_fn, on_unsupported, GraphCache(config.check_graph))
    if graph is not None:
        graph = _beside(model, graph.graph if isinstance(graph, Dataset) else graph)
        if config.cuda_graph:
            check_capturable("graph", graph.device)
        replacement.graphs.offer(graph)
    result = _replace(model, replacement, "", {})
    all_compiled = filter_fn is None and not replacement.refused and not replacement.apart
    if all_compiled and _is_users(result) and _is_captured(result, config):
        result = compile_forward(result, config=config, on_unsupported=on_unsupported)
    if replacement.plan_use is not None:
        replacement.plan_use.plan.check_layers([*replacement.plan_use.layers])
    if not isinstance(result, CompiledLayer):  # it has the attributes of the user's layer
        result.__dict__["_dacergnn_refused"] = replacement.refused
        result.__dict__["_dacergnn_apart"] = replacement.apart
    if on_unsupported == "warn":
        for name, reason in replacement.refused.items():
            warnings.warn(f"{name or 'the model'} is left as it is: {reason}", stacklevel=2)
        for name, kind, holder in _unregistered(model):
            reason = f"torch registers no modules of a {holder}; use torch.nn.Module{holder.title()}"
            warnings.warn(f"{name} holds a {kind} that is left as it is: {reason}.", stacklevel=2)
        if not replacement.refused and filter_fn is None and not _holds_compiled(result):
            warnings.warn(f"optimize found {NOTHING}", stacklevel=2)
    if _holds_compiled(result) and not _holds_compiled(model):
        UNTOUCHED.add(model)
    return result


def _holds_compiled(model: nn.Module) -> bool:
    """Returns whether calls of a model run compiled programs, perhaps those of a forward that is compiled already."""
    return any(isinstance(m, (CompiledLayer, RunsPrograms)) or is_compiled_forward(m) for m in model.modules())


def _is_users(model: nn.Module) -> bool:
    """Returns whether a model has a forward of users, in the class of which nothing is lost; torch's have no edges.

    Users' forwards are also what `to_hetero` has made of one.
    """
    own = type(model).__module__.partition(".")[0] not in ("torch", "dacergnn")
    return (own or isinstance(model, fx.GraphModule)) and "forward" not in vars(model)


def _is_captured(model: nn.Module, config: Config) -> bool:
    """Returns whether a model runs as one: tracers may follow its layers, and no option is about layers."""
    parts = [m for m in model.modules() if isinstance(m, CompiledLayer | RunsPrograms) or is_compiled_forward(m)]
    layers = [core_of(m) for m in parts if isinstance(m, CompiledLayer)]
    if model in parts or len(layers) < len(parts):
        return False
    by_layer = config.plan is not None or config.memory is not None or config.cuda_graph or config.tune != "off"
    by_name = bool(config.cache or config.recompute)  # of arrays, which are those of layers' programs
    by_level = config.level != "O2" or config.passes is not None
    if layers and (by_layer or by_name or by_level):
        return False
    return not any(core.frontend is not None and core.frontend.takes_graphs() for core in layers)


def _unregistered(model: nn.Module) -> Iterator[tuple[str, str, str]]:
    """Yields layers in lists and dictionaries of a model, by the attribute and class, and the kind of container."""
    known = {*model.modules()}
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if type(value) not in (list, tuple, dict) or name.startswith("_"):
                continue
            kept: Any = value
            for item in kept.values() if type(value) is dict else kept:
                if isinstance(item, nn.Module) and item not in known and _may_be_compiled(item):
                    yield f"{prefix}.{name}".lstrip("."), type(item).__name__, "dict" if type(value) is dict else "list"


def _may_be_compiled(module: nn.Module) -> bool:
    left = [m for m in module.modules() if not isinstance(m, CompiledLayer)]
    return any(map(_is_layer, left))


def _is_layer(module: nn.Module) -> bool:
    """Returns whether a module is a layer that can be compiled."""
    return find_frontend(module) is not None or is_message_passing(module) or takes_graphs(module)


def _beside(model: nn.Module, graph: HeteroGraph) -> HeteroGraph:
    """Returns the graph on the device of the model's parameters, if there are kernels for that device."""
    device = next((p.device for p in model.parameters()), graph.device)
    return graph if device == graph.device or not has_kernels(device) else graph.to(device)


@overload
def compile(
    function: Callable[..., Any], /, *, config: Config | None = None, on_unsupported: OnUnsupported = "warn"
) -> Any: ...
@overload
def compile(
    *, config: Config | None = None, on_unsupported: OnUnsupported = "warn", **bindings: Any
) -> Callable[[Callable[..., Any]], Any]: ...
def compile(
    function: Any = None, /, *, config: Config | None = None, on_unsupported: OnUnsupported = "warn", **bindings: Any
) -> Any:
    """Compiles a program, or a forward over DGL graphs; also serves as a decorator.

    ``@dacergnn.compile`` or ``@dacergnn.compile(heads=2, slope=0.2, x="NS[64]", config=Config(...))`` on

    - a function in program form, ``def layer(g, x, W): ...`` (docs/program_form.md), or a ``@dace.program`` of
      operators of `dacergnn.ops` and NumPy-style code: a `ProgramFunction` over a `HeteroGraph` and tensors. It is
      parsed at the first call, and compiled once for each combination of row shapes and element type. Constants are
      found among ``bindings``, in the functions around it, and in its module.
    - a method ``def forward(self, g, ...)`` over DGL graphs, a class of modules with one, or a module: the same, run
      with a stand-in for the graph; what it computes over edges is computed by compiled programs.

    Args:
        function: What to compile; None to decorate with options.
        config: How to compile.
        on_unsupported: What a forward does with a call that no program expresses: run it as it is and say so once
            ("warn"), or silently ("ignore"), or raise ("error"). Programs always raise.
        bindings: Declarations of arrays, and constants, by name.

    Raises:
        DacergnnError: ``function`` or an option is none of these.
    """

    def compiled(decorated: Any) -> Any:
        if _is_forward(decorated):
            if bindings:
                raise DacergnnError(f"{next(iter(bindings))} is given for a forward, which takes no bindings.")
            return compile_forward(decorated, config=config, on_unsupported=on_unsupported)
        if is_dace_program(decorated):
            return ProgramFunction(program_text(decorated), bindings, config, decorated.f)
        if not isinstance(decorated, FunctionType):
            raise ProgramError(f"compile takes a function in program form, not a {type(decorated).__name__}.")
        return ProgramFunction(decorated, bindings, config)

    return compiled if function is None else compiled(function)


def _is_forward(function: object) -> bool:
    """Returns whether an object is a module, a class of modules, or a method of one."""
    if isinstance(function, nn.Module) or (isinstance(function, type) and issubclass(function, nn.Module)):
        return True
    return isinstance(function, FunctionType) and next(iter(signature(function).parameters), "") == "self"


def revert(model: nn.Module) -> nn.Module:
    """Returns the model with the original layers and forwards in place of compiled ones; parameters stay shared."""
    _check_model(model)
    done: dict[nn.Module, nn.Module] = {}

    def original(module: nn.Module, name: str) -> nn.Module | None:
        if isinstance(module, CompiledLayer):
            return core_of(module).original
        plain = original_forward(module)
        return None if plain is None else _replace(plain, original, name, done)

    return _replace(model, original, "", done)


def explain(model: nn.Module, *, verbose: bool = False) -> Report:
    """Returns the layers replaced or refused, with estimates of their time and memory; prints as text.

    Args:
        verbose: Whether the text has more than each layer in brief: all builds, passes that fired, arrays, bytes and
            FLOPs, and the questions that a `Plan` may answer, with answers and options.
    """
    _check_model(model)
    parts = compiled_parts(model)
    uses = [part.part.plan_use for part in parts if isinstance(part.part, Core)]
    unasked = dict.fromkeys(question for use in uses if use is not None for question in use.model.unasked)
    refused = dict(model.__dict__.get("_dacergnn_refused", {}))
    if model in UNTOUCHED and not parts:
        refused = {"": ANOTHER}
    apart = dict(model.__dict__.get("_dacergnn_apart", {})) if parts else {}
    return Report([layer_report(*part) for part in parts], refused, [*unasked], verbose, apart)


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise DacergnnError(f"model is a {type(model).__name__}; pass a torch.nn.Module.")


def _replace(
    module: nn.Module,
    change: Callable[[nn.Module, str], nn.Module | None],
    name: str,
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """Returns a copy of the module tree with changed modules exchanged; subtrees without any are shared."""
    if module in done:
        return done[module]
    result = change(module, name)
    if result is None:
        own: dict[str, nn.Module | None] = vars(module)["_modules"]
        children = {n: m and _replace(m, change, f"{name}.{n}".lstrip("."), done) for n, m in own.items()}
        if all(children[n] is m for n, m in own.items()) and name:
            result = module
        else:
            result = copy.copy(module)
            result.__dict__["_modules"] = children
            # Classes that copy themselves, such as those of fx, lose hooks and attributes that users have set.
            lost = {n: v for n, v in vars(module).items() if "_hooks" in n or n not in vars(result)}
            others = {n: v for n, v in {**vars(result), **lost}.items() if n != "_modules"}
            result.__dict__.update({n: _exchanged(v, done) for n, v in others.items()})
    done[module] = result
    return result


def _exchanged(value: Any, done: dict[nn.Module, nn.Module]) -> Any:
    """Returns the value with changed modules exchanged, if it is a dictionary, list or tuple that holds any."""
    if type(value) is dict:
        kept: dict[Any, Any] = value
        changed = {k: done[m] for k, m in kept.items() if isinstance(m, nn.Module) and done.get(m, m) is not m}
        return {**kept, **changed} if changed else kept
    if type(value) in (list, tuple):
        items: list[Any] = [done.get(m, m) if isinstance(m, nn.Module) else m for m in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
