"""Passes over inter-operator SDFGs."""

from dacergnn.sdfg_passes.differentiate import Gradient, differentiate

__all__ = ["Gradient", "differentiate"]
