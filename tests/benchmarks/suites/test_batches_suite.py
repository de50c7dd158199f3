"""The suite of sampled batches: networks of all layers, stages of a step, a whole run on a small graph, errors."""

from __future__ import annotations

import copy
import os
import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from benchmarks.batches import BatchSettings, experiment, run, runner
from benchmarks.batches.settings import LAYERS
from benchmarks.batches.stages import Watch, encoding_timed
from benchmarks.commands import main
from benchmarks.networks import network
from benchmarks.networks.loading import BLOCKS, batches, most_reached
from benchmarks.relational.problem import Problem
from benchmarks.rows import grouped
from dacergnn.bench import runner as measures
from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph
from dacergnn.json_lines import load
from dacergnn.modules.graphs import GraphCache
from tests.conftest import ROOT

pytest.importorskip("torch_geometric")
CACHE = os.environ["DACERGNN_CACHE_DIR"]
FIGURES = {
    *(f"{stage}_{kind}_ms" for stage in (*experiment.STAGES, "step", "sample") for kind in ("wall", "processor")),
    *(f"step_{kind}_{fact}" for kind in ("wall", "processor") for fact in ("p20_ms", "p80_ms", "samples")),
    *(f"train_{fact}" for fact in ("ms", "p20_ms", "p80_ms", "samples")),
    *("steps_per_s", "edges", "status", "note", "max_error"),
}


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, data_folder: Path) -> Iterator[list[str]]:
    """Workers answer in this process; lists the experiments that were asked for."""
    monkeypatch.setenv("DACERGNN_CACHE_DIR", CACHE)  # the sampler is built once for all tests
    asked: list[str] = []

    def answer(function: str, case: Any, *arguments: Any, **_: Any) -> dict[str, Any]:
        asked.append(str(case))
        return resolve_name(function)(case, *arguments)

    monkeypatch.setattr(measures, "ask", answer)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield asked
    torch.set_num_threads(threads)


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the libraries' layers in place of ours."""
    monkeypatch.setattr(network, "optimize", lambda module: module)


@pytest.mark.parametrize("layer", LAYERS)
def test_networks_of_all_layers_train(layer: str, in_process: list[str], without_compiler: None) -> None:
    if layer in BLOCKS:
        pytest.importorskip("dgl")
    rows = run(BatchSettings((layer,), "aifb", seeds=(4, 7), fanouts=(3, 2), steps=2, threads=1))
    assert [(row["network"], row["seeds"], row["library"]) for row in rows] == [
        (layer, seeds, library) for seeds in (4, 7) for library in ("PyG", "ours")
    ]
    for row in rows:
        assert row.keys() >= FIGURES
        assert row["edges"] > 0
        assert row["sample_wall_ms"] > 0
        assert row["encode_wall_ms"] == 0


def test_a_run_on_the_command_line(
    in_process: list[str], steady: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, layers = tmp_path / "out.json", ["SAGEConv", "HeteroConv(SAGEConv)"]
    options = ["batches", "--data", "aifb", "--seeds", "4,8", "--fanouts", "3,-1", "--steps", "2"]
    options += ["--threads", "1", "--layers", ",".join(layers), "--json", str(path)]
    result = CliRunner().invoke(main, [*options])
    assert result.exit_code == 0, result.output
    assert in_process == [f"{layer} on aifb, {seeds} seeds" for layer in layers for seeds in (4, 8)]
    for text in (*layers, "encoding", "eager steps/s", "geometric mean of ratio wall", "Results written to"):
        assert text in result.output
    about, *rows = load(path)
    assert {"settings", "environment", "command", "commit", "date"} == about.keys()
    cases = grouped(rows)
    assert [(case["network"], case["seeds"]) for case in cases] == [(layer, n) for layer in layers for n in (4, 8)]
    for case in cases:
        (eager,), (ours,) = case.peers(), case.ours
        assert case["fanouts"] == [3, -1]
        ratio = runner.ratio_of(case, "ratio wall")
        assert ratio is not None
        assert ratio.value == pytest.approx(eager["step_wall_ms"] / ours["step_wall_ms"])
        assert eager["encode_wall_ms"] == 0
        assert 0 < ours["encode_wall_ms"] < ours["step_wall_ms"]
        assert ours["steps_per_s"] == pytest.approx(1e3 / (ours["sample_wall_ms"] + ours["step_wall_ms"]))
    asked = len(in_process)
    assert CliRunner().invoke(main, [*options]).stdout == result.stdout
    assert len(in_process) == asked, "nothing is measured again"
    monkeypatch.syspath_prepend(ROOT / "docs")
    make = runpy.run_path(str(ROOT / "docs" / "make_results.py"))
    figures = make["figures"]("batches", path)
    page = make["replaced"]((ROOT / "docs" / "results" / "batches.md").read_text(), "figures", figures)
    assert figures.count("| SAGEConv |") == figures.count("| HeteroConv(SAGEConv) |") == 2
    assert page.count(figures) == 1
    assert make["replaced"](page, "figures", figures) == page


def test_compiled_layers_are_a_third_candidate(
    in_process: list[str], steady: None, without_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def compile_(network: nn.Module, *, dynamic: bool) -> nn.Module:
        asked.append(dynamic)
        return network

    monkeypatch.setattr(torch, "compile", compile_)
    rows = run(BatchSettings(("SAGEConv",), "aifb", (4,), (2,), steps=1, threads=1, compiled=True))
    assert asked == [True]
    assert [row["library"] for row in rows] == ["PyG", "ours", "compiled"]
    ours, compiled = (row["step_wall_ms"] for row in rows[1:])
    assert runner.steady_ratios(rows)["ratio compiled"].mean == pytest.approx(compiled / ours)


def test_losses_that_differ_are_an_error(in_process: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(nn.Module):
        """Has the right result, but half of the gradient."""

        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network
            self.network.head.weight.register_hook(torch.neg)

        def forward(self, *inputs: Any) -> torch.Tensor:
            return self.network(*inputs)

    monkeypatch.setattr(network, "optimize", lambda module: Wrong(copy.deepcopy(module)))
    options = ["batches", "--data", "aifb", "--layers", "GATConv", "--seeds", "4", "--steps", "3"]
    result = CliRunner().invoke(main, [*options, "--threads", "1"])
    assert result.exit_code == 1
    assert "GATConv: ours: wrong differs from the reference by" in " ".join(result.output.split())


def test_a_process_that_fails_is_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch, data_folder: Path) -> None:
    monkeypatch.setattr(measures, "ask", lambda *_, limit_s, **others: {"error": f"not done after {limit_s:.0f} s"})
    rows = run(BatchSettings(("SAGEConv",), "aifb", (4,), (2,), threads=1))
    assert {(row["status"], row["note"]) for row in rows} == {("failed", "not done after 600 s")}
    assert runner.steady_ratios(rows) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": ("SAGE",)}, r"layers: 'SAGE' \(entry 1\) is unknown; choose from SAGEConv, GATConv"),
        ({"layers": ()}, "layers: name at least one of SAGEConv"),
        ({"seeds": (16, 0)}, "seeds are 16, 0; they must be at least 1"),
        ({"seeds": ()}, "seeds: give at least one number"),
        ({"fanouts": (10, 0)}, "fanouts are 10, 0; they must be at least 1, or -1 for all neighbours"),
        ({"fanouts": (-2,)}, "fanouts are -2; they must be at least 1, or -1 for all neighbours"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"threads": 0}, "threads is 0; it must be at least 1"),
    ],
)
def test_settings_that_cannot_be_met(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DacergnnError, match=message):
        BatchSettings(**options)


def test_options_of_the_command() -> None:
    runs = CliRunner()
    assert "--fanouts" in runs.invoke(main, ["batches", "--help"]).output
    assert "'x' is no list of numbers" in runs.invoke(main, ["batches", "--seeds", "x"]).output


def test_more_seeds_than_nodes(problem: Problem) -> None:
    with pytest.raises(DacergnnError, match="seeds are 99, but the graph has 9 nodes to take them from; give fewer"):
        batches("SAGEConv", problem, 0, 99, [2])


def test_seeds_are_of_the_type_that_most_edges_lead_to(problem: Problem) -> None:
    """One relation with edges leads to type 0, two lead to each of the others, of which the first is taken."""
    assert most_reached(problem) == 1


def test_no_batch_comes_twice(problem: Problem) -> None:
    stream = batches("RGCNConv", problem, 1, 3, [2, 2])
    found = [next(stream) for _ in range(12)]  # three epochs
    assert len({tuple(batch.labels.tolist()) for batch in found}) > 10
    assert all(len(batch.inputs[1][0]) == len(batch.inputs[2]) == batch.edges for batch in found)


def test_a_stage_inside_another_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, processor = iter([1.0, 1.002, 1.022, 1.023]), iter([5.0, 5.002, 5.003, 5.004])
    monkeypatch.setattr(time, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(time, "process_time", lambda: next(processor))
    watch = Watch()
    with watch.time("forward"), watch.time("encode"):
        pass
    expected = {
        ("forward", "wall"): 3.0, ("forward", "processor"): 3.0,
        ("encode", "wall"): 20.0, ("encode", "processor"): 1.0,
    }  # fmt: skip
    assert watch.taken() == pytest.approx(expected)
    assert watch.taken() == {}


def test_encoding_is_timed_in_the_context_alone() -> None:
    def encode() -> None:
        graph = HeteroGraph.from_arrays(torch.tensor([[0, 1, 1], [1, 0, 1]]), None, num_nodes=2)
        GraphCache().encode(lambda: graph)
        graph.build(["idx_E_src"])

    watch, before = Watch(), GraphCache.encode
    with encoding_timed(watch):
        encode()
    assert watch.taken()["encode", "wall"] > 0
    encode()
    assert watch.taken() == {}
    assert GraphCache.encode is before
