"""The SegmentGemm library node."""

from __future__ import annotations

import dace
import dace.library

from dacergnn.errors import VerificationError
from dacergnn.library_nodes.form import Gemm, Statement, match_gemm
from dacergnn.library_nodes.node import GraphOperator
from dacergnn.library_nodes.segment_gemm.expansions.cpu import ExpandSegmentGemmCPU
from dacergnn.library_nodes.segment_gemm.expansions.pure import ExpandSegmentGemmPure


@dace.library.node
class SegmentGemm(GraphOperator):
    """``Y[S] (+)= s * (X[G] @ W[type])``, or the outer-product form ``dW[type] += s * X[G]^T Y[H]``.

    The body is the one statement that says so: the gather list is the path of X, the scatter list the path
    of the target, the type the path of W; ``W[...].T`` uses the transposed weights. Rows have shape (K,) with
    weights (K, M), or (H, K) with weights (H, K, M) for one product per head.
    """

    implementations = {"pure": ExpandSegmentGemmPure, "cpu": ExpandSegmentGemmCPU}
    default_implementation = "cpu"

    @property
    def gemm(self) -> tuple[Statement, Gemm]:
        """The statement and its operands."""
        (statement,) = self.statements
        gemm = match_gemm(statement)
        if gemm is None:
            raise VerificationError(f'{self.label}: "{self.body[0]}" is not a product that SegmentGemm can run.')
        return statement, gemm

    def validate(self, sdfg: dace.SDFG, state: dace.SDFGState) -> None:
        super().validate(sdfg, state)
        _ = self.gemm
