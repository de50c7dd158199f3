"""RGCN, RGAT and HGT as modules of our own: the papers' formulas over a `HeteroGraph`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.config import Config
from dacergnn.errors import ArrayError, UnsupportedLayerError
from dacergnn.frontends import ProgramSource, programs
from dacergnn.frontends.frontend import spec
from dacergnn.frontends.parameters import Attributes
from dacergnn.graph import HeteroGraph
from dacergnn.modules.graph_layer import GraphLayer, check_graph


class NativeLayer(GraphLayer):
    """Represents a layer from node features to node features; subclasses declare the program and its other arrays."""

    others: ClassVar[tuple[str, ...]]
    """Names of the arrays of the program other than x, in its order."""

    @abstractmethod
    def program(self) -> ProgramSource:
        """Returns the program and the specifications of its arrays."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Returns the size of a row of the result."""

    @property
    def dtype(self) -> torch.dtype:
        """Returns the element type of the parameters."""
        own = next((p for p in self._parameters.values() if p is not None), None)
        return (next(self.parameters()) if own is None else own).dtype

    def arrays(self, graph: HeteroGraph) -> dict[str, Tensor]:
        """Returns all arrays of the program other than x."""
        values = zip(self.others, self._arrays_of(graph, ()), strict=True)
        return {name: value for name, value in values if value is not None}

    @property
    def _names(self) -> Sequence[str]:
        return "x", *self.others

    def _arrays_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> list[Any]:
        own = Attributes(self)
        return [*inputs, *[own[name] for name in self.others]]

    def _program_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> ProgramSource:
        return self.program()

    def _element_type(self, tensors: Sequence[Tensor]) -> torch.dtype:
        return self.dtype

    def forward(self, x: Tensor, graph: HeteroGraph) -> Tensor:
        """Returns rows [ND, out_channels] for node features x [NS, in_channels].

        Raises:
            ArrayError: x or the graph does not fit the layer.
        """
        check_graph(graph)
        if not isinstance(x, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArrayError("x", f"is a {type(x).__name__}; it must be a tensor with a row for each source node")
        return self.compute(graph, x).flatten(1)


class RGCN(NativeLayer):
    """Computes a relational graph convolution: mean (or sum) over each relation's neighbours, a matrix per relation.

    Args:
        aggr: "mean" over the edges of each (destination, relation), or "add".
    """

    others = ("W", "norm", "root", "bias")

    def __init__(
        self, in_channels: int, out_channels: int, num_relations: int, *, aggr: str = "mean",
        root_weight: bool = True, bias: bool = True, config: Config | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config)
        if aggr not in ("mean", "add"):
            raise UnsupportedLayerError("aggr", aggr, 'use "mean" or "add"', "RGCN")
        self.aggr = aggr
        self.W = nn.Parameter(torch.empty(num_relations, in_channels, out_channels))
        self.root = nn.Parameter(torch.empty(in_channels, out_channels)) if root_weight else None
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    @property
    def width(self) -> int:
        return self.W.size(2)

    @property
    def _options(self) -> tuple[object, ...]:
        return (self.aggr,)

    def program(self) -> ProgramSource:
        _, k, m = self.W.shape
        root, bias = self.root is not None, self.bias is not None
        return ProgramSource.of(
            programs.rgcn, x=spec("NS", k), W=spec("R", k, m), norm=spec("E") if self.aggr == "mean" else None,
            root=spec("ONE", k, m) if root else None, bias=spec("ONE", m) if bias else None,
        )  # fmt: skip

    def _arrays_of(self, graph: HeteroGraph, inputs: Sequence[Any]) -> list[Any]:
        norm = graph.pair_mean_weights(self.W.dtype) if self.aggr == "mean" else None
        return [*inputs, self.W, norm, self.root, self.bias]


class RGAT(NativeLayer):
    """Computes relational graph attention: additive attention over all incoming edges, a matrix per relation.

    ``q`` and ``k`` [heads, out_channels] weigh the transformed destination and source.
    """

    others = ("W", "q", "k", "bias")

    def __init__(
        self, in_channels: int, out_channels: int, num_relations: int, *, heads: int = 1,
        negative_slope: float = 0.2, bias: bool = True, config: Config | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config)
        self.heads, self.channels, self.negative_slope = heads, out_channels, negative_slope
        self.W = nn.Parameter(torch.empty(num_relations, in_channels, heads * out_channels))
        self.q = nn.Parameter(torch.empty(heads, out_channels))
        self.k = nn.Parameter(torch.empty(heads, out_channels))
        self.bias = nn.Parameter(torch.empty(heads, out_channels)) if bias else None
        self.reset_parameters()

    @property
    def width(self) -> int:
        return self.heads * self.channels

    @property
    def _options(self) -> tuple[object, ...]:
        return self.heads, self.channels, self.negative_slope

    def program(self) -> ProgramSource:
        vector = spec("ONE", self.heads, self.channels)
        return ProgramSource.of(
            programs.rgat, x=spec("NS", self.W.size(1)), W=spec("R", *self.W.shape[1:]), q=vector, k=vector,
            bias=vector if self.bias is not None else None, heads=self.heads, channels=self.channels,
            slope=self.negative_slope,
        )  # fmt: skip


class HGT(NativeLayer):
    """Computes a heterogeneous graph transformer layer; ``channels`` come in and go out, divided over ``heads``."""

    others = ("W_k", "W_q", "W_v", "W_att", "W_msg", "pri", "A", "skip")

    def __init__(
        self,
        channels: int,
        num_node_types: int,
        num_relations: int,
        *,
        heads: int = 1,
        config: Config | None = None,
    ) -> None:
        super().__init__(config)
        if heads < 1 or channels % heads != 0:
            raise UnsupportedLayerError("heads", heads, f"use a divisor of channels={channels}", "HGT")
        self.heads, self.dim = heads, channels // heads
        for name in ("W_k", "W_q", "W_v", "A"):
            setattr(self, name, nn.Parameter(torch.empty(num_node_types, channels, channels)))
        for name in ("W_att", "W_msg"):
            setattr(self, name, nn.Parameter(torch.empty(num_relations, heads, self.dim, self.dim)))
        self.pri = nn.Parameter(torch.empty(num_relations, heads))
        self.skip = nn.Parameter(torch.empty(num_node_types))
        self.reset_parameters()

    @property
    def width(self) -> int:
        return self.heads * self.dim

    @property
    def _options(self) -> tuple[object, ...]:
        return self.heads, self.dim

    def program(self) -> ProgramSource:
        width = self.width
        typed, relation = spec("T", width, width), spec("R", self.heads, self.dim, self.dim)
        return ProgramSource.of(
            programs.hgt, x=spec("NS", width), W_k=typed, W_q=typed, W_v=typed, A=typed, W_att=relation, W_msg=relation,
            pri=spec("R", self.heads), skip="T", heads=self.heads, dim=self.dim, width=width, scale=self.dim**-0.5,
        )  # fmt: skip
