"""Layer-wise inference: one layer after the other, and within a layer one range of destinations after the other."""

from dacergnn.layerwise.inference import inference

__all__ = ["inference"]
