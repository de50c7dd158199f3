"""Prepares calls with sparse features: the graph holds their nonzeros, and programs take other arrays instead."""

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
    """Makes the arrays of a rewritten program from ``inputs``, the arrays of the program as its author wrote it."""

    inputs: tuple[str, ...]
    program: SparseProgram

    @classmethod
    def of(cls, sdfg: dace.SDFG, inputs: Sequence[str], sparse: Sequence[str]) -> SparseArrays:
        """Rewrites a program for the sparse inputs ``sparse``; raises UnsupportedCallError if that is not possible."""
        return cls(tuple(inputs), sparse_features(sdfg, sparse))

    def make(self, graph: HeteroGraph, tensors: Sequence[Tensor]) -> tuple[HeteroGraph, list[Tensor]]:
        """Returns the graph with the nonzeros of a call, and the arrays of the rewritten program; differentiable."""
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
