"""Registers the targets, which turn plans into code; `register` makes another one known."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.transformation.transformation import ExpandTransformation

from dacergnn.errors import DacergnnError
from dacergnn.library_nodes.segment_gemm.node import SegmentGemm
from dacergnn.library_nodes.targets import cpu, cpu_scalar, cuda, pure
from dacergnn.library_nodes.traversal.node import Traversal
from dacergnn.target import TARGETS, Target

__all__ = ["register"]


def register(target: Target) -> None:
    """Makes a target known to `Config.implementation`, and its code an implementation of the library nodes.

    Raises:
        DacergnnError: Another target has the name, which identifies the target of compiled programs.
    """
    if TARGETS.get(target.name, target) is not target:
        raise DacergnnError(f"name={target.name!r}: another target is registered by it; choose another name.")
    TARGETS[target.name] = target
    for operator in (SegmentGemm, Traversal):
        operator.register_implementation(target.name, _expansion(target))  # pyright: ignore[reportUnknownMemberType]


def _expansion(target: Target) -> Any:
    class Expansion(ExpandTransformation):
        """Replaces an operator by the code of a target."""

        environments = [] if target.environment is None else [target.environment]

        @staticmethod
        def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> Any:
            return target.expand([node], [node.arrays(sdfg, state)])

    return dace.library.expansion(Expansion)


for known in (cpu, cuda, cpu_scalar, pure):  # of those for a machine, the first is the default
    register(known.TARGET)
