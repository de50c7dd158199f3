"""Front ends for layers of other libraries, by the classes that can be compiled.

`find_frontend` matches classes by their qualified names, so neither library is imported before a layer of it
is met.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature

from torch import nn

from dacergnn.frontends.frontend import Binding, Frontend, ProgramSource, handled_class
from dacergnn.frontends.pyg.message_passing import is_message_passing

__all__ = [
    "Binding", "Frontend", "ProgramSource", "find_frontend", "handled_classes", "is_message_passing",
    "takes_graphs",
]  # fmt: skip

_PYG = "torch_geometric.nn.conv."
_DGL = "dgl.nn.pytorch.conv."
_FRONTENDS: dict[str, tuple[str, str]] = {
    _PYG + "rgcn_conv.RGCNConv": ("pyg.rgcn", "RGCNFrontend"),
    _PYG + "rgcn_conv.FastRGCNConv": ("pyg.rgcn", "FastRGCNFrontend"),
    _PYG + "rgat_conv.RGATConv": ("pyg.rgat", "RGATFrontend"),
    _PYG + "gat_conv.GATConv": ("pyg.gat", "GATFrontend"),
    _PYG + "gatv2_conv.GATv2Conv": ("pyg.gat", "GATv2Frontend"),
    _PYG + "hgt_conv.HGTConv": ("pyg.hgt", "HGTFrontend"),
    _PYG + "gcn_conv.GCNConv": ("pyg.gcn", "GCNFrontend"),
    _PYG + "sage_conv.SAGEConv": ("pyg.sage", "SAGEFrontend"),
    _PYG + "gin_conv.GINConv": ("pyg.gin", "GINFrontend"),
    _PYG + "hetero_conv.HeteroConv": ("pyg.hetero", "HeteroFrontend"),
    _PYG + "edge_conv.EdgeConv": ("pyg.edge_conv", "EdgeConvFrontend"),
    _PYG + "edge_conv.DynamicEdgeConv": ("pyg.edge_conv", "DynamicEdgeConvFrontend"),
    _PYG + "gmm_conv.GMMConv": ("pyg.gmm", "GMMFrontend"),
    _DGL + "relgraphconv.RelGraphConv": ("dgl.relgraph", "RelGraphFrontend"),
    _DGL + "gatconv.GATConv": ("dgl.gat", "DGLGATFrontend"),
    _DGL + "gatv2conv.GATv2Conv": ("dgl.gat", "DGLGATv2Frontend"),
    _DGL + "edgeconv.EdgeConv": ("dgl.edge_conv", "DGLEdgeConvFrontend"),
    _DGL + "gmmconv.GMMConv": ("dgl.gmm", "DGLGMMFrontend"),
    _DGL + "hgtconv.HGTConv": ("dgl.hgt", "DGLHGTFrontend"),
    _DGL + "graphconv.GraphConv": ("dgl.graphconv", "GraphConvFrontend"),
    _DGL + "sageconv.SAGEConv": ("dgl.sage", "DGLSAGEFrontend"),
    _DGL + "ginconv.GINConv": ("dgl.gin", "DGLGINFrontend"),
}


def handled_classes() -> tuple[str, ...]:
    """Returns the qualified names of the layer classes that have a front end."""
    return tuple(_FRONTENDS)


def find_frontend(module: nn.Module) -> type[Frontend] | None:
    """Returns the front end for the class that `module` computes like (`handled_class`), or None."""
    name = handled_class(module, _FRONTENDS, around="forward")
    if name is None:
        return None
    place, frontend = _FRONTENDS[name]
    return getattr(import_module(f"{__name__}.{place}"), frontend)


def takes_graphs(module: nn.Module) -> bool:
    """Returns whether a module is a convolution of DGL without a front end.

    One that holds others is not, since these are compiled by themselves.
    """
    if not _is_convolution(module) or find_frontend(module) is not None:
        return False
    return not any(_is_convolution(p) for p in module.modules() if p is not module)


def _is_convolution(module: nn.Module) -> bool:
    of_dgl = any(c.__module__.startswith(_DGL) for c in type(module).__mro__)
    return of_dgl and [*signature(type(module).forward).parameters][1:2] in (["graph"], ["g"])
