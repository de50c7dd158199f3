"""Graph library nodes for DaCe: `SegmentGemm` and `Traversal`, and the statement language of their bodies."""

from dacergnn.library_nodes.form import Const, Op, Ref, Statement
from dacergnn.library_nodes.node import GraphOperator, row_shape, row_space
from dacergnn.library_nodes.segment_gemm import SegmentGemm
from dacergnn.library_nodes.targets import register
from dacergnn.library_nodes.traversal import Traversal

__all__ = [
    "Const",
    "GraphOperator",
    "Op",
    "Ref",
    "SegmentGemm",
    "Statement",
    "Traversal",
    "register",
    "row_shape",
    "row_space",
]
