"""Tracing of layers that are written in torch: recorded values become programs."""

import dacergnn.frontends.symbolic.record  # noqa: F401  # values hand their functions to it
from dacergnn.frontends.symbolic.trace import Runtime, Trace, Tracer

__all__ = ["Runtime", "Trace", "Tracer"]
