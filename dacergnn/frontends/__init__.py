"""Front ends: which layers of other libraries can be compiled, and how.

`find_frontend` matches classes by their qualified names, so neither library is imported before a layer of it
is met.
"""

from __future__ import annotations

from importlib import import_module

from torch import nn

from dacergnn.frontends.frontend import Binding, Frontend, Program
from dacergnn.frontends.pyg.traced import MessagePassingTracer, is_message_passing
from dacergnn.frontends.symbolic import Tracer

__all__ = ["Binding", "Frontend", "Program", "find_frontend", "find_tracer", "handled_classes"]

_PYG = "torch_geometric.nn.conv."
_DGL = "dgl.nn.pytorch.conv."
_FRONTENDS: dict[str, tuple[str, str]] = {
    _PYG + "rgcn_conv.RGCNConv": ("pyg.rgcn", "RGCNFrontend"),
    _PYG + "rgcn_conv.FastRGCNConv": ("pyg.rgcn", "FastRGCNFrontend"),
    _PYG + "rgat_conv.RGATConv": ("pyg.rgat", "RGATFrontend"),
    _PYG + "hgt_conv.HGTConv": ("pyg.hgt", "HGTFrontend"),
    _DGL + "relgraphconv.RelGraphConv": ("dgl.relgraph", "RelGraphFrontend"),
    _DGL + "hgtconv.HGTConv": ("dgl.hgt", "DGLHGTFrontend"),
}
# A subclass that redefines one of these computes something else. PyG writes a generated `propagate` onto
# every class, so that name tells nothing.
_METHODS = ("forward", "message", "message_and_aggregate", "aggregate", "update")


def handled_classes() -> tuple[str, ...]:
    """Qualified names of the layer classes that have a front end."""
    return tuple(_FRONTENDS)


def find_frontend(module: nn.Module) -> type[Frontend] | None:
    """The front end for the class of `module`, or None.

    A subclass of a handled class is taken as that class unless it, or the instance, redefines forward,
    message, aggregation or update.
    """
    if any(method in vars(module) for method in _METHODS):
        return None
    for cls in type(module).__mro__:
        place = _FRONTENDS.get(f"{cls.__module__}.{cls.__qualname__}")
        if place is not None:
            return getattr(import_module(f"{__name__}.{place[0]}"), place[1])
        if any(method in vars(cls) for method in _METHODS):
            return None
    return None


def find_tracer(module: nn.Module) -> type[Tracer] | None:
    """What records the calls of a layer that has no front end, or None if it is no message passing layer."""
    return MessagePassingTracer if is_message_passing(module) else None
