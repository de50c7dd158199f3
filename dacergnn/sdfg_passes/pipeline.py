"""The pipeline: one readable list of passes, from a front end's program to fixed access schemes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import dace

from dacergnn.config import TYPICAL_RATES, Config, Rates, budget_of
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes.node import Typeclass, copied
from dacergnn.plan import Plan
from dacergnn.program import Program, verify
from dacergnn.runtime.free_memory import free_memory
from dacergnn.sdfg_passes.aggregation_order import aggregation_order
from dacergnn.sdfg_passes.cache_or_recompute import cache_or_recompute
from dacergnn.sdfg_passes.canonical_form import canonical_form
from dacergnn.sdfg_passes.choices import Choices, Question, answers
from dacergnn.sdfg_passes.compact_materialization import SIDES, compact_materialization
from dacergnn.sdfg_passes.differentiate import differentiate
from dacergnn.sdfg_passes.gemm_epilogue_fusion import gemm_epilogue_fusion
from dacergnn.sdfg_passes.gemm_scale_fusion import gemm_scale_fusion
from dacergnn.sdfg_passes.linear_operator_reordering import linear_operator_reordering
from dacergnn.sdfg_passes.narrow_products import narrow_products
from dacergnn.sdfg_passes.propagation_postponing import propagation_postponing
from dacergnn.sdfg_passes.select_adjacency import select_adjacency
from dacergnn.sdfg_passes.select_schedule import select_schedule
from dacergnn.sdfg_passes.traversal_fusion import traversal_fusion

log = logging.getLogger("dacergnn.passes")


@dataclass(frozen=True)
class Circumstances:
    """Describes what passes go by: the level, the profile of the graph that the program is compiled for, the machine's
    rates."""

    level: str = "O2"
    profile: Profile = TYPICAL
    rates: Rates = TYPICAL_RATES["cpu"]
    wrt: tuple[str, ...] = ()
    """Inputs that gradients are still to be generated for."""
    aggregation: str = "auto"
    choices: Choices = field(default_factory=Choices)
    """Decides on what its plan knows, and takes notes."""
    implementation: str = "cpu"
    caching: str = "cache_all"

    def of(self, role: str, step: str) -> Circumstances:
        """Those of a pass over one of the programs."""
        return replace(self, choices=self.choices.of(role).of(step))


def _reorder(sdfg: dace.SDFG, given: Circumstances) -> int:
    sizes = None if given.level == "hector" else given.profile.sizes
    return linear_operator_reordering(
        sdfg, sizes, given.rates, single_typed=given.profile.single_typed, choices=given.choices
    )


def _compact(sdfg: dace.SDFG, given: Circumstances) -> int:
    sides = ("srcpair",) if given.level == "hector" else SIDES
    return compact_materialization(sdfg, sides, single_typed=given.profile.single_typed, choices=given.choices)


OPTIMIZATIONS: dict[str, Callable[[dace.SDFG, Circumstances], int]] = {
    "canonical_form": lambda sdfg, given: canonical_form(sdfg),
    "linear_operator_reordering": _reorder,
    "propagation_postponing": lambda sdfg, given: propagation_postponing(sdfg),
    "compact_materialization": _compact,
    "gemm_scale_fusion": lambda sdfg, given: gemm_scale_fusion(sdfg),
    "aggregation_order": lambda sdfg, given: aggregation_order(
        sdfg, given.profile.sizes, given.rates, given.wrt, given.aggregation, given.choices, given.caching
    ),
    "narrow_products": lambda sdfg, given: narrow_products(sdfg),
    "gemm_epilogue_fusion": lambda sdfg, given: gemm_epilogue_fusion(sdfg),
    "traversal_fusion": lambda sdfg, given: traversal_fusion(
        sdfg, given.profile.sizes, given.choices, given.implementation, given.profile.longest
    ),
}
"""The passes in order; those of `FUSIONS` wait until gradients have been generated."""
FUSIONS = ("narrow_products", "gemm_epilogue_fusion", "traversal_fusion")


@dataclass
class Step:
    """Describes what a pass left behind: its name, the SDFGs by role, how often it fired on each, and its time in
    seconds.

    Where a pass did not fire, the SDFG is that of the step before. None of them changes later; there are none where
    `compile_program` was not to keep them.
    """

    name: str
    sdfgs: dict[str, dace.SDFG]
    fired: dict[str, int]
    seconds: float


@dataclass
class Compilation:
    """Result of `compile_program`: what to build, and how it came about.

    ``saved`` are the forward arrays that the backward reads besides the inputs; ``wrt`` the inputs that get a
    gradient, in the order of the backward's outputs. ``keeps`` tells whether steps have their SDFGs. ``asked`` are
    the decisions of the passes; ``plan`` makes them again.
    """

    forward: dace.SDFG
    backward: dace.SDFG | None
    saved: list[str]
    wrt: list[str]
    keeps: bool = True
    steps: list[Step] = field(default_factory=list[Step])
    asked: dict[str, Question] = field(default_factory=dict[str, Question])

    @property
    def parts(self) -> list[dace.SDFG]:
        """Forward and, where there is one, backward."""
        return [part for part in (self.forward, self.backward) if part is not None]

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
    found: Plan | None = None,
    shared: bool = False,
    keep: bool = True,
) -> Compilation:
    """Run the passes on a copy of ``sdfg``; with names in ``wrt``, also generate the backward.

    Args:
        config: What the user says.
        index: Element type of the graph's encodings.
        profile: The graph that choices are made for; the result is right for every graph.
        found: A plan that tuning has found, which decides on what ``config.plan`` leaves open.
        shared: Whether ``config.plan`` is that of other programs, too, which may ask what this one does not.
        keep: Whether to keep a copy of what every pass left behind, which takes as long as the passes.

    Raises:
        DacergnnError: A plan answers a question that no pass asks of this program, or with what is no option.
            Where there is no backward, what it says of one is left aside.
    """
    user = (config.plan or Plan()).of_model()
    choices = Choices(user.over(found or Plan()))
    code = config.implementation or "cpu"
    choices.ask("implementation", (code,), code)  # a plan is one for what it was made for
    given = Circumstances(
        config.level, profile, config.machine, tuple(wrt), config.aggregation, choices, code, config.caching
    )
    early = [name for name in config.selected if name not in FUSIONS]
    late = [name for name in config.selected if name in FUSIONS]
    plan = Compilation(copied(sdfg), None, [], list(wrt), keep, asked=choices.asked)
    results = Program(sdfg).outputs
    _record(plan, "frontend", dict)
    for name in early:
        _record(plan, name, lambda name=name: {"forward": _run(name, "forward", plan.forward, given)})
    if wrt:
        _record(plan, "differentiate", lambda: _differentiate(plan, config.cache))
        given = replace(given, wrt=())
        for name in _of_backward(plan, early, config):
            _record(plan, name, lambda name=name: {"backward": _run(name, "backward", _backward(plan), given)})
        _record(plan, "cache_or_recompute", lambda: _cache(plan, results, config, given))
    for name in late:
        _record(plan, name, lambda name=name: {r: _run(name, r, s, given) for r, s in _sdfgs(plan).items()})
    _record(plan, "select_schedule", lambda: _schedule(plan, code, given))
    _record(plan, "select_adjacency", lambda: _select(plan, config, index, given))
    absent = () if plan.backward is not None else ("backward", "cache_or_recompute")
    choices.check(absent, elsewhere=user.by_question if shared else ())
    return plan


def _run(step: str, role: str, sdfg: dace.SDFG, given: Circumstances) -> int:
    return OPTIMIZATIONS[step](sdfg, given.of(role, step))


def _of_backward(plan: Compilation, passes: list[str], config: Config) -> list[str]:
    """The passes for the backward before fusion: all that rewrite; Hector generates it after C and R (3.5).

    Where the order of sums is given, it is that of the forward, and gradients are what follows from it.
    """
    if plan.backward is None:
        return []
    if config.level == "hector":
        return [name for name in passes if name == "gemm_scale_fusion"]
    given = () if config.aggregation == "auto" else ("aggregation_order",)
    return [name for name in passes if name not in ("canonical_form", *given)]


def _sdfgs(plan: Compilation) -> dict[str, dace.SDFG]:
    return {r: s for r, s in (("forward", plan.forward), ("backward", plan.backward)) if s is not None}


def _backward(plan: Compilation) -> dace.SDFG:
    assert plan.backward is not None
    return plan.backward


def _differentiate(plan: Compilation, kept: Sequence[str]) -> dict[str, int]:
    gradient = differentiate(plan.forward, plan.wrt, kept)
    plan.forward = gradient.forward
    plan.backward = gradient.backward if gradient.wrt else None  # no result depends on any of the inputs
    plan.saved, plan.wrt = gradient.saved, gradient.wrt
    return {"forward": len(plan.saved), "backward": len(plan.wrt)}


def _cache(plan: Compilation, results: list[str], config: Config, given: Circumstances) -> dict[str, int]:
    """Counts the arrays that are saved no more, which both programs show."""
    if plan.backward is None:
        return {}
    before, budget = plan.saved, budget_of(config.caching)
    if config.caching == "auto":
        budget = free_memory(config.implementation or "cpu") / 2
    plan.forward, plan.backward, plan.saved = cache_or_recompute(
        plan.forward, plan.backward, results, given.profile.sizes,
        strategy=config.caching, budget=budget, cache=config.cache, recompute=config.recompute, rates=given.rates,
        choices=given.choices.of("cache_or_recompute"),
    )  # fmt: skip
    return dict.fromkeys(_sdfgs(plan), len({*before} - {*plan.saved}))


def _schedule(plan: Compilation, implementation: str, given: Circumstances) -> dict[str, int]:
    return {
        role: select_schedule(
            sdfg,
            given.profile.sizes,
            given.profile.longest,
            implementation,
            given.of(role, "select_schedule").choices,
        )
        for role, sdfg in _sdfgs(plan).items()
    }


def _select(plan: Compilation, config: Config, index: Typeclass, given: Circumstances) -> dict[str, int]:
    code = config.implementation or "cpu"
    for role, sdfg in _sdfgs(plan).items():
        select_adjacency(
            sdfg,
            index=index,
            implementation=code,
            adjacency=config.adjacency,
            profile=given.profile,
            rates=given.rates,
            choices=given.of(role, "select_adjacency").choices,
        )
    return dict.fromkeys(_sdfgs(plan), 1)


def _record(plan: Compilation, name: str, run: Callable[[], dict[str, int]]) -> None:
    started = time.perf_counter()
    fired = run()
    kept = dict(plan.steps[-1].sdfgs) if plan.steps else {}
    for role, sdfg in _sdfgs(plan).items():
        if fired.get(role) or not plan.steps:
            verify(sdfg)
            if plan.keeps:
                kept[role] = copied(sdfg)
    plan.steps.append(Step(name, kept, fired, time.perf_counter() - started))
    log.info("%s fired %s in %.3f s", name, fired, plan.steps[-1].seconds)
