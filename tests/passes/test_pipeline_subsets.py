"""150 random programs on random graphs: any passes and caching, chosen for any sizes, change no result or gradient.

Every program runs through `compile_program` with passes, level and sizes drawn at random, and through the
interpreter; results and gradients are those of torch on the source text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import dace
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dacergnn import Config, parse
from dacergnn.config import LEVELS, PASSES
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.library_nodes import GraphOperator
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, Context, Pass, Pipeline, SelectAdjacency, cheapest, compile_program
from tests.program.golden import PROGRAMS as NAMED
from tests.program.golden import learned, parsed
from tests.support.computed import Computed, assert_same, compute, seeds
from tests.support.random_chains import chains, random_chains
from tests.support.random_graphs import RawGraph, joined_graph
from tests.support.random_programs import Case, random_case
from tests.support.torch_evaluate import torch_evaluate

PROGRAMS, BATCH = 150, 50


def random_config(rng: random.Random) -> Config:
    caching = rng.choice(["cache_all", "cache_all", "recompute_all", "papers", f"budget:{10 ** rng.uniform(2, 8)}"])
    if rng.random() < 0.3:
        return Config(level=rng.choice([*LEVELS]), caching=caching)
    return Config(passes=tuple(name for name in PASSES if rng.random() < 0.7), caching=caching)


def random_profile(rng: random.Random, graph: RawGraph) -> Profile:
    """Sizes that have nothing to do with the graph, so that every decision is taken one way or the other."""
    rows = {space: int(10 ** rng.uniform(0, 6)) for space in ROW_SPACES} | {"ONE": 1}
    return Profile(tuple(rows.items()), graph.hetero().single_typed and rng.random() < 0.7)


def expected(case: Case, outputs: list[str]) -> Computed:
    """Results and gradients by torch."""
    leaves = {n: t.clone().requires_grad_(n in case.wrt) for n, t in case.inputs.items()}
    values, _ = torch_evaluate(case.text, case.graph, leaves)
    results = dict(zip(outputs, values, strict=True))
    arrays = {n: r.detach().numpy() for n, r in results.items()}
    pulled = [n for n, r in results.items() if r.requires_grad]
    if not pulled or not case.wrt:
        return Computed(arrays, {})
    starts = [torch.from_numpy(seed) for n, seed in seeds(arrays).items() if n in pulled]
    wanted = [leaves[n] for n in case.wrt]
    found = torch.autograd.grad([results[n] for n in pulled], wanted, starts, allow_unused=True)
    return Computed(arrays, {n: g.numpy() for n, g in zip(case.wrt, found, strict=True) if g is not None})


def check(case: Case, seed: int) -> Compilation:
    rng = random.Random(seed)
    config, profile = random_config(rng), random_profile(rng, case.graph)
    sdfg = parse(case.text)
    outputs = Program(sdfg).outputs
    plan = compile_program(sdfg, case.wrt, config, dace.int32, profile, keep=False)
    assert_same(compute(plan, outputs, case.graph.hetero(), case.inputs), expected(case, outputs))
    return plan


@pytest.fixture(scope="module", autouse=True)
def _nothing_changes_uncounted() -> Iterator[None]:
    """In all of these programs, a pass that has not fired has left its program as it was."""

    def counted(run: Callable[[Pass, dace.SDFG, Context], int]) -> Callable[[Pass, dace.SDFG, Context], int]:
        def checked(step: Pass, sdfg: dace.SDFG, context: Context) -> int:
            before = content(sdfg)
            count = run(step, sdfg, context)
            assert count or content(sdfg) == before, f"{step} changes a program and does not count it"
            return count

        return checked

    pipeline = Pipeline.of(Config())
    with pytest.MonkeyPatch.context() as patch:
        for kind in map(type, (*pipeline.forward, *pipeline.both)):
            patch.setattr(kind, "run", counted(kind.run))
        yield


def content(sdfg: dace.SDFG) -> object:
    """The very nodes and edges of a program in their order, what the operators hold, and the arrays."""
    state = Program(sdfg).state
    operators = [(n.name, n.body, n.spaces, n.locals) for n in state.nodes() if isinstance(n, GraphOperator)]
    return state.nodes(), state.edges(), operators, list(sdfg.arrays.items()), sdfg.arg_names


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer trials, and no access schemes, which the interpreter does not read."""
    monkeypatch.setattr(cheapest, "MOST_COMBINATIONS", 8)
    monkeypatch.setattr(SelectAdjacency, "run", lambda *_: 0)


@pytest.mark.no_cover
@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_any_subset(first: int) -> None:
    for seed in range(first, first + BATCH):
        case = random_chains(seed) if seed % 10 else random_case(seed)
        case = case if seed % 4 else replace(case, wrt=[])  # inference
        try:
            check(case, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}, gradients of {case.wrt}:\n{case.text}") from error


@pytest.mark.no_cover
@settings(max_examples=10)
@given(chains(), st.integers(0, 2**32 - 1))
def test_any_subset_by_hypothesis(case: Case, seed: int) -> None:
    check(case, seed)


@pytest.mark.no_cover
@pytest.mark.usefixtures("light")
def test_every_pass_fires() -> None:
    """What the programs above are worth: each pass finds work, forward and backward."""
    fired = {(name, role): 0 for name in PASSES for role in ("forward", "backward")}
    for seed in range(2000, 2150):
        if all(count for key, count in fired.items() if key != ("canonical_form", "backward")):
            break
        case, rng = random_chains(seed), random.Random(seed)
        profile = random_profile(rng, case.graph)
        for step in compile_program(parse(case.text), case.wrt, Config(), dace.int32, profile, keep=False).steps:
            for role, count in step.fired.items() if step.name in PASSES else ():
                fired[step.name, role] += count > 0
    assert not fired.pop(("canonical_form", "backward")), "gradients are in one form already"
    assert all(fired.values()), fired


@pytest.mark.parametrize("name", NAMED)
def test_named_programs(name: str) -> None:
    graph = joined_graph(random.Random(1), 12, 40, 5, 3).hetero()
    generator = np.random.default_rng(0)
    sdfg = parsed(name)
    program = Program(sdfg)
    inputs = {
        n: generator.uniform(-1, 1, (graph.size(program.space(n)), *program.shape(n))) / 4 for n in program.inputs
    }
    plans = [
        compile_program(sdfg, learned(name), config, dace.int32, Profile.of(graph), keep=False)
        for config in (Config(passes=()), *(Config(level=level) for level in LEVELS if LEVELS[level]))
    ]
    before, *others = (compute(plan, program.outputs, graph, inputs) for plan in plans)
    for after in others:
        assert_same(after, before)
