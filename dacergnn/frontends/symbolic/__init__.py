"""Tracing of layers that are written in torch: recorded values become programs."""

from dacergnn.frontends.symbolic.record import record as record_function
from dacergnn.frontends.symbolic.runtime import Runtime
from dacergnn.frontends.symbolic.trace import Trace

__all__ = ["Runtime", "Trace", "record_function"]
