"""Front end for DGL's `GraphConv`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.convolution_programs import gcn
from dacergnn.frontends.derived_values import kept
from dacergnn.frontends.dgl.graphs import (
    check_edge_weight,
    check_in_degrees,
    check_rows,
    coefficients,
    encode_relation,
    is_bipartite,
    relation_sizes,
)
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, ProgramSource, only, spec
from dacergnn.frontends.linear import is_torch
from dacergnn.graph import HeteroGraph
from dacergnn.graph.sorting import occurrences


class GraphConvFrontend(Frontend):
    """Expresses `GraphConv`: rows are scaled by the degrees of both ends, messages by weights of edges."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.graphconv.GraphConv",)
    called: ClassVar[tuple[str, ...] | None] = ("_activation",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.norm: str = self.module._norm
        self.has_bias: bool = self.module.bias is not None

    def edges(self, graph: Any, feat: Any, weight: Any = None, edge_weight: Any = None) -> GraphKey:
        sizes = relation_sizes(graph)
        x, own = feat[0] if isinstance(feat, tuple) else feat, self.parameters["weight"]
        if weight is not None and own is not None:
            self.module.forward(graph, feat, weight, edge_weight)  # raises the layer's own error
        matrix = own if weight is None else weight
        check_rows("feat", x, sizes[0], matrix.size(0) if isinstance(matrix, Tensor) else x.shape[-1])
        if matrix is not None and (matrix.dim() != 2 or matrix.dtype != x.dtype):
            raise UnsupportedCallError(f"weight must be a matrix of {x.dtype}.")
        check_edge_weight(edge_weight, sizes[2], x.dtype)
        return (graph,), (*sizes, is_bipartite(graph), False)

    def result(self, graph: Any, feat: Any, weight: Any = None, edge_weight: Any = None) -> tuple[int, int]:
        matrix = self.parameters["weight"] if weight is None else weight
        x = feat[0] if isinstance(feat, tuple) else feat
        return int(graph.num_dst_nodes()), (x if matrix is None else matrix).size(1)

    def graph_owner(self) -> object:
        return "dgl", "one type"

    def graph(self, graph: Any, *_: Any, **__: Any) -> HeteroGraph:
        return encode_relation(graph)

    @property
    def repeatable(self) -> bool:
        return is_torch(self.module._activation)

    def bind(self, encoded: HeteroGraph, graph: Any, feat: Any, weight: Any = None, edge_weight: Any = None) -> Binding:
        layer = self.module
        check_in_degrees(layer, encoded, graph, feat, weight, edge_weight)
        arrays: dict[str, Tensor | None] = {
            "x": feat[0] if isinstance(feat, tuple) else feat,
            "W": self.parameters["weight"] if weight is None else weight,
            "bias": self.parameters["bias"],
        }
        x = arrays["x"]
        assert x is not None
        if edge_weight is None:
            arrays |= self._ends(encoded, x.dtype)
        else:
            share = self._share(encoded, x.dtype)
            arrays["norm"] = coefficients(encoded, (self.norm, x.dtype), edge_weight, share)
        shape = None if arrays["W"] is None else tuple(arrays["W"].shape)
        factors = tuple([name for name in ("norm", "left", "right") if arrays.get(name) is not None])
        key = shape, x.size(1), factors
        program = self.program(key, partial(self._program, *key))
        present = {n: a for n, a in arrays.items() if a is not None}
        return Binding(program, present, only, reshapes=True, activation=layer._activation)

    def _ends(self, graph: HeteroGraph, dtype: torch.dtype) -> dict[str, Tensor]:
        """Returns the factors of rows that follow from the degrees of sources [NS] and of destinations [ND]."""

        def make() -> dict[str, Tensor]:
            made: dict[str, Tensor] = {}
            ends = (("left", "src", "NS", ("left", "both")), ("right", "dst", "ND", ("right", "both")))
            for name, end, space, norms in ends:
                if self.norm in norms:
                    degrees = occurrences(graph.index("E", end), graph.size(space)).clamp(min=1).to(dtype)
                    made[name] = degrees.pow(-0.5 if self.norm == "both" else -1.0)
            return made

        return kept(graph, ("degrees", self.norm, dtype), None, make)

    def _share(self, graph: HeteroGraph, dtype: torch.dtype) -> Tensor | None:
        """Returns the product [E] of the factors of both ends, in canonical order; None for 1."""

        def make() -> Tensor | None:
            spread = [
                factors.index_select(0, graph.index("E", "src" if name == "left" else "dst"))
                for name, factors in self._ends(graph, dtype).items()
            ]
            if len(spread) == 2:
                return spread[0] * spread[1]
            return spread[0] if spread else None

        return kept(graph, ("degrees of edges", self.norm, dtype), None, make)

    def _program(self, shape: tuple[int, int] | None, k: int, factors: Sequence[str]) -> ProgramSource:
        m = k if shape is None else shape[1]
        spaces = {"norm": "E", "left": "NS", "right": "ND"}
        given = {name: spec(space) if name in factors else None for name, space in spaces.items()}
        return ProgramSource.of(
            gcn, x=spec("NS", k), W=None if shape is None else spec("ONE", k, m), **given,
            bias=spec("ONE", m) if self.has_bias else None, transposed=False, features="x" if shape is None else "h",
        )  # fmt: skip
