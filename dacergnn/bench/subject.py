"""Makes what users compare: a layer of PyG by name on a graph by name, or the model that a function of theirs makes."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dacergnn import datasets
from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph

TYPED = {"rgcn": "RGCNConv", "rgat": "RGATConv", "hgt": "HGTConv"}
PLAIN = {"gcn": "GCNConv", "gat": "GATConv", "gatv2": "GATv2Conv", "sage": "SAGEConv"}
"""Layers that take all edges of a graph alike."""
LAYERS = (*TYPED, *PLAIN)
WITH_HEADS = ("rgat", "gat", "gatv2")


@dataclass(frozen=True)
class Subject:
    """Names what is compared.

    Args:
        source: MODULE:FUNCTION, a function that returns a model and the arguments of a call; "" for a layer by name.
        layer: One of `LAYERS`.
        data: Name of the graph.
        features: Features in and out of the layer.
        heads: Heads of a layer that attends.
        device: Type of torch's device that everything runs on.
    """

    source: str = ""
    layer: str = "rgat"
    data: str = "aifb"
    features: int = 64
    heads: int = 1
    device: str = "cpu"

    def __str__(self) -> str:
        return self.source or f"{self.layer} on {self.data}"

    def made(self) -> tuple[nn.Module, tuple[Any, ...]]:
        """Returns the model as its library has it, and the arguments of a call, the same ones at each time."""
        torch.manual_seed(0)
        model, arguments = made_by(self.source) if self.source else self._layer()
        if self.device == "cpu":
            return model, arguments
        return model.to(self.device), tree_map_only(Tensor, self._moved, arguments)

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to(self.device).requires_grad_(tensor.requires_grad)

    def _layer(self) -> tuple[nn.Module, tuple[Any, ...]]:
        try:
            pyg = importlib.import_module("torch_geometric.nn")
        except ImportError as error:
            raise DacergnnError(
                f"layer={self.layer!r}: the original is PyG's, which cannot be imported here ({error}); install it "
                "with pip install 'dacergnn[pyg]', or name MODULE:FUNCTION."
            ) from None
        size, graph = self.features, datasets.resolve(self.data).graph
        ends = torch.stack([graph.index("E", end).long() for end in ("src", "dst")])
        x = torch.randn(graph.size("NS"), size, requires_grad=True)
        if self.layer == "hgt":
            rows, edges = by_type(graph, x, ends)
            return pyg.HGTConv(size, size, ([*rows], [*edges]), heads=self.heads), (rows, edges)
        relations = (graph.size("R"),) if self.layer in TYPED else ()
        heads = {"heads": self.heads} if self.layer in WITH_HEADS else {}
        make: Any = getattr(pyg, (TYPED | PLAIN)[self.layer])
        layer = make(size, size // self.heads if heads else size, *relations, **heads)
        return layer, (x, ends, graph.index("E", "etype").long()) if relations else (x, ends)


def by_type(graph: HeteroGraph, x: Tensor, ends: Tensor) -> tuple[dict[str, Tensor], dict[Any, Tensor]]:
    """Returns rows of nodes by the name of their type, and edges by the names of their types, as PyG takes them."""
    ntype, etype = graph.index("NS", "ntype").long(), graph.index("E", "etype").long()
    own = [(ntype == kind).nonzero().squeeze(1) for kind in range(graph.size("T"))]
    place = torch.empty_like(ntype)
    for nodes in own:
        place[nodes] = torch.arange(len(nodes))
    kinds, of_edge = torch.stack([ntype[ends[0]], etype, ntype[ends[1]]]).unique(dim=1, return_inverse=True)
    edges: dict[Any, Tensor] = {}
    for number, (source, relation, destination) in enumerate(kinds.t().tolist()):
        edges[f"t{source}", f"r{relation}", f"t{destination}"] = place[ends[:, of_edge == number]]
    return {f"t{kind}": x.detach()[nodes].requires_grad_() for kind, nodes in enumerate(own)}, edges


def made_by(source: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Returns the model and the arguments that a function of the user returns.

    Raises:
        DacergnnError: There is no such function, or it returns something else.
    """
    module, _, function = source.partition(":")
    if not function:
        raise DacergnnError(f"{source} names no function; pass MODULE:FUNCTION.")
    sys.path.insert(0, "")  # modules of the working directory, as `python -m` finds them
    try:
        make: Any = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise DacergnnError(f"{source}: {error}; name a function of a module that Python finds here.") from error
    finally:
        sys.path.remove("")
    if not callable(make):
        raise DacergnnError(f"{source} is no function; name one that returns a model and a tuple of arguments.")
    made: Any = make()
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], tuple):  # pyright: ignore[reportUnknownArgumentType]
        raise DacergnnError(f"{source} returned {type(made).__name__}; return a model and a tuple of arguments.")  # pyright: ignore[reportUnknownArgumentType]
    return made  # pyright: ignore[reportUnknownVariableType]
