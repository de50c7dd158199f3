"""Runs and records layers derived from PyG's `MessagePassing` that have no front end of their own."""

from __future__ import annotations

from functools import partial
from inspect import signature
from itertools import zip_longest
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.frontend import is_method
from dacergnn.frontends.pyg.given_edges import is_matrix
from dacergnn.frontends.pyg.message_passing import is_message_passing, message_hooks
from dacergnn.frontends.pyg.static_graphs import static, together
from dacergnn.frontends.pyg.traced_edges import Adjacency, CallEdges, given
from dacergnn.frontends.symbolic import Runtime, Trace
from dacergnn.frontends.symbolic.edges import end_index
from dacergnn.frontends.symbolic.functions import running
from dacergnn.frontends.symbolic.steps import plain_sizes

_NAMES = ("edge_index", "adj")
"""Beginnings of the names of arguments that may be adjacencies."""


class MessagePassingTracer:
    """Wraps the arguments of a layer and of its `propagate`; message, aggregation and update are torch functions.

    A layer that fuses message and aggregation is run by its separate methods.

    Raises:
        UnsupportedLayerError: The layer has an option that no recorded call honours.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module
        if self.module.decomposed_layers != 1:
            raise UnsupportedLayerError(
                "decomposed_layers",
                self.module.decomposed_layers,
                "leave it at 1; nothing is gained from it",
                type(module).__name__,
            )

    def call(self, runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes one call of the layer by programs.

        Raises:
            UnsupportedCallError: A part of the call has no form in a program; the layer is as it was.
        """
        for layer in filter(is_message_passing, self.module.modules()):
            _check_observers(layer)
            _check_replaced(layer)
        if any(isinstance(p, UninitializedParameter) for p in self.module.parameters()):
            raise UnsupportedCallError("the layer has parameters without a shape; they get it in this call.")
        trace = Trace(runtime)
        made: list[tuple[Any, Any]] = []
        edges = CallEdges(trace)
        stand_in = _stand_in(self.module, edges, made)
        args, kwargs = _with_matrices(edges, self.module, args, kwargs)
        args, kwargs = _with_types(edges, self.module.flow, args, kwargs)
        if self.module.node_dim == -2:
            args, kwargs = _with_static(trace, self.module, args, kwargs)
        args, kwargs = trace.wrap(args), trace.wrap(kwargs)
        with running(trace):
            result = type(self.module).forward(stand_in, *args, **kwargs)  # that of an instance runs around this one
        result, changes = trace.finish(together(trace, (result, [_changes(*pair) for pair in made])))
        for (original, _), changed in zip(made, changes, strict=True):
            original.__dict__.update(plain_sizes(changed))
        return result


def _check_observers(layer: Any) -> None:
    """Raises UnsupportedCallError if hooks see the messages of a layer: they may keep them or read their numbers."""
    hooks = message_hooks(layer)
    if hooks is not None:
        raise UnsupportedCallError(f"{hooks} see tensors that a program does not make; remove the hooks.")


def _check_replaced(layer: Any) -> None:
    """Raises UnsupportedCallError if the layer has another method in place of one that would be recorded."""
    for name in _RECORDED:
        if name in vars(layer) and not is_method(type(layer), vars(layer)[name]):
            raise UnsupportedCallError(f"{name} was set on the layer; a program has that of {type(layer).__name__}.")


def _with_static(
    trace: Trace, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with the first parameter of `forward`, the features, marked if the graph is static."""
    if args:
        return (_static(trace, args[0]), *args[1:]), kwargs
    first = [*signature(type(module).forward).parameters][1:2]
    return args, {name: _static(trace, value) if name in first else value for name, value in kwargs.items()}


def _static(trace: Trace, x: Any) -> Any:
    """Marks features [..., N, F] of static graphs, of one end or of both; returns other features as they are."""
    if type(x) in (tuple, list):
        return type(x)([_static(trace, v) for v in x])
    several = type(x) in (Tensor, nn.Parameter) and x.dim() > 2 and x.is_floating_point() and all(x.shape[:-2])
    return static(trace, x) if several else x


def _with_matrices(
    edges: CallEdges, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with adjacencies marked; their names in `forward` tell them from sparse features."""
    if not any(isinstance(t, Tensor) and is_matrix(t) for t in (*args, *kwargs.values())):
        return args, kwargs
    names = [*signature(type(module).forward).parameters][1:]

    def marked(name: str, value: Any) -> Any:
        adjacency = isinstance(value, Tensor) and is_matrix(value) and name.startswith(_NAMES)
        return edges.matrix(value) if adjacency else value

    positional = [marked(name, value) for name, value in zip_longest(names[: len(args)], args, fillvalue="")]
    return tuple(positional), {name: marked(name, value) for name, value in kwargs.items()}


def _with_types(
    given_edges: CallEdges, flow: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with integers [E] marked as types of the edges, and integers [N] as types of the nodes."""
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
    indices = [t for t in tensors if type(t) is Adjacency or _is_index(t)]
    if len(indices) != 1:
        return args, kwargs
    if not any(map(_may_be_types, tensors)):
        return args, kwargs
    edges, shape = given_edges.index(given(indices[0]), flow == "target_to_source").edges, given_edges.trace.shape
    rows = [shape(t)[0] for t in tensors if t.is_floating_point() and t.dim()]
    nodes = [count for count in rows if count != edges.count]

    def marked(value: Any) -> Any:
        if not nodes or not _may_be_types(value):
            return value
        count = shape(value)[0]
        side = "etype" if count == edges.count else "ntype" if any(count == n for n in nodes) else None
        return value if side is None else end_index(edges, side, value)

    return tuple(map(marked, args)), {name: marked(value) for name, value in kwargs.items()}


def _may_be_types(value: Any) -> bool:
    return type(value) is Tensor and value.dtype in (torch.int32, torch.int64) and value.dim() == 1


def _is_index(tensor: Tensor) -> bool:
    """Tells whether a tensor is an edge index, which may be an `EdgeIndex`."""
    kind = type(tensor) is Tensor or hasattr(tensor, "as_tensor")
    return kind and tensor.dtype is torch.int64 and tensor.dim() == 2 and tensor.size(0) == 2


def _stand_in(module: Any, edges: CallEdges, made: list[tuple[Any, Any]]) -> Any:
    """Returns a shallow copy of a layer, and of the layers in it, that records how it propagates."""
    children = {n: _stand_in(m, edges, made) for n, m in module._modules.items() if m is not None and _holds_layers(m)}
    layer = is_message_passing(module)
    if not children and not layer:
        return module
    stand_in = object.__new__(type(module))
    stand_in.__dict__.update(module.__dict__)
    if children:
        stand_in.__dict__["_modules"] = {**module._modules, **children}
    if layer:
        wrap = edges.trace.wrap

        def record(name: str, edge_index: Any, *args: Any, size: Any = None, **kwargs: Any) -> Any:
            index, size, kwargs = edges.propagated(stand_in, name, edge_index, size, kwargs)
            if stand_in.node_dim == -2:
                names = stand_in.inspector.get_flat_param_names(_TAKES_ENDS[name])
                lifted = {argument[:-2] for argument in names if argument.endswith(("_i", "_j"))}
                kwargs = {k: _static(edges.trace, v) if k in lifted else v for k, v in kwargs.items()}
            # Explained layers run the method that their class had before PyG generated a faster one.
            own = f"_orig_{name}" if module.explain and hasattr(type(module), f"_orig_{name}") else name
            return getattr(type(module), own)(stand_in, index, *wrap(args), size=size, **wrap(kwargs))

        stand_in.__dict__.update({name: partial(record, name) for name in _RECORDED})
        explain: Any = vars(module).get("explain_message")
        if hasattr(explain, "__func__"):  # PyG's explainers give a layer a method of its own
            stand_in.__dict__["explain_message"] = MethodType(explain.__func__, stand_in)
        known = edges.trace.runtime.known(module)
        for name in _HOOKS:
            hooks = vars(module)[name]
            if hooks:
                stand_in.__dict__[name] = {key: partial(_hook, hook, known) for key, hook in hooks.items()}
    made.append((module, stand_in))
    return stand_in


def _hook(hook: Any, known: nn.Module, _stand_in: Any, *args: Any) -> Any:
    """Calls a hook with the module that users know."""
    return hook(known, *args)


def _holds_layers(module: nn.Module) -> bool:
    return any(is_message_passing(m) for m in module.modules())


_TAKES_ENDS = {"propagate": ["message", "aggregate", "update"], "edge_updater": ["edge_update"]}
"""The methods whose parameters ``x_i`` and ``x_j`` are rows of an argument ``x``."""
_RECORDED = (*_TAKES_ENDS,)
_OWN = (*_RECORDED, "forward", "_modules", "explain_message")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
"""Tables of hooks; stand-ins have wrapped hooks in theirs."""


def _changes(original: Any, stand_in: Any) -> dict[str, Any]:
    """Returns the attributes that the call has set."""
    before = original.__dict__
    after = {k: v for k, v in stand_in.__dict__.items() if k not in (*_OWN, *_HOOKS)}
    return {k: v for k, v in after.items() if k not in before or before[k] is not v}
