"""Compiled layers as torch modules: stand-ins for layers of other libraries, and RGCN, RGAT, HGT of our own."""

from dacergnn.modules.layer import CompiledLayer
from dacergnn.modules.native import HGT, RGAT, RGCN

__all__ = ["HGT", "RGAT", "RGCN", "CompiledLayer"]
