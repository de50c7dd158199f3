"""Defines the SegmentGemm library node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dace
import dace.library
from dace import properties

from dacergnn.errors import VerificationError
from dacergnn.library_nodes.form import Gemm, Statement
from dacergnn.library_nodes.node import GraphOperator
from dacergnn.library_nodes.place import at
from dacergnn.library_nodes.plan import Arrays, OperatorPlan
from dacergnn.library_nodes.segment_gemm.plan import ProductBody, ProductSchedule
from dacergnn.target import Target

if TYPE_CHECKING:
    pass


@dace.library.node
class SegmentGemm(GraphOperator):
    """Computes ``Y[S] (+)= s * (X[G] @ W[type])``, or the outer-product form ``dW[type] += s * X[G]^T Y[H]``.

    The path of X is the gather list, the path of the target is the
    scatter list, and the path of W is the type; ``W[...].T`` uses the transposed weights. Rows have shape (K,) with
    weights (K, M), or (H, K) with weights (H, K, M) for one product per head.

    Statements after the product are an epilogue: maps over the rows of the target, run on each row once it is finished.
    A sum over edges before it makes the rows of X, and values of edges after it are computed from the rows of Y
    (`wide_rows`); these rows are local.

    Over rows of types it also multiplies weights with each other. ``compose(A, B)`` is the matrix of a linear by A,
    followed, head by head, by a linear by B; its gradients also contain ``inner(A, Y, H)``.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "cpu"
    schedule_properties = ("split_hubs", "row_tile", "depth_block", "least_blocks")

    split_hubs = properties.Property(
        dtype=bool, default=False, desc="Whether several blocks of a device share very long sums (select_schedule)"
    )
    row_tile = properties.Property(
        dtype=int, default=0, desc="Rows that are multiplied at a time; 0: as many as usual (select_schedule)"
    )
    depth_block = properties.Property(
        dtype=int, default=0, desc="Depth that is multiplied at a time; 0: by the size of the weight (select_schedule)"
    )
    least_blocks = properties.Property(
        dtype=int, default=0, desc="Blocks of a multiprocessor that registers have room for; 0: as many as usual"
    )

    @property
    def gemm(self) -> tuple[Statement, Gemm]:
        """Returns the statement of the product and its operands."""
        statement = next((s for s in self.statements if s.is_gemm), self.statements[0])
        gemm = statement.gemm
        if gemm is None:
            with at(statement.place):
                raise VerificationError(f'{self.name}: "{self.body[0]}" is not a product that SegmentGemm can run.')
        return statement, gemm

    def _plan(self, target: Target, arrays: Arrays) -> OperatorPlan:
        schedule = ProductSchedule(**{name: getattr(self, name) for name in self.schedule_properties})
        return target.plan_gemm(ProductBody(self.statements, arrays, tuple(self.locals)), schedule)

    def validate(self, sdfg: dace.SDFG, state: dace.SDFGState) -> None:
        super().validate(sdfg, state)
        _ = self.gemm
