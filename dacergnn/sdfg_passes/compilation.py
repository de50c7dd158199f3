"""Compiles programs: runs the passes of a pipeline over a program and its gradients, and keeps every step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import dace

from dacergnn.config import Config
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes.node import Typeclass, copied
from dacergnn.plan import Plan
from dacergnn.program import Program, verify
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.cache_or_recompute import CacheOrRecompute
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.differentiate import Gradient, differentiate
from dacergnn.sdfg_passes.pipeline import Pipeline
from dacergnn.sdfg_passes.questions import Question, Questions, answers
from dacergnn.target import find

log = logging.getLogger("dacergnn.passes")
ROLES = ("forward", "backward")


@dataclass
class PassStep:
    """Describes the result of a pass: its name, the SDFGs by role, how often it fired on each, and its time in seconds.

    Where a pass did not fire, the SDFG is that of the step before. SDFGs do not change later; there are none if
    `compile_program` was not asked to keep them.
    """

    name: str
    sdfgs: dict[str, dace.SDFG]
    fired: dict[str, int]
    seconds: float


@dataclass
class Compilation:
    """Holds the result of `compile_program`: the programs to build, and the steps that led to them.

    ``saved`` are the forward arrays that the backward reads besides the inputs. ``wrt`` are the inputs that get a
    gradient, in the order of the backward's outputs. ``keeps`` tells whether steps have their SDFGs. ``asked`` are the
    decisions of the passes, which ``plan`` repeats.
    """

    forward: dace.SDFG
    backward: dace.SDFG | None
    saved: list[str]
    wrt: list[str]
    keeps: bool = True
    steps: list[PassStep] = field(default_factory=list[PassStep])
    asked: dict[str, Question] = field(default_factory=dict[str, Question])

    @property
    def by_role(self) -> dict[str, dace.SDFG]:
        """Returns the forward and, if there is one, the backward, by their names."""
        return {r: s for r, s in zip(ROLES, (self.forward, self.backward), strict=True) if s is not None}

    @property
    def parts(self) -> list[dace.SDFG]:
        """Returns the same SDFGs without their names."""
        return [*self.by_role.values()]

    @property
    def plan(self) -> Plan:
        return answers(self.asked)


def compile_program(
    sdfg: dace.SDFG,
    wrt: Sequence[str],
    config: Config,
    index: Typeclass,
    profile: Profile = TYPICAL,
    *,
    tuned: Plan | None = None,
    shared: bool = False,
    keep: bool = True,
) -> Compilation:
    """Runs the passes on a copy of ``sdfg``; with names in ``wrt``, also generates the backward.

    Args:
        config: The user's options.
        index: Element type of the graph's encodings.
        profile: The graph that choices are made for; the result is right for every graph.
        tuned: A plan that tuning has found, which decides on what ``config.plan`` leaves open.
        shared: Whether ``config.plan`` also serves other programs, which may ask questions that this one does not.
        keep: Whether to keep copies of the SDFGs after every pass, which takes as long as the passes.

    Raises:
        DacergnnError: A plan answers a question that no pass asks of this program, or its answer is no option.
            If there is no backward, answers about one are ignored.
    """
    user = (config.plan or Plan()).of_model()
    questions = Questions(user.over(tuned or Plan()))
    code = find(config.implementation).name
    questions.ask("implementation", (code,), code)  # a plan is valid for one implementation
    context = Context(profile, config.machine, code, questions)
    pipeline = Pipeline.of(config, wrt, index)
    compilation = Compilation(copied(sdfg), None, [], list(wrt), keep, asked=questions.asked)
    results = Program(sdfg).outputs
    _record(compilation, "frontend", dict)
    for step in pipeline.forward:
        _run(compilation, step, context)
    if wrt:
        _record(compilation, "differentiate", lambda: _differentiate(compilation, config.cache))
        for step in pipeline.backward if compilation.backward is not None else ():
            _run(compilation, step, context, roles=("backward",))
        _record(compilation, pipeline.caching.name, lambda: _cache(compilation, pipeline.caching, results, context))
    for step in pipeline.both:
        _run(compilation, step, context)
    absent = () if compilation.backward is not None else ("backward", pipeline.caching.name)
    questions.check(absent, elsewhere=user.by_question if shared else ())
    return compilation


def _run(compilation: Compilation, step: Pass, context: Context, roles: Collection[str] = ROLES) -> None:
    """Runs a pass over the programs of some roles."""
    sdfgs = {role: sdfg for role, sdfg in compilation.by_role.items() if role in roles}
    _record(
        compilation, step.name, lambda: {r: step.run(sdfg, context.of(f"{r}/{step.name}")) for r, sdfg in sdfgs.items()}
    )


def _differentiate(compilation: Compilation, kept: Sequence[str]) -> dict[str, int]:
    gradient = differentiate(compilation.forward, compilation.wrt, kept)
    compilation.forward = gradient.forward
    compilation.backward = gradient.backward if gradient.wrt else None  # no result depends on any of the inputs
    compilation.saved, compilation.wrt = gradient.saved, gradient.wrt
    return {"forward": len(compilation.saved), "backward": len(compilation.wrt)}


def _cache(compilation: Compilation, caching: CacheOrRecompute, results: list[str], context: Context) -> dict[str, int]:
    """Runs ``caching`` on both programs; returns for each how many arrays are no longer saved."""
    if compilation.backward is None:
        return {}
    before = Gradient(compilation.forward, compilation.backward, compilation.saved, compilation.wrt)
    after = caching.run(before, results, context.of(caching.name))
    compilation.forward, compilation.backward, compilation.saved = after.forward, after.backward, after.saved
    return dict.fromkeys(compilation.by_role, len({*before.saved} - {*after.saved}))


def _record(compilation: Compilation, name: str, run: Callable[[], dict[str, int]]) -> None:
    started = time.perf_counter()
    fired = run()
    kept = dict(compilation.steps[-1].sdfgs) if compilation.steps else {}
    for role, sdfg in compilation.by_role.items():
        if fired.get(role) or not compilation.steps:
            verify(sdfg)
            if compilation.keeps:
                kept[role] = copied(sdfg)
    compilation.steps.append(PassStep(name, kept, fired, time.perf_counter() - started))
    log.info("%s fired %s in %.3f s", name, fired, compilation.steps[-1].seconds)
