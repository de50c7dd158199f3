"""Compiled layers as torch modules."""

from dacergnn.modules.layer import CompiledLayer

__all__ = ["CompiledLayer"]
