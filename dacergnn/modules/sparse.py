"""Calls with sparse features: the graph with their nonzeros, and the arrays that programs take in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dace
from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.sdfg_passes.sparse_features import SparseProgram, sparse_features
from dacergnn.sdfg_passes.sparse_products import WeightRows


@dataclass(frozen=True)
class SparseArrays:
    """Makes the arrays of a rewritten program from those in ``inputs``, which its author knows."""

    inputs: tuple[str, ...]
    program: SparseProgram

    @classmethod
    def of(cls, sdfg: dace.SDFG, inputs: Sequence[str], sparse: Sequence[str]) -> SparseArrays:
        """For a program of which the inputs ``sparse`` are sparse; UnsupportedCallError where that is not possible."""
        return cls(tuple(inputs), sparse_features(sdfg, sparse))

    def make(self, graph: HeteroGraph, tensors: Sequence[Tensor]) -> tuple[HeteroGraph, list[Tensor]]:
        """The graph with the nonzeros of a call, and the arrays of the program; differentiable."""
        arrays = dict(zip(self.inputs, tensors, strict=True))
        sides = {side: arrays[name] for name, side in self.program.sparse.items()}
        features = graph.with_features(sides.get("S"), sides.get("D"))
        values = {"S": features.src, "D": features.dst}
        made: list[Tensor] = []
        for name, source in self.program.arrays.items():
            if isinstance(source, WeightRows):
                made.append(source.of(arrays[source.source]))
            else:
                own = values[self.program.sparse[name]] if name in self.program.sparse else arrays[source]
                assert own is not None
                made.append(own)
        return features.graph, made
