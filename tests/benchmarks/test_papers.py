"""`python -m benchmarks papers`: facts belong to figures that are measured, and what is found stands beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.caching import facts
from benchmarks.caching.task import Task
from benchmarks.commands import main
from benchmarks.named import Named
from benchmarks.papers import ablation, counted, hector, layers, pigeon, zhang
from benchmarks.papers.artefact import Found, Picture, Scale
from benchmarks.papers.facts import Fact, paper_facts
from benchmarks.papers.layers import CONFIGS, layer_times
from benchmarks.papers.papers import PAPERS, artefacts, chosen
from benchmarks.papers.picture import draw
from benchmarks.papers.report import facts_table, shown
from benchmarks.papers.rows import by_name, no_time
from benchmarks.programs import HOMOGENEOUS
from benchmarks.relational import experiment, ours
from benchmarks.relational.candidate import Candidate
from benchmarks.relational.settings import MODELS
from benchmarks.rows import Group
from dacergnn.bench.process import OUT_OF_MEMORY
from dacergnn.bench.runner import times
from dacergnn.config import LEVELS, PASSES, Config, Rates
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row
from dacergnn.profiling import measure

TINY = Scale(quick=True, data=("am~0.0005",))


@pytest.fixture(autouse=True)
def _forget() -> None:
    for kept in (hector.compared, hector.ablated, experiment.kept):
        kept.cache_clear()


@pytest.mark.parametrize("paper", PAPERS)
def test_facts_are_of_figures_that_are_measured(paper: str) -> None:
    facts = paper_facts(paper)
    known = artefacts(paper)
    assert facts.title
    assert {*facts.facts} <= {*known}
    assert paper == "ablation" or len(facts.facts) >= 3
    for own in facts.facts.values():
        keys = [fact.key for fact in own if fact.key]
        assert len({*keys}) == len(keys)
        assert all(fact.what and fact.place for fact in own)


def test_figures_are_chosen_by_number() -> None:
    assert [*chosen("hector", (8,), (3, 4))] == ["figure 8", "table 3", "table 4"]
    assert chosen("hector", (), ()) == artefacts("hector")
    with pytest.raises(DacergnnError, match="figure=2: hector has none that can be measured; choose from figure 3,"):
        chosen("hector", (2,), ())


def times_of(
    model: str, data: str, mode: str, found: dict[str, float], failed: dict[str, str] | None = None
) -> Group:  # fmt: skip
    """The rows of a layer; others than ours have names with the library before."""
    rows: list[Row] = []
    for name in {**found, **(failed or {})}:
        library, _, own = name.rpartition(" ")
        note = (failed or {}).get(name, "")
        rows.append({"model": model, "data": data, "mode": mode, "library": library or "ours", "name": own,
                     "status": "failed" if note else "ok", "note": note, "ms": found.get(name)})  # fmt: skip
    return Group(tuple(rows))


def speeds(model: str, mode: str, data: str) -> Group:
    slow = 2.0 if data == "mutag" else 1.0
    return times_of(model, data, mode, {"unoptimized": 4.0, "O2": 2.0, "pyg x": 16.0 * slow, "dgl y": 8.0 * slow})


def test_speedups_are_over_the_fastest_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hector, "layer_times", lambda model, data, mode, *_: speeds(model, mode, data))
    scale = Scale(quick=True, data=("aifb", "mutag"))
    found = hector.against_libraries(scale)
    assert found.summary["rgat train mean"] == pytest.approx(4 * 2**0.5)
    assert found.summary["infer best"] == 8
    ranks = hector.worst_mean_best(scale).summary
    assert (ranks["unopt hgt infer worst"], ranks["unopt hgt infer best"]) == (2, 4)
    assert {fact.key for fact in paper_facts("hector").facts["figure 8"]} == {*found.summary}
    assert {fact.key for fact in paper_facts("hector").facts["table 4"]} == {*ranks}
    assert {fact.key for fact in paper_facts("pigeon").facts["table 6"]} == {*pigeon.unoptimized(scale).summary}


def test_what_has_no_time_is_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unoptimized layer is out of memory on one graph, a library's layer fails on the other."""

    def lacking(model: str, data: str, mode: str, *_: Any) -> Group:
        if data == "aifb":
            return times_of(model, data, mode, {"O2": 2.0, "pyg x": 8.0}, {"unoptimized": OUT_OF_MEMORY})
        return times_of(model, data, mode, {"unoptimized": 4.0, "O2": 2.0}, {"dgl y": "ValueError: no types"})

    monkeypatch.setattr(hector, "layer_times", lacking)
    scale = Scale(quick=True, data=("aifb", "mutag"))
    found = hector.worst_mean_best(scale)
    assert (found.summary["unopt rgcn train errors"], found.summary["best rgcn train errors"]) == (1, 0)
    assert "unopt rgcn train mean" not in found.summary
    assert found.summary["best rgcn train mean"] == 4
    shown = hector.against_libraries(scale)
    assert shown.rows[0][3:8] == (None, 2.0, 8.0, None, 4.0)
    assert "rgcn on mutag, training: No time: dgl y: ValueError: no types." in shown.notes


def test_only_want_of_memory_takes_the_time_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(error: Exception) -> Candidate:
        def build(*_: Any) -> Any:
            raise error

        return replace(original("rgcn", "O2", CONFIGS["O2"]), build=build)

    original = ours.candidate
    monkeypatch.setattr(ours, "candidate", lambda *_: failing(RuntimeError("can't allocate memory: 8 GB")))
    found = layer_times("rgcn", "am~0.0005", "infer", TINY, {"O2": CONFIGS["O2"]}, hidden=8)
    assert (found.times, found.failed) == ({}, {"O2": OUT_OF_MEMORY})
    monkeypatch.setattr(ours, "candidate", lambda *_: failing(RuntimeError("wrong shape")))
    with pytest.raises(DacergnnError, match="ours O2: failed RuntimeError: wrong shape"):
        layer_times("rgcn", "am~0.0005", "infer", TINY, {"O2": CONFIGS["O2"]}, hidden=8)


def test_optimizations_are_compared_with_the_unoptimized_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {name: 4.0 / (1 + n) for n, name in enumerate(CONFIGS)}
    monkeypatch.setattr(hector, "layer_times", lambda model, data, mode, *_: times_of(model, data, mode, own))
    found = hector.optimizations(Scale(quick=True, data=("aifb",)))
    assert [found.summary[f"aifb rgat train {name}"] for name in ("C", "R", "C+R")] == [2, 3, 4]
    assert found.summary["average hgt infer R"] == pytest.approx(3)


def test_layers_are_timed_with_those_of_libraries() -> None:
    pytest.importorskip("torch_geometric")
    found = layer_times("rgcn", "am~0.0005", "train", TINY, {"O2": CONFIGS["O2"]}, ("pyg",), hidden=8)
    assert found.times["O2"] > 0
    assert min(row["ms"] for row in found.peers("pyg")) > 0


def test_a_figure_is_shown_and_written(tmp_path: Path) -> None:
    options = ["papers", "hector", "--table", "3", "--quick", "--data", "am~0.0005", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 0, result.output
    for word in ("Hector (ASPLOS 2024)", "the paper's numbers", "wikikg2", "2,500,604"):
        assert word in result.output
    found = json.loads((tmp_path / "hector_table_3.json").read_text())
    assert found["columns"] == ["graph", "nodes", "node types", "edges", "edge types"]
    assert found["machine"]["torch"]
    assert next(f for f in found["facts"] if f["key"] == "mag nodes")["here"] == 1_939_743
    assert (tmp_path / "hector_table_3.png").stat().st_size > 1000
    listed = CliRunner().invoke(main, ["papers", "zhang", "--list"])
    assert "figure 7: " in listed.output


@pytest.mark.interpreted
def test_memory_is_that_of_the_compiled_layer() -> None:
    found = hector.memory(replace(TINY, data=("fb15k~0.005",)))
    (row,) = found.rows
    cells: dict[str, Any] = dict(zip(found.columns, row, strict=True))
    assert 0 < cells["inference MB"] < cells["training MB"]
    assert cells["unique pairs %"] < cells["training with C %"] < 100


def test_operators_are_those_of_the_compiled_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LEAST_CALLS", 1)
    monkeypatch.setattr(measure, "MOST_CALLS", 1)
    monkeypatch.setattr(measure, "_rates", lambda *_: Rates(1e11, 1e10, 1e10, 1e9))
    monkeypatch.setattr(pigeon, "operators", partial(layers.operators, mode="infer"))  # it counts those of the forward
    (work,) = pigeon.attention_work(replace(TINY, data=("fb15k~0.005",))).rows
    assert work[1] > work[2] > 0  # type: ignore[operator]


def test_layers_are_compiled_by_the_rates_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Rates | None] = []

    original = ours.candidate

    def noted(model: str, name: str, config: Config) -> Candidate:
        used.append(config.rates)
        return original(model, name, config)

    monkeypatch.setattr(ours, "candidate", noted)
    rates = Rates(4e13, 3e12, 6e12, 1e11)
    scale = replace(TINY, rates=rates)
    layer_times("rgcn", "am~0.0005", "infer", scale, {"O2": CONFIGS["O2"]}, hidden=8)
    layers.built("rgcn", "am~0.0005", CONFIGS["O2"], scale, 8)
    assert used == [rates, rates]


def test_every_pass_is_left_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = {
        name: {*PASSES} - {*(LEVELS[config.level] if config.passes is None else config.passes)}
        for name, config in ablation.CONFIGURATIONS.items()
    }
    assert left_out["O2"] == set()
    assert all(left_out[name] == {name} for name in PASSES)
    times = {name: 2.0 + n for n, name in enumerate(ablation.CONFIGURATIONS)}
    monkeypatch.setattr(ablation, "_times", lambda *_: times)
    found = ablation.passes(Scale(quick=True))
    assert {row[0] for row in found.rows} == {*MODELS, *HOMOGENEOUS, "all"}
    assert found.rows[0][3:6] == (2.0, 1.5, 2.0)


@pytest.mark.interpreted
def test_equal_programs_have_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr(ablation, "HIDDEN", 8)
    monkeypatch.setattr(ablation, "CONFIGURATIONS", {n: ablation.CONFIGURATIONS[n] for n in ("O2", "none", "hector")})
    monkeypatch.setattr(ablation, "measure", lambda *arguments: times(*arguments)["rows"])
    monkeypatch.setattr(facts, "program_of", lambda layer: "same")
    found = ablation._times("gcn", "am~0.0005", "train", TINY)  # pyright: ignore[reportPrivateUsage]
    assert len({*found.values()}) == 1
    monkeypatch.undo()
    assert ablation._times("rgcn", "am~0.0005", "infer", TINY).keys() == ablation.CONFIGURATIONS.keys()  # pyright: ignore[reportPrivateUsage]


def test_what_programs_need_is_counted_beside_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that fails has no time, and its reason is told; an error of ours is raised."""
    pytest.importorskip("torch_geometric")

    def here(experiment: Any, ways: Any, limits: Any) -> dict[Named, Row]:
        return times(experiment, ways, limits)["rows"]

    monkeypatch.setattr(counted, "measure", here)
    task = Task("gat_by_edge", "arxiv~0.0005", "layer", 8, 8, heads=2)
    ways = (*zhang.ours(("as written", "ours")), Named("pyg", "COO"), Named("pyg", "none"))
    found = counted.counted(task, ways, "train", TINY)
    assert found["ours"]["written_flops"] > found["ours"]["reorganized_flops"] >= found["ours"]["ours_flops"] > 0
    assert found["as written"]["ours_moved"] == found["as written"]["written_moved"] > found["ours"]["ours_moved"]
    assert found["ours"]["ours_memory"] > found["ours"]["ours_between"] > 0
    assert found["pyg COO"]["train_ms"] > 0
    assert no_time(Group(tuple(found.values())).failed) == (
        "No time: pyg none: DacergnnError: PyG has no form 'none' of edges; there are COO, CSR, EdgeIndex."
    )
    with pytest.raises(DacergnnError, match="ours lost: failed DacergnnError: No format"):
        by_name({Named("ours", "lost"): {"status": "failed", "note": "DacergnnError: No format"}})
    full = {Named("ours", "full"): {"status": OUT_OF_MEMORY, "note": ""}}
    assert [*by_name(full, OUT_OF_MEMORY)] == ["full"]
    with pytest.raises(DacergnnError, match="ours full: out of memory"):
        by_name(full)


@pytest.mark.parametrize("kind", [{"lines": True}, {"stacked": True}, {"logarithmic": True, "reference": 1.0}])
def test_pictures(kind: dict[str, Any], tmp_path: Path) -> None:
    found = Found(("a", "b", "c"), [("x", 1.0, None), ("y", 2.0, 3.0)], Picture(("b", "c"), "ms", **kind))
    draw(found, "title", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_numbers_are_shown_short() -> None:
    assert [shown(cell) for cell in (None, "x", 0.123456, 12, 1234.5, 1234567)] == [
        *("-", "x", "0.1235", "12", "1,234", "1,234,567")
    ]
    made = facts_table((Fact("k", "what", 2.0, "here"), Fact("", "other", "1 to 3", "there")), {"k": 3.0}, "t")
    assert made.rows == [("what", "here", "2", "3"), ("other", "there", "1 to 3", "-")]
