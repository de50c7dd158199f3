"""Serves "Load Custom Transformations" of VS Code's SDFG extension, which runs this file by its path."""

from __future__ import annotations

from typing import Any, cast

from dace.transformation.optimizer import Optimizer

from dacergnn.sdfg_passes.transformations import TRANSFORMATIONS

__all__ = ["TRANSFORMATIONS"]

# Some versions of the extension ask DaCe's optimizer for this list, which the pinned DaCe does not keep, and then
# show no transformations at all.
if not hasattr(Optimizer, "missed_opportunities"):
    cast("Any", Optimizer).missed_opportunities = ()
