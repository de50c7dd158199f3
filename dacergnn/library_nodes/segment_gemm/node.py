"""The SegmentGemm library node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dace
import dace.library
from dace import properties

from dacergnn.errors import VerificationError
from dacergnn.library_nodes.device_code import DeviceCode
from dacergnn.library_nodes.form import Gemm, Statement, match_gemm
from dacergnn.library_nodes.node import GraphOperator
from dacergnn.library_nodes.segment_gemm.expansions.cpu import ExpandSegmentGemmCPU
from dacergnn.library_nodes.segment_gemm.expansions.cuda import DeviceGemm, ExpandSegmentGemmCUDA
from dacergnn.library_nodes.segment_gemm.expansions.epilogue import stored_in, sums_start
from dacergnn.library_nodes.segment_gemm.expansions.pure import ExpandSegmentGemmPure

if TYPE_CHECKING:
    from dace.data import Data


@dace.library.node
class SegmentGemm(GraphOperator):
    """``Y[S] (+)= s * (X[G] @ W[type])``, or the outer-product form ``dW[type] += s * X[G]^T Y[H]``.

    The body starts with the statement that says so: the gather list is the path of X, the scatter list the path
    of the target, the type the path of W; ``W[...].T`` uses the transposed weights. Rows have shape (K,) with
    weights (K, M), or (H, K) with weights (H, K, M) for one product per head.

    Statements after it are an epilogue: maps over the rows of the target, run on each row once it is finished.

    Over rows of types it also multiplies weights with each other: ``compose(A, B)`` is the matrix of a linear by A
    and then, head by head, by B; ``inner(A, Y, H)`` is what its gradients consist of besides.
    """

    implementations = {"pure": ExpandSegmentGemmPure, "cpu": ExpandSegmentGemmCPU, "cuda": ExpandSegmentGemmCUDA}
    default_implementation = "cpu"

    split_hubs = properties.Property(
        dtype=bool, default=False, desc="Whether several blocks of a device share very long sums (select_schedule)"
    )

    @property
    def gemm(self) -> tuple[Statement, Gemm]:
        """The statement of the product and its operands."""
        statement = self.statements[0]
        gemm = match_gemm(statement)
        if gemm is None:
            raise VerificationError(f'{self.label}: "{self.body[0]}" is not a product that SegmentGemm can run.')
        return statement, gemm

    def scheme(self, implementation: str, arrays: dict[str, Data]) -> list[str]:
        if implementation == "cuda":
            return DeviceGemm(self, arrays).encodings
        return super().scheme(implementation, arrays)

    def scratch(self, implementation: str, arrays: dict[str, Data]) -> dict[str, int]:
        return DeviceGemm(self, arrays).scratch if implementation == "cuda" else {}

    def in_place(self, implementation: str, arrays: dict[str, Data]) -> set[tuple[str, str]]:
        start, _ = sums_start(self.statements, self.locals, arrays)
        return {(start, stored_in(self.statements, self.locals))} if start and implementation == "cpu" else set()

    def device_code(self, arrays: dict[str, Data]) -> DeviceCode:
        return DeviceGemm(self, arrays).code

    def validate(self, sdfg: dace.SDFG, state: dace.SDFGState) -> None:
        super().validate(sdfg, state)
        _ = self.gemm
