"""Data sets: programs come back as they were written, samples as seeds say, runs go on where they stopped."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dace
import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks.commands import main
from benchmarks.learned_model.common_layers import common_layer
from benchmarks.learned_model.dataset import samples_of
from benchmarks.learned_model.records import FORMAT, Rows
from benchmarks.learned_model.written import read, written
from dacergnn import Config, interpret, parse
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.json_lines import Row, Writer, load
from dacergnn.program import Program
from dacergnn.sdfg_passes import compile_program
from dacergnn.tuning import collect, graphs, measure, programs
from dacergnn.tuning.collect import Collector, CollectSettings
from dacergnn.tuning.features import describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.graphs import random_graph
from dacergnn.tuning.measure import RandomArrays, Runnable, TimedStep, Times
from dacergnn.tuning.programs import random_layer

TINY = [
    "--graphs",
    "2",
    "--pool",
    "2",
    "--builds",
    "2",
    "--variants",
    "1",
    "--repeat",
    "3",
    "--limit",
    "inf",
    "--threads",
    "1",
]
"""One thread, as all tests beside others: two processes of two threads on two cores wait at every barrier."""


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "EDGES", (200, 400))
    monkeypatch.setattr(programs, "WIDTHS", (4, 8))
    monkeypatch.setattr(collect, "_ELEMENTS", 1 << 12)


@pytest.fixture
def _quick(_small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built, and the machine counts as undisturbed."""
    monkeypatch.setattr(collect, "Reference", lambda device: lambda: 1.0)


@pytest.mark.parametrize("seed", range(6))
def test_programs_come_back(seed: int) -> None:
    layer = random_layer(seed)
    found = compile_program(parse(layer.text), layer.learned, Config(), dace.int32, TYPICAL, keep=False)
    parts = [found.forward, found.backward]
    again = [read(json.loads(json.dumps(written(part)))) for part in parts]
    facts = GraphFacts.of(random_graph(1))
    one, other = (describe(*given).on(facts) for given in (parts, again))
    for name in ("invariant", "dependent", "edges", "seconds"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert [written(part) for part in again] == [written(part) for part in parts]


def test_programs_come_back_to_compute_the_same() -> None:
    layer, graph = random_layer(3), random_graph(2)
    sdfg = compile_program(parse(layer.text), [], Config(), dace.int32, TYPICAL, keep=False).forward
    rng, program = np.random.default_rng(0), Program(parse(layer.text))
    values = {n: rng.random((graph.size(program.space(n)), *program.shape(n))) - 0.5 for n in program.inputs}
    found, expected = interpret(read(written(sdfg)), graph, **values), interpret(sdfg, graph, **values)
    for name in program.outputs:
        np.testing.assert_array_equal(found[name], expected[name])


def samples(rows: list[Row]) -> list[tuple[int, int, str]]:
    return [(row["layer"], row["plan"], row["graph"]) for row in rows if "seconds" in row]


@pytest.fixture
def collect_into() -> Callable[..., Result]:
    """Runs the command with `TINY`."""

    def run(path: Path, *options: str) -> Result:
        return CliRunner().invoke(main, ["model", "collect", "--out", str(path), *TINY, *options])

    return run


@pytest.mark.interpreted
@pytest.mark.usefixtures("_quick")
def test_runs_go_on_where_they_stopped(tmp_path: Path, collect_into: Callable[..., Result]) -> None:
    path, whole = tmp_path / "samples.jsonl", tmp_path / "whole.jsonl"
    assert collect_into(whole, "--layers", "2").exit_code == 0
    first = collect_into(path, "--layers", "1")
    assert f"{len(samples(load(path)))} samples measured" in first.output
    with path.open("a") as file:
        file.write('{"layer": 1, "torn')
    again = collect_into(path, "--layers", "2")
    assert "1 of 2 cases were in" in again.stderr
    rows, expected = load(path), load(whole)
    assert samples(rows) == samples(expected) != []
    assert [s.layer for s in samples_of(rows)] == [s.layer for s in samples_of(expected)]
    assert len({(r["layer"], r["plan"]) for r in rows if "programs" in r}) >= 6
    for row in rows:
        for mean, deviation in row.get("seconds", ()):
            assert mean > 0 <= deviation
    for other in (["--kind", "common"], ["--repeat", "7"]):
        refused = collect_into(path, "--layers", "2", *other)
        assert "start another file" in f"{refused.exception} {refused.output}"


@pytest.mark.interpreted
@pytest.mark.usefixtures("_quick")
def test_slow_ones_are_left_out() -> None:
    settings = CollectSettings(graphs=2, pool=2, builds=1, variants=0, limit=1e-9, threads=1)
    assert sum("too_slow" in row for row in Rows(Collector(settings)).of(0)) == 2


@pytest.mark.usefixtures("_small")
def test_steps_run_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward gets what the forward has saved: its results are those of the layer on the same arrays."""
    layer, graph = random_layer(1), random_graph(5)
    sdfg = parse(layer.text)
    found = compile_program(sdfg, layer.learned, Config(), dace.int32, Profile.of(graph), keep=False)
    step = TimedStep(Runnable(found, len(Program(sdfg).outputs)), graph, RandomArrays(1 << 12))
    forward, backward = step()
    assert forward > 0
    assert backward is not None
    assert backward > 0
    ticks = iter(range(1000))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: float(next(ticks)))
    assert step() == (1.0, 1.0)
    assert measure.measure({7: step}, 3) == {7: (Times(1.0, 0.0, 3), Times(1.0, 0.0, 3))}
    assert measure.measure({7: step}, 3, limit=1.0) == {}


def test_interrupted_runs_count_as_others() -> None:
    assert Times.of([1.0, 1.0, 1.0, 50.0]) == Times(1.0, 0.0, 4)
    assert Times.of([1.0, 1.5]).mean == 1.25


def test_arrays_do_not_overlap_while_there_is_room() -> None:
    arrays = RandomArrays(100)
    one, other = arrays.take("one", 3, 5), arrays.take("other", 40)
    assert other.data_ptr() - one.data_ptr() == 16 * 4
    assert arrays.take("one", 90).data_ptr() == one.data_ptr()
    assert arrays.take("one", 7, 50).shape == (7, 50)


def test_an_array_has_the_same_numbers_for_all_programs() -> None:
    """A program that draws numbers of its own could be slow by these alone, as very small numbers are."""
    arrays = RandomArrays(100)
    x, other = arrays.take("x", 20), arrays.take("other", 20)
    assert arrays.take("x", 20).data_ptr() == x.data_ptr()
    assert arrays.take("other", 20).data_ptr() == other.data_ptr() != x.data_ptr()
    arrays.start_over()
    assert arrays.take("other", 20).data_ptr() == x.data_ptr()


def test_compressed_files_are_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl.xz"
    path.write_bytes(lzma.compress(b'{"a": 1}\n{"b"'))
    assert load(path) == [{"a": 1}]
    with pytest.raises(DacergnnError, match="xz -d"):
        Writer(path)
    path.write_bytes(b"no such thing")
    with pytest.raises(DacergnnError, match="name a file of records"):
        load(path)
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n[1]\n")
    with pytest.raises(DacergnnError, match="line 2"):
        load(path)


@pytest.mark.interpreted
@pytest.mark.usefixtures("_quick")
def test_small_and_large_graphs_are_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs of large graphs are few, and the file says how many they are."""
    monkeypatch.setitem(collect.SIZES, "small ", (20, 40))
    monkeypatch.setitem(collect.SIZES, "large ", (500, 600))
    monkeypatch.setattr(collect, "_LARGE_BUDGET_S", 0.0)
    made = Rows(Collector(CollectSettings(common_layer, 8, 8, 1, 0, 0.4, 0.3, 9, 0.05, threads=1)))
    rows = [{"format": FORMAT}, *made.of(0), *made.of(1)]
    assert len(samples(rows)) > 4
    edges = {row["graph"]: row["facts"]["rows"]["E"] for row in rows if "facts" in row}
    kinds = {"small": range(20, 41), "large": range(500, 601), "plain": range(200, 401), "typed": range(200, 401)}
    assert {name.split("/")[0].split()[0] for name in edges} >= {"small", "large"}
    assert all(count in kinds[name.split("/")[0].split()[0]] for name, count in edges.items())
    runs = {row["graph"].startswith("large"): row.get("runs") for row in rows if "seconds" in row}
    assert runs == {True: measure.LEAST_RUNS, False: None}
    assert {s.runs for s in samples_of([{**rows[0], "repeat": 9}, *rows[1:]])} == {measure.LEAST_RUNS, 9}


@pytest.mark.parametrize(
    "wrong",
    [
        {"graphs": 0}, {"variants": -1}, {"limit": 0.0}, {"graphs": 9, "pool": 4},
        {"small": 0.7, "large": 0.4},
    ],
)  # fmt: skip
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(DacergnnError, match=next(iter(wrong))):
        CollectSettings(**wrong)


@pytest.mark.usefixtures("_small")
def test_command(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    options = ["--layers", "1", "--graphs", "1", "--pool", "1", "--builds", "1", "--repeat", "2", "--limit", "inf"]
    options += ["--threads", "1"]
    result = CliRunner().invoke(main, ["model", "collect", "--out", str(path), *options, "--build-only"])
    assert result.exit_code == 0, result.output
    assert not path.exists()
    result = CliRunner().invoke(main, ["model", "collect", "--out", str(path), *options])
    assert result.exit_code == 0, result.output
    assert f"{len(samples(load(path)))} samples measured" in result.output


def test_other_files_hold_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"a": 1}\n')
    result = CliRunner().invoke(main, ["model", "judge", "--data", str(path)])
    assert result.exit_code != 0
    assert "no line says how its samples were made" in f"{result.exception} {result.output}"
