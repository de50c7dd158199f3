"""Pure expansion of Traversal."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.transformation.transformation import ExpandTransformation

from dacergnn.library_nodes.pure import expand_pure


@dace.library.expansion
class ExpandTraversalPure(ExpandTransformation):
    """SDFG maps, one per statement."""

    environments: list[Any] = []

    @staticmethod
    def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> dace.SDFG:
        return expand_pure(node, state, sdfg)
