"""Passes over inter-operator SDFGs, in the order of `pipeline`."""

from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.compilation import Compilation, PassStep, compile_program
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.differentiate import Gradient, differentiate
from dacergnn.sdfg_passes.gemm_scale_fusion import GemmScaleFusion
from dacergnn.sdfg_passes.pipeline import Pipeline
from dacergnn.sdfg_passes.select_adjacency import SelectAdjacency

__all__ = [
    "Compilation",
    "Context",
    "GemmScaleFusion",
    "Gradient",
    "Pass",
    "PassStep",
    "Pipeline",
    "SelectAdjacency",
    "compile_program",
    "differentiate",
]
