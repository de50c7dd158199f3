"""Passes over inter-operator SDFGs, in the order of `pipeline`."""

from dacergnn.sdfg_passes.differentiate import Gradient, differentiate
from dacergnn.sdfg_passes.gemm_scale_fusion import gemm_scale_fusion
from dacergnn.sdfg_passes.pipeline import Compilation, Step, compile_program
from dacergnn.sdfg_passes.select_adjacency import select_adjacency

__all__ = [
    "Compilation",
    "Gradient",
    "Step",
    "compile_program",
    "differentiate",
    "gemm_scale_fusion",
    "select_adjacency",
]
