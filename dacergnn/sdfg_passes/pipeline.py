"""The pipeline: one readable list of passes, from a front end's program to fixed access schemes."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import dace

from dacergnn.config import Config
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import verify
from dacergnn.sdfg_passes.differentiate import differentiate
from dacergnn.sdfg_passes.gemm_scale_fusion import gemm_scale_fusion
from dacergnn.sdfg_passes.select_adjacency import select_adjacency

log = logging.getLogger("dacergnn.passes")
OPTIMIZATIONS: dict[str, Callable[[dace.SDFG], int]] = {"gemm_scale_fusion": gemm_scale_fusion}


@dataclass
class Step:
    """What a pass left behind: its name, the SDFGs by role, how often it fired, and its time in seconds."""

    name: str
    sdfgs: dict[str, dace.SDFG]
    fired: int
    seconds: float


@dataclass
class Plan:
    """Result of `compile_program`: what to build, and how it came about.

    ``saved`` are the forward arrays that the backward reads besides the inputs; ``wrt`` the inputs that get a
    gradient, in the order of the backward's outputs.
    """

    forward: dace.SDFG
    backward: dace.SDFG | None
    saved: list[str]
    wrt: list[str]
    steps: list[Step] = field(default_factory=list[Step])


def compile_program(sdfg: dace.SDFG, wrt: Sequence[str], config: Config, index: Typeclass) -> Plan:
    """Run the passes on a copy of ``sdfg``; with names in ``wrt``, also generate the backward."""
    plan = Plan(copy.deepcopy(sdfg), None, [], list(wrt))
    _record(plan, "frontend", lambda: 0)
    _optimize(plan, config, [plan.forward])
    if wrt:
        _record(plan, "differentiate", lambda: _differentiate(plan))
        if plan.backward is not None:
            _optimize(plan, config, [plan.backward])
    _record(plan, "select_adjacency", lambda: _select(plan, config, index))
    return plan


def _optimize(plan: Plan, config: Config, sdfgs: list[dace.SDFG]) -> None:
    for name in config.passes:
        _record(plan, name, lambda name=name: sum(OPTIMIZATIONS[name](s) for s in sdfgs))


def _differentiate(plan: Plan) -> int:
    gradient = differentiate(plan.forward, plan.wrt)
    plan.forward = gradient.forward
    plan.backward = gradient.backward if gradient.wrt else None  # no result depends on any of the inputs
    plan.saved, plan.wrt = gradient.saved, gradient.wrt
    return len(plan.wrt)


def _select(plan: Plan, config: Config, index: Typeclass) -> int:
    sdfgs = [s for s in (plan.forward, plan.backward) if s is not None]
    for sdfg in sdfgs:
        select_adjacency(sdfg, index=index, implementation=config.implementation)
    return len(sdfgs)


def _record(plan: Plan, name: str, run: Callable[[], int]) -> None:
    started = time.perf_counter()
    fired = run()
    roles = {"forward": plan.forward, "backward": plan.backward}
    sdfgs = {role: copy.deepcopy(s) for role, s in roles.items() if s is not None}
    for sdfg in sdfgs.values():
        verify(sdfg)
    plan.steps.append(Step(name, sdfgs, fired, time.perf_counter() - started))
    log.info("%s fired %d times in %.3f s", name, fired, plan.steps[-1].seconds)
