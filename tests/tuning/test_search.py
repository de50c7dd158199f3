"""Searches by a model: what it is told to prefer is what programs get, and they stay right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dace
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from dacergnn import Config, HeteroGraph, Plan, explain, optimize, parse
from dacergnn.cli import main
from dacergnn.cli import tune as command
from dacergnn.errors import DacergnnError
from dacergnn.modules import RGAT, lowered_program, programs
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning import tuned
from dacergnn.tuning.features import FEATURE_NAMES, THREADS, ProgramFeatures, describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.graphs import random_graph
from dacergnn.tuning.predictor import Analytic
from dacergnn.tuning.programs import random_layer
from dacergnn.tuning.search import beam_search, predicted, settle_schedules
from dacergnn.tuning.space import needs_build
from tests.support.computed import assert_same, compute

TILES = FEATURE_NAMES[1].index("tile_rows")


@dataclass
class Likes:
    """A model to which ``taste`` tells the seconds of a program."""

    taste: Callable[[ProgramFeatures], float]
    threads: int = THREADS

    def predict(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        return np.array([self.taste(program) for program in programs])

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        return np.log(self.predict(programs))[None]


class Divided(Likes):
    """A model of two members; where the first sees a gain, the second sees half as large a loss."""

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        (logs,) = super().logarithms(programs)
        return np.stack([logs, -logs / 2])


SMALL_TILES = Likes(lambda program: 1.0 + float(program.dependent[:, TILES].sum()))
INDIFFERENT = Likes(lambda program: 1.0)


@pytest.fixture(scope="module")
def graph() -> HeteroGraph:
    rng = np.random.default_rng(0)
    return HeteroGraph.from_arrays(rng.integers(20, size=(2, 90)), rng.integers(3, size=90), num_nodes=20)


def compiler(
    seed: int, graph: HeteroGraph, dtype: Any = dace.float32
) -> tuple[dace.SDFG, Callable[[Plan], Compilation]]:
    layer = random_layer(seed)
    sdfg, facts = parse(layer.text, dtype=dtype), GraphFacts.of(graph)

    def run(plan: Plan) -> Compilation:
        return compile_program(sdfg, layer.learned, Config(plan=plan), dace.int32, facts, keep=False)

    return sdfg, run


def tiles(found: Compilation, facts: GraphFacts) -> tuple[set[int], set[int]]:
    """Lengths of the tiles that are asked about: of operators that take 5 % of the cost or more, and of the others."""
    asked = {q.split("/")[2] for q in found.asked if q.endswith("/tile_rows")}
    operators: list[Any] = [o for part in found.parts for o in Program(part).operators]
    seconds = describe(*found.parts).on(facts).seconds
    pairs = [(o.tile_rows, s >= 0.05 * seconds.sum()) for o, s in zip(operators, seconds, strict=True)
             if o.statements[0].target.name in asked]  # fmt: skip
    return {rows for rows, long in pairs if long}, {rows for rows, long in pairs if not long}


@pytest.mark.parametrize("seed", range(3))
def test_schedules_are_settled_by_the_model(seed: int, graph: HeteroGraph) -> None:
    _, run = compiler(seed, graph)
    found, facts = run(Plan()), GraphFacts.of(graph)
    before = tiles(found, facts)
    assert settle_schedules(found, facts, SMALL_TILES) == predicted(found, facts, SMALL_TILES)
    assert tiles(found, facts) == ({64}, before[1])
    again = run(found.plan)
    assert tiles(again, facts) == ({64}, before[1])
    assert predicted(again, facts, SMALL_TILES) == predicted(found, facts, SMALL_TILES)


@pytest.mark.parametrize("model", [INDIFFERENT, Divided(SMALL_TILES.taste)], ids=["indifferent", "divided"])
def test_nothing_changes_without_a_clear_gain(model: Likes, graph: HeteroGraph) -> None:
    _, run = compiler(1, graph)
    found, before, facts = run(Plan()), run(Plan()).plan, GraphFacts.of(graph)
    seconds = predicted(found, facts, model)
    assert settle_schedules(found, facts, model) == seconds
    assert found.plan == before


def test_what_is_given_stays(graph: HeteroGraph) -> None:
    _, run = compiler(1, graph)
    question = next(q for q in run(Plan()).asked if q.endswith("/tile_rows"))
    given = Plan.of({question: "1024"})
    found = run(given)
    settle_schedules(found, GraphFacts.of(graph), SMALL_TILES, given)
    assert found.asked[question].answer == "1024"
    assert tiles(found, GraphFacts.of(graph))[0] == {64, 1024}


def test_the_beam_finds_what_the_model_prefers(graph: HeteroGraph) -> None:
    """Fewer operators, here: plans that merge loops."""
    _, run = compiler(4, graph)
    fewest = Likes(lambda program: float(len(program.seconds)))
    steps: list[int] = []
    best = beam_search(
        run, GraphFacts.of(graph), fewest, width=2, depth=2, evaluations=16, on_step=lambda _, n: steps.append(n)
    )
    assert [c.seconds for c in best] == sorted(c.seconds for c in best)
    assert best[0].seconds <= predicted(run(Plan()), GraphFacts.of(graph), fewest)
    assert len({c.found.plan for c in best}) == len(best) > 2
    assert all(len(c.plan.answers) <= 2 and all(map(needs_build, c.plan.by_question)) for c in best)
    assert 0 < steps[-1] <= 16


def test_candidates_compute_the_same(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dacergnn.tuning.programs.WIDTHS", (4, 8))
    sdfg, run = compiler(2, graph, dace.float64)
    program, rng = Program(sdfg), np.random.default_rng(1)
    values = {n: rng.uniform(-0.5, 0.5, (graph.size(program.space(n)), *program.shape(n))) for n in program.inputs}
    expected = compute(run(Plan()), program.outputs, graph, values)
    for candidate in beam_search(run, GraphFacts.of(graph), SMALL_TILES, width=2, depth=1, evaluations=12)[:4]:
        assert_same(compute(candidate.found, program.outputs, graph, values), expected)


def test_the_fastest_is_taken(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    search = partial(beam_search, width=2, depth=2, evaluations=12)  # enough plans to choose among
    monkeypatch.setattr(tuned, "beam_search", search)
    sdfg, run = compiler(3, graph)
    searched = search(run, GraphFacts.of(graph), Analytic())
    plans = [run(Plan()).plan, *(candidate.found.plan for candidate in searched)]

    def fastest(steps: Mapping[int, Any]) -> int:
        assert all(seconds > 0 for step in steps.values() for seconds in step())
        assert 3 < len(steps) == min(tuned.MEASURED, len(plans))
        return 3

    monkeypatch.setattr(tuned, "fastest", fastest)
    found = tuned.tuned(sdfg, random_layer(3).learned, Config(tune="measure"), dace.int32, graph, Analytic())
    assert found.plan == plans[3]


def test_the_best_of_a_first_round_are_run_again() -> None:
    """Of eight, the fourth seems to be the fastest for as long as all are run."""
    runs: Counter[int] = Counter()

    def step(number: int) -> tuple[float, float | None]:
        runs[number] += 1
        return (1.0 if number == 3 and runs[number] <= 1 + tuned.REPEAT else 2.0 + number, 0.5)

    steps: dict[int, Any] = {number: partial(step, number) for number in range(8)}
    assert tuned.fastest(steps) == 0
    once, again = 1 + tuned.REPEAT, 2 + tuned.REPEAT + tuned.FINAL_REPEAT
    assert [runs[number] for number in range(8)] == [again] * tuned.FINALISTS + [once] * (8 - tuned.FINALISTS)


@pytest.fixture
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "EVALUATIONS", 6)
    monkeypatch.setattr(tuned, "model_of", lambda chosen: SMALL_TILES)
    monkeypatch.setattr(
        lowered_program, "model_digest", lambda chosen: "small tiles"
    )  # tells its plans from those of others


def layer(config: Config) -> RGAT:
    torch.manual_seed(0)
    return RGAT(8, 8, 3, config=config)


def answers(of: RGAT) -> dict[str, str]:
    (report,) = explain(of).layers
    (build,) = report.builds
    return {q: a for q, a in build.plan.by_question.items() if q.endswith("tile_rows")}


@pytest.mark.usefixtures("_small_tiles")
def test_layers_are_tuned(graph: HeteroGraph) -> None:
    x = torch.randn(20, 8, requires_grad=True)
    plain, other = layer(Config()), layer(Config(tune="model"))
    for each in (plain, other):
        each(x, graph).square().sum().backward()
    torch.testing.assert_close(other(x, graph), plain(x, graph))
    assert set(answers(other).values()) == {"64"} != set(answers(plain).values())
    programs.compiled_program.cache_clear()
    again = layer(Config(tune="model"))  # what a search has found is kept on disk
    tuned.model_of = lambda chosen: pytest.fail("searched again")
    again(x, graph).square().sum().backward()
    assert answers(again) == answers(other)


@pytest.mark.usefixtures("_small_tiles")
def test_optimize_tunes(graph: HeteroGraph) -> None:
    from torch_geometric.nn import RGCNConv

    model = optimize(RGCNConv(8, 8, 3), graph, config=Config(tune="model"))
    model(
        torch.randn(20, 8), torch.stack([graph.index("E", "src"), graph.index("E", "dst")]), graph.index("E", "etype")
    )
    (report,) = explain(model).layers
    (build,) = report.builds
    assert {a for q, a in build.plan.by_question.items() if q.endswith("tile_rows")} <= {"64"}


def test_the_model_of_the_package_predicts(graph: HeteroGraph) -> None:
    _, run = compiler(1, graph)
    seconds = predicted(run(Plan()), GraphFacts.of(graph), tuned.shipped())
    assert 1e-6 < seconds < 1e-2


def test_ways_are_checked() -> None:
    with pytest.raises(DacergnnError, match="tune='quick'"):
        Config(tune="quick")
    with pytest.raises(DacergnnError, match="model=5 is a int; pass the path of a file as text"):
        Config(model=5)  # type: ignore[arg-type]
    with pytest.raises(DacergnnError, match="deterministic='yes' is a str; pass True or False"):
        Config(deterministic="yes")  # type: ignore[arg-type]


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(command, "shipped", lambda: SMALL_TILES)
    monkeypatch.setattr(command, "compiled_layer", lambda *given, device: called)
    small = random_graph(1)
    called = RGAT(8, 8, small.size("R"))
    called(torch.randn(small.size("NS"), 8), small).sum().backward()
    path = tmp_path / "plan.json"
    options = [
        "--layer",
        "rgat",
        "--graph",
        "aifb",
        "--mode",
        "infer",
        "--depth",
        "1",
        "--evaluations",
        "4",
        "--top",
        "2",
        "--out",
        str(path),
    ]
    result = CliRunner().invoke(main, ["tune", "run", *options])
    assert result.exit_code == 0, result.output
    for word in ("hector", "O0", "plan 1", "4 plans"):
        assert word in result.output
    assert Plan.from_json(path.read_text()).answers
