"""Layers derived from PyG's `MessagePassing` that have no front end of their own: run as they are, and recorded."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.pyg.message_passing import check_edge_index
from dacergnn.frontends.symbolic import Runtime, Trace, Tracer
from dacergnn.frontends.symbolic.edges import edge_index as recorded_index
from dacergnn.frontends.symbolic.edges import end_index
from dacergnn.frontends.symbolic.value import Value, held


def is_message_passing(module: nn.Module) -> bool:
    """Whether a module is a `MessagePassing` layer; does not import torch_geometric."""
    library = sys.modules.get("torch_geometric.nn.conv.message_passing")
    return library is not None and isinstance(module, library.MessagePassing)


class MessagePassingTracer(Tracer):
    """Wraps the arguments of a layer and what it hands to `propagate`; message, aggregation and update are torch.

    A layer that fuses message and aggregation is run by its separate methods.
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
        if self.module.explain:
            raise UnsupportedCallError("the layer explains its messages; set explain to False.")
        if any(isinstance(p, UninitializedParameter) for p in self.module.parameters()):
            raise UnsupportedCallError("the layer has parameters without a shape; they get it in this call.")
        trace = Trace(runtime)
        made: list[tuple[Any, Any]] = []
        stand_in = _stand_in(self.module, trace, made)
        args, kwargs = _with_types(trace, self.module.flow, args, kwargs)
        args, kwargs = trace.wrap(args), trace.wrap(kwargs)
        with runtime.looking():
            result = stand_in.forward(*args, **kwargs)
        result, changes = trace.results((result, [_changes(*pair) for pair in made]))
        for (original, _), changed in zip(made, changes, strict=True):
            original.__dict__.update(changed)
        return result


def _with_types(
    trace: Trace, flow: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with integers [E] known as the types of the edges, and integers [N] as those of the nodes."""
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor) and t.layout is torch.strided]
    indices = [t for t in tensors if t.dtype is torch.int64 and t.dim() == 2 and t.size(0) == 2 and type(t) is Tensor]
    if len(indices) != 1:
        return args, kwargs
    edges = trace.edge_set(indices[0], flow == "target_to_source")
    nodes = {t.size(0) for t in tensors if t.is_floating_point() and t.dim()} - {edges.count}
    sides = {**dict.fromkeys(nodes, "ntype"), **({edges.count: "etype"} if nodes else {})}

    def marked(value: Any) -> Any:
        integers = type(value) is Tensor and value.dtype in (torch.int32, torch.int64) and value.dim() == 1
        side = sides.get(value.size(0)) if integers else None
        return value if side is None else end_index(edges, side, value)

    return tuple(map(marked, args)), {name: marked(value) for name, value in kwargs.items()}


def _stand_in(module: Any, trace: Trace, made: list[tuple[Any, Any]]) -> Any:
    """A shallow copy of a layer, and of the layers in it, that records how it propagates."""
    children = {n: _stand_in(m, trace, made) for n, m in module._modules.items() if m is not None and _holds_layers(m)}
    layer = is_message_passing(module)
    if not children and not layer:
        return module
    stand_in = object.__new__(type(module))
    stand_in.__dict__.update(module.__dict__)
    if children:
        stand_in.__dict__["_modules"] = {**module._modules, **children}
    if layer:
        propagate, edge_updater = type(module).propagate, type(module).edge_updater

        def record_propagate(edge_index: Any, *args: Any, size: Any = None, **kwargs: Any) -> Any:
            index = _recorded(trace, stand_in, edge_index)
            return propagate(stand_in, index, *trace.wrap(args), size=size, **trace.wrap(kwargs))

        def record_edge_updater(edge_index: Any, *args: Any, size: Any = None, **kwargs: Any) -> Any:
            index = _recorded(trace, stand_in, edge_index)
            return edge_updater(stand_in, index, *trace.wrap(args), size=size, **trace.wrap(kwargs))

        stand_in.__dict__.update(propagate=record_propagate, edge_updater=record_edge_updater)
    made.append((module, stand_in))
    return stand_in


def _recorded(trace: Trace, module: Any, edge_index: Any) -> Any:
    """The edge index of a call, its rows known as the end points of edges."""
    if type(edge_index) is Value:  # an adjacency, perhaps
        edge_index = held(edge_index)
    check_edge_index(edge_index)
    if type(edge_index) is not Tensor:
        raise UnsupportedCallError(f"edge_index is a {type(edge_index).__name__}; traced layers take plain tensors.")
    return recorded_index(trace.edge_set(edge_index, module.flow == "target_to_source"))


def _holds_layers(module: nn.Module) -> bool:
    return any(is_message_passing(m) for m in module.modules())


_OWN = ("propagate", "edge_updater", "_modules")


def _changes(original: Any, stand_in: Any) -> dict[str, Any]:
    """Attributes that the call has set."""
    before = original.__dict__
    return {k: v for k, v in stand_in.__dict__.items() if k not in _OWN and (k not in before or before[k] is not v)}
