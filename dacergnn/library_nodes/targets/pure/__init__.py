"""Defines the target of any machine that DaCe knows: plain SDFG maps with scalar tasklets, a readable reference."""

from __future__ import annotations

from typing import Any

from dacergnn.library_nodes.access import pure_encodings
from dacergnn.library_nodes.plan import OperatorPlan
from dacergnn.library_nodes.targets.cpu import CALL
from dacergnn.library_nodes.targets.pure.expand import expand_pure
from dacergnn.target import Target


def _plan(body: Any, schedule: Any) -> OperatorPlan:
    names = dict.fromkeys(name for s in body.statements for name in pure_encodings(s))
    return OperatorPlan(encodings=tuple(names))


TARGET = Target(
    name="pure",
    device="cpu",
    elements=("float32", "float64"),
    plan_nest=_plan,
    plan_gemm=_plan,
    expand=expand_pure,
    call=CALL,
)
