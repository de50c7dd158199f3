"""Checks the options of `MessagePassing` layers and the arguments of their calls, for all front ends of PyG layers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.features import SPARSE
from dacergnn.frontends.frontend import Frontend
from dacergnn.graph.checks import IndexRange, as_index_vector, check_kernels, check_ranges

Refuse = Callable[[str, object, str], UnsupportedLayerError]
"""Makes the error of an option, its value and the remedy."""

_STRIDED = torch.strided
_MODULES = {"add": "SumAggregation", "mean": "MeanAggregation", "max": "MaxAggregation", "min": "MinAggregation"}
"""Classes that the layers' own code aggregates with, by `aggr`."""
MESSAGE_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
    "_edge_update_forward_pre_hooks",
    "_edge_update_forward_hooks",
)


def is_message_passing(module: nn.Module) -> bool:
    """Tells whether a module is a `MessagePassing` layer; does not import torch_geometric."""
    return isinstance(module, _message_passing())


def _message_passing() -> Any:
    """Returns the class `MessagePassing`, or an empty tuple if it has not been imported."""
    return getattr(sys.modules.get("torch_geometric.nn.conv.message_passing"), "MessagePassing", ())


class MessagePassingFrontend(Frontend):
    """Represents the front end of a layer derived from PyG's `MessagePassing`."""

    def check_options(self, *aggregations: str) -> str:
        """Returns `aggr`, "add" for "sum"; raises UnsupportedLayerError unless it and the common options fit."""
        return check_options(self.module, self.refuse, aggregations)


def check_options(module: Any, refuse: Refuse, aggregations: tuple[str, ...]) -> str:
    """Returns a layer's `aggr`, "add" for "sum"; raises the error that `refuse` makes of an unsupported option."""
    if module.flow != "source_to_target":
        raise refuse("flow", module.flow, 'swap the rows of edge_index and use "source_to_target"')
    if module.decomposed_layers != 1:
        raise refuse("decomposed_layers", module.decomposed_layers, "leave it at 1; nothing is gained from it")
    if module.explain:
        raise refuse("explain", module.explain, "set it to None; explained layers run as they are")
    hooks = message_hooks(module)
    if hooks is not None:
        raise refuse("hooks", hooks, "remove the message passing hooks of the layer")
    aggr = "add" if module.aggr == "sum" else module.aggr
    if aggr not in aggregations:
        known = ", ".join(f'"{a}"' for a in aggregations)
        raise refuse("aggr", module.aggr, f"use one of {known} as a string")
    if type(module.aggr_module).__name__ != _MODULES[aggr]:
        raise refuse("aggr_module", type(module.aggr_module).__name__, f"aggr is {aggr!r}; let both say the same")
    return aggr


def message_hooks(module: Any) -> str | None:
    """Returns the name of a table with hooks that see tensors within `propagate`; None if there are no such hooks."""
    return next((name.strip("_") for name in MESSAGE_HOOKS if getattr(module, name, None)), None)


def check_edge_index(edge_index: object) -> None:
    """Raises UnsupportedCallError unless `edge_index` is dense [2, E]; ArrayError if its device has no kernels."""
    if not isinstance(edge_index, Tensor) or edge_index.layout is not _STRIDED:
        raise UnsupportedCallError(
            f"edge_index is a {type(edge_index).__name__}; compiled layers take dense tensors [2, E]."
        )
    shape = edge_index.shape
    if len(shape) != 2 or shape[0] != 2:
        raise UnsupportedCallError(f"edge_index has shape {list(shape)}; it must be [2, E].")
    if not edge_index.is_cpu:
        check_kernels("edge_index", edge_index.device)


def check_ids(edges: Tensor, sizes: tuple[int, int]) -> None:
    """Raises GraphError if a source or destination of an edge index [2, E] is out of the range of ``sizes``."""
    sources = IndexRange("edge_index[0]", edges[0], sizes[0], "source nodes", "x")
    check_ranges(sources, IndexRange("edge_index[1]", edges[1], sizes[1], "destination nodes", "x"))


def check_edge_type(edge_type: object) -> None:
    """Raises UnsupportedCallError unless `edge_type` is a tensor that may hold types."""
    if not isinstance(edge_type, Tensor):
        raise UnsupportedCallError("edge_type is missing; pass one type for each edge as a tensor [E].")
    if edge_type.is_floating_point():
        raise UnsupportedCallError(f"types of edges are of {edge_type.dtype}; pass integers.")


def check_relations(edge_type: Tensor, count: int) -> None:
    """Raises GraphError if the type of an edge is none of the ``count`` relations of a layer."""
    types = as_index_vector("edge_type", edge_type)
    check_ranges(IndexRange("edge_type", types, count, "relations in the layer", "num_relations"))


def check_features(name: str, value: object, channels: int) -> Tensor:
    """Returns `value` if it is floating-point [N, channels], dense or sparse; else raises UnsupportedCallError."""
    if not isinstance(value, Tensor) or len(value.shape) != 2 or value.shape[1] != channels:
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise UnsupportedCallError(f"{name} is {shape}; it must be a tensor of shape [N, {channels}].")
    if value.layout is not _STRIDED and value.layout not in SPARSE:
        raise UnsupportedCallError(f"{name} has the layout {value.layout}; convert it with .to_sparse_csr().")
    if not value.dtype.is_floating_point:
        raise UnsupportedCallError(f"{name} has dtype {value.dtype}; features must be floating-point numbers.")
    return value


def reads_type(module: nn.Module, names: Container[str]) -> bool:
    """Tells whether a layer returns edge weights for any bool ``return_attention_weights``, even for False.

    Layers and versions of PyG differ in that: others return weights only if the argument is true.

    Args:
        names: Qualified names of the classes that read the argument; the module's class is one or derives from one.
    """
    layer_class = next(c for c in type(module).__mro__ if f"{c.__module__}.{c.__qualname__}" in names)
    return "bool" in layer_class.forward.__code__.co_names


def channel_pair(channels: Any) -> tuple[int, int]:
    """Returns the `in_channels` of a layer as a pair: for the sources and for the destinations."""
    return (channels, channels) if isinstance(channels, int) else tuple(channels)


def is_pair(x: object) -> bool:
    """Tells whether `x` has separate features of the sources and of the destinations."""
    return isinstance(x, tuple | list)


def known_channels(channels: Any, source: Tensor, destination: Tensor) -> tuple[int, int]:
    """Returns the channels of sources and destinations; for a lazy layer, from the current widths of its weights."""
    (src, dst), widths = channel_pair(channels), (source.size(-1), destination.size(-1))
    return src if src >= 0 else widths[0], dst if dst >= 0 else widths[1]


def ends(x: Any) -> tuple[Any, Any]:
    """Returns the features of sources and of destinations from `x`, which is one tensor for both or a pair."""
    return (x[0], x[1]) if is_pair(x) else (x, x)


def plain(edge_index: Tensor) -> Tensor:
    """Returns an `EdgeIndex` as a torch tensor, and other edge indices as they are."""
    if type(edge_index) is Tensor:
        return edge_index
    as_tensor: Any = getattr(edge_index, "as_tensor", None)
    return as_tensor() if as_tensor is not None else edge_index
