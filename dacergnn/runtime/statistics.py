"""Keeps the statistics of programs of 16 bits in float32: small arrays whose rounding would spoil differences.

The gradient of a softmax is a difference of values that nearly cancel. It vanishes only if the weights that a forward
saves, and the sums that a backward computes from them, have more digits than the features.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

import dace

from dacergnn.graph.spaces import is_encoding
from dacergnn.library_nodes.node import Typeclass, copied, ordered_operators, row_shape, row_space
from dacergnn.target import find

WIDE = 16
"""Elements from which on a row is a feature, whose memory counts."""
_TYPES = ("ONE", "R", "T")
"""Row spaces of few rows."""


def element_type(sdfg: dace.SDFG) -> Typeclass:
    """Returns the element type of the arrays of a program."""
    types: list[Typeclass] = [desc.dtype for name, desc in sdfg.arrays.items() if not is_encoding(name)]
    return min(types, key=lambda dtype: dtype.bytes)


def with_exact_statistics(sdfg: dace.SDFG, saved: Collection[str]) -> dace.SDFG:
    """Returns a program of 16 bits whose internal arrays with short rows have float32 elements; others as they are.

    Args:
        saved: Inputs and outputs that nobody but another program sees.
    """
    operators = ordered_operators(next(iter(sdfg.states())))
    if not operators or element_type(sdfg).bytes >= 4 or not find(operators[0].implementation).mixes_elements:
        return sdfg
    result = copied(sdfg)
    for name, desc in result.arrays.items():
        internal = (desc.transient or name in saved) and not is_encoding(name)
        if internal and (prod(row_shape(desc)) < WIDE or row_space(desc) in _TYPES):
            desc.dtype = dace.float32
    return result
