"""Defines the target of processors with unknown vectors: the kernels of "cpu" as plain loops over single elements.

Processors of x86-64 without AVX2 have vectors of 16 bytes, with which the kernels of "cpu" run several times as fast.
"""

from __future__ import annotations

from dataclasses import replace

import dace.library

from dacergnn.library_nodes.targets.cpp import Headers
from dacergnn.library_nodes.targets.cpu import TARGET as CPU
from dacergnn.library_nodes.targets.cpu import CPUHeaders


@dace.library.environment
class PlainHeaders(Headers):
    """Makes the headers of kernels visible to generated code, behind a header that turns vectors off."""

    headers = {"frame": ["include/dacergnn/plain.h", *CPUHeaders.headers["frame"]]}


TARGET = replace(CPU, name="cpu-scalar", processors=(), environment=PlainHeaders, tunes=False)
