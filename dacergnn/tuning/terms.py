"""Hand-made terms of the time of an operator, in the manner of Halide's model (Adams et al.).

Models predict a coefficient for each, never negative; the time of a program is the sum over its operators.
"""

from __future__ import annotations

import numpy as np

from dacergnn.tuning.features import FEATURE_NAMES, Floats
from dacergnn.tuning.schedules import NANO

TERMS = {
    "flops_ns": 1.0, "streamed_ns": 1.0, "far_ns": 1.0, "gathered_ns": 1.0, "rows_ns": 1.0, "functions_ns": 1.0,
    "ns_waiting": 0.1, "vector_operations": 0.01, "scalar_operations": 0.1, "work": 0.01, "tasks": 100.0, "tiles": 10.0,
    "lines": 0.1, "gathered_lines": 1.0, "rows_outer": 0.1, "rows_inner": 0.1, "allocated_pages": 100.0,
}  # fmt: skip
"""Features that are terms, each with the nanoseconds that one unit of it takes, roughly."""
START_NS = 1000.0
"""The last term: nanoseconds to start an operator."""
COUNT = len(TERMS) + 1
START = 0.5
"""Coefficients before training."""
_COLUMNS = [FEATURE_NAMES[1].index(name) for name in TERMS]
_SCALE = np.array([*TERMS.values()], np.float32)


def terms(dependent: Floats) -> Floats:
    """Returns [operators, COUNT] seconds, from the features that depend on schedule and graph."""
    nanoseconds = np.expm1(dependent[:, _COLUMNS]) * _SCALE
    start = np.full((len(nanoseconds), 1), START_NS, np.float32)
    return np.concatenate((nanoseconds, start), axis=1) / np.float32(NANO)
