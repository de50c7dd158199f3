"""SegmentGemm: typed matrix products with gather and scatter (Hector's GEMM template)."""

from dacergnn.library_nodes.segment_gemm.node import SegmentGemm

__all__ = ["SegmentGemm"]
