"""The suite of caching strategies: cases, the file of results, a whole run on a small graph, tables."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from benchmarks.caching import CachingSettings, candidates, load, run
from benchmarks.caching.analysis import choices
from benchmarks.caching.experiment import TaskExperiment
from benchmarks.caching.report import tables
from benchmarks.caching.scheme import parse
from benchmarks.caching.task import Limits, Task
from benchmarks.commands import main
from benchmarks.rows import grouped
from dacergnn.bench import runner
from dacergnn.bench.runner import times
from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row

Asked = tuple[str, Task, Any]
LIMITS = Limits(threads=torch.get_num_threads(), repeat=2, budget_s=0.1)
TINY: dict[str, Any] = {
    "models": ("gcn",), "data": ("arxiv~0.0005",), "networks": ("layer",), "hidden": (8,), "gradients": ("with",),
    "strategies": ("cache_all", "recompute_all"), "limits": LIMITS,
}  # fmt: skip


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Workers answer in this process, and ours are the libraries' layers; lists what was asked."""
    pytest.importorskip("torch_geometric")
    asked: list[Asked] = []

    def answer(function: str, *arguments: Any, **_: Any) -> dict[str, Any]:
        experiment, candidates, *others = pickle.loads(pickle.dumps(arguments))
        asked.append((function.rpartition(".")[2], experiment.task, candidates))
        return {"peak_mb": 3.0} if function.endswith("peak") else times(experiment, candidates, *others)

    monkeypatch.setattr(runner, "ask", answer)
    monkeypatch.setattr(candidates, "optimize", lambda network, *_, **__: network)
    return asked


# --- cases


def test_cases_follow_the_papers() -> None:
    tasks = CachingSettings(models=("gcn", "gat", "edgeconv"), strategies=("papers",)).tasks()
    sizes = {(t.model, t.network): set[tuple[int, int]]() for t in tasks}
    for task in tasks:
        sizes[task.model, task.network].add((task.heads, task.hidden))
        assert (task.model == "edgeconv") == (task.data == "clouds~")
        assert task.network == "layer" or not task.input_gradient
    assert sizes["gcn", "layer"] == {(1, 2**k) for k in range(3, 11)}
    assert sizes["gat", "network"] == {(8, 2**k) for k in range(3, 8)}
    assert sizes["edgeconv", "layer"] == {(1, 64)}


def test_a_scheme_is_read_from_text() -> None:
    wanted = Config(caching="recompute_all", cache=("a", "b"), recompute=("c",))
    assert parse("mine=recompute_all+cache:a+cache:b+recompute:c") == ("mine", wanted)
    assert parse("budget:2e6") == ("budget:2e6", Config(caching="budget:2e6"))
    assert parse("features", "gat")[1].cache == ("features",)
    named = CachingSettings(models=("gat",), strategies=("named",)).candidates(Task("gat", "cora", "layer", 64, 8, 8))
    assert [c.name for c in named] == ["nothing", "features", "node attention", "edge weights"]


def test_candidates_are_all_combinations_and_the_peers() -> None:
    settings = CachingSettings(strategies=("papers", "auto"), formats=("auto", "csr"), against=("dgl",))
    found = settings.candidates(Task("gat", "cora", "layer", 64, 8, 8))
    assert [c.name for c in found] == ["papers", "papers, csr", "auto", "auto, csr", "eager"]
    assert {c.config.adjacency for c in found if c.config} == {"auto", "csr"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ("rgcn",)}, r"models: 'rgcn' \(entry 1\) is unknown; choose from gcn, gat"),
        ({"networks": ()}, "networks: name at least one of layer, network, sparse"),
        ({"strategies": ("all",)}, r"strategy 'all': caching='all' is not one of cache_all"),
        ({"strategies": ("auto+x",)}, r"strategy 'auto\+x': 'x' is neither cache:NAME nor recompute:NAME"),
        ({"formats": ("csd",)}, "formats: adjacency='csd' is not one of auto, csr"),
        ({"hidden": (8, 0)}, "all must be >= 1"),
        ({"against": ("gnn",)}, r"against: 'gnn' \(entry 1\) is unknown; choose from pyg, pyg-compiled, dgl"),
    ],
)
def test_settings_that_cannot_be_met(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DacergnnError, match=message):
        CachingSettings(**options)


# --- runs


def test_a_run_goes_on_where_it_stopped(in_process: list[Asked], tmp_path: Path) -> None:
    path = tmp_path / "out" / "results.jsonl"
    settings = CachingSettings(**TINY)
    rows = run(settings, path)
    assert [row["name"] for row in rows] == ["cache_all", "recompute_all"]
    for row in rows:
        assert row["status"] == "ok"
        assert row["max_error"] < 1e-5
        assert row["peak_mb"] == 3.0
        assert 0 < row["train_p20_ms"] <= row["train_ms"] <= row["train_p80_ms"]
        assert row["infer_samples"] >= 1
        assert row["predicted_forward_bytes"] == 0
    assert [function for function, *_ in in_process] == ["times", "peak", "peak"]
    assert load(path) == rows
    header, *lines = path.read_text().splitlines()
    assert "environment" in json.loads(header)

    assert run(settings, path) == rows
    assert len(in_process) == 3
    path.write_text("\n".join([header, lines[0], lines[1][:-9]]))  # ended while it wrote
    assert load(path) == [json.loads(lines[0])]
    again = run(settings, path)
    assert len(in_process) == 6
    assert again != rows
    assert load(path) == again
    fewer = CachingSettings(**TINY | {"memory": False, "limits": replace(LIMITS, modes=("train",))})
    assert run(fewer, path) == again
    assert len(in_process) == 6
    wider = CachingSettings(**TINY | {"hidden": (8, 16)})
    assert len(run(wider, path)) == 4
    assert {task.hidden for _, task, _ in in_process[6:]} == {16}


def test_what_was_left_out_is_measured(in_process: list[Asked], tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    fewer = CachingSettings(**TINY | {"memory": False, "limits": replace(LIMITS, modes=("train",))})
    assert not any("peak_mb" in row or "infer_ms" in row for row in run(fewer, path))
    assert len(in_process) == 1
    assert all("peak_mb" in row and "infer_ms" in row for row in run(CachingSettings(**TINY), path))
    assert len(in_process) == 4


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"environment": {}}\n{"rows": []}\n')
    with pytest.raises(DacergnnError, match=r"results.jsonl, line 2 is no result of .*; name a file that .* caching"):
        load(path)
    for foreign in ('{\n "rows": []\n}\n', "text\n"):
        path.write_text(foreign)
        with pytest.raises(DacergnnError, match=r"results.jsonl, line 1 is no record; remove it"):
            load(path)
    with pytest.raises(DacergnnError, match=r"none.jsonl: .*No such file or directory"):
        load(tmp_path / "none.jsonl")


def test_what_fails_or_is_wrong_stops_nothing(
    in_process: list[Asked], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def optimize(network: nn.Module, graph: Any, *, config: Any, **_: Any) -> nn.Module:
        if config.caching == "papers":
            raise RuntimeError("no kernel")
        if config.caching == "auto":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        if config.caching == "recompute_all":
            network.register_forward_hook(lambda module, inputs, out: 2 * out)
        return network

    monkeypatch.setattr(candidates, "optimize", optimize)
    strategies = ("cache_all", "recompute_all", "papers", "auto")
    rows = run(CachingSettings(**TINY | {"strategies": strategies, "against": ("pyg",)}), tmp_path / "results.jsonl")
    notes = {row["name"]: (row["status"], row["note"]) for row in rows}
    assert notes["cache_all"] == ("ok", "")
    assert notes["recompute_all"][0] == "wrong"
    assert notes["papers"] == ("failed", "RuntimeError: no kernel")
    assert notes["auto"] == ("out of memory", "out of memory")
    assert notes["COO"][0] == notes["CSR"][0] == notes["EdgeIndex"][0] == "ok"
    weighed = [candidate.name for function, _, candidate in in_process if function == "peak"]
    assert weighed == ["cache_all", "COO", "CSR", "EdgeIndex"]


def test_one_that_ends_the_process_leaves_the_others(in_process: list[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = runner.ask

    def dying(function: str, *arguments: Any, **limits: Any) -> dict[str, Any]:
        if function.endswith("times") and any(candidate.name == "recompute_all" for candidate in arguments[1]):
            return {"error": "the process ended with code -11"}
        return answer(function, *arguments, **limits)

    monkeypatch.setattr(runner, "ask", dying)
    first, second = run(CachingSettings(**TINY))
    assert (first["status"], first["note"]) == ("ok", "measured apart")
    assert (second["status"], second["note"]) == ("failed", "the process ended with code -11")


@pytest.mark.parametrize("model", ["gcn", "gat", "gatv2", "monet", "sage", "gin", "edgeconv"])
def test_layers_of_the_libraries_agree(in_process: list[Asked], model: str) -> None:
    pytest.importorskip("dgl")
    data = "clouds~0.001" if model == "edgeconv" else "arxiv~0.0005"
    task = Task(model, data, "network", 8, 4, 2 if "gat" in model else 1)
    wanted = CachingSettings(against=("pyg", "dgl"), strategies=("cache_all",)).candidates(task)
    rows = times(TaskExperiment(task, LIMITS), wanted, LIMITS)["rows"]
    errors = {candidate.name: row.get("max_error") for candidate, row in rows.items()}
    if model == "gcn":  # DGL counts the edges that leave a node, too
        assert errors.pop("eager") is not None
    assert all(error is None or error < 1e-4 for error in errors.values()), errors
    assert errors["cache_all"] is not None


def test_pyg_takes_sparse_features_where_ours_does(in_process: list[Asked]) -> None:
    settings = CachingSettings(models=("gcn",), against=("pyg",), strategies=("cache_all",))
    assert "COO sparse" not in [c.name for c in settings.candidates(Task("gcn", "cora", "network", 8, 4))]
    task = Task("gcn", "arxiv~0.0005", "sparse", 8, 4)
    wanted = settings.candidates(task)
    assert [c.name for c in wanted] == ["cache_all", "COO", "CSR", "EdgeIndex", "COO sparse"]
    rows = times(TaskExperiment(task, LIMITS), wanted, LIMITS)["rows"]
    assert all(row["status"] == "ok" and row["max_error"] < 1e-4 for row in rows.values()), rows


@pytest.mark.interpreted
def test_compiled_layers_are_measured_each_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr(runner.memory, "return_freed", lambda: None)  # for good, in this process
    weighed: list[str] = []

    def answer(function: str, *arguments: Any, **_: Any) -> dict[str, Any]:
        if function.endswith("peak"):
            weighed.append(arguments[1].name)
        return resolve_name(function)(*arguments)

    monkeypatch.setattr(runner, "ask", answer)
    strategies = ("cache_all", "recompute_all", "again=cache_all")
    wide = {"models": ("gin",), "features": 8, "hidden": (32,), "limits": replace(LIMITS, modes=("train",))}
    rows = run(CachingSettings(**TINY | wide | {"strategies": strategies}))
    for found in rows:
        assert found["status"] == "ok", found["note"]
        assert found["predicted_backward_bytes"] > found["predicted_forward_bytes"] > 0
        assert found["peak_mb"] >= 0
    all_, none, again = rows
    assert all_["saved_bytes"] > none["saved_bytes"]
    assert all_["program"] != none["program"]
    assert again == all_ | {"name": "again", "same_as": "cache_all"}
    assert weighed == ["cache_all", "recompute_all"]


# --- tables


def row(name: str, ms: float, *, hidden: int = 8, library: str = "ours", **more: Any) -> Row:
    scheme = {"caching": name, "order": "auto", "adjacency": "auto", "cache": [], "recompute": []}
    return {
        "model": "gcn", "data": "cora", "network": "layer", "hidden": hidden, "input_gradient": False,
        "library": library, "name": name, "status": "ok", "group": str(hidden), "train_ms": ms, **scheme, **more,
    }  # fmt: skip


def test_choices_of_auto_are_judged() -> None:
    rows = [
        *(row("cache_all", 10.0), row("recompute_all", 12.0), row("auto", 10.1)),
        *(row("cache_all", 20.0, hidden=16), row("recompute_all", 10.0, hidden=16), row("auto", 11.0, hidden=16)),
        *(row("cache_all", 20.0, hidden=32, program="7"), row("auto", 29.0, hidden=32, program="7")),
        *(row("cache_all", 20.0, hidden=64), row("auto", 5.0, hidden=64, status="failed")),
    ]
    made = choices(grouped(rows))
    assert [choice.right for choice in made] == [True, False, True]
    assert [round(choice.slowdown, 2) for choice in made] == [1.01, 1.1, 1.45]
    rows += [row("cache_all", 9.0, order="transform_first"), row("cache_all", 8.0, order="aggregate_first")]
    assert choices(grouped(rows))[0].best["order"] == "aggregate_first"


def test_tables_compare_with_the_fastest_and_the_leanest() -> None:
    rows = [
        row("auto", 10.0, peak_mb=2.0), row("COO", 30.0, library="pyg", peak_mb=9.0),
        row("eager", 40.0, library="dgl", peak_mb=8.0),
    ]  # fmt: skip
    (table,) = tables(rows)
    assert table.rows == [("gcn", "layer", "-", "-", "3.00 (3.00)", "4.00 (4.00)", "1")]


# --- command


def test_the_command_lists_measures_and_reports(in_process: list[Asked], tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    chosen = ["caching", "--models", "gcn", "--data", "arxiv~0.0005", "--networks", "layer", "--hidden", "8"]
    options = [*chosen, "--gradients", "with", "--repeat", "2", "--budget", "0.1", "--json", str(path)]
    options += ["--threads", str(LIMITS.threads), "--strategies", "cache_all,recompute_all"]
    listed = CliRunner().invoke(main, [*options, "--dry-run"])
    assert listed.exit_code == 0, listed.output
    assert "gcn on arxiv~0.0005, layer, 8, with input gradient: ours cache_all, ours recompute_all" in listed.output
    assert "2 cases of 1 networks are left, 0 are done." in listed.output
    assert not in_process
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 0, result.output
    assert "recompute_all / cache_all" in result.output
    asked = len(in_process)
    assert CliRunner().invoke(main, [*options, "--report"]).stdout == result.stdout
    machine, *measured = map(json.loads, path.read_text().splitlines())
    assert {"cpu", "cores", "threads", "governor"} <= machine["environment"].keys()
    assert all({"load_before", "load_after"} <= row.keys() for row in measured)
    told = result.stderr.splitlines()
    assert told[0] == "0 of 1 done; gcn on arxiv~0.0005, layer, 8, with input gradient: times"
    assert len(told) == asked + 2  # a line for each process, for the task and for the file
    assert len(in_process) == asked


def test_the_suite_of_relational_layers_stays_the_default() -> None:
    assert "--overhead" in CliRunner().invoke(main, ["relational", "--help"]).output
    assert "--overhead" in CliRunner().invoke(main, ["relational", "--help"]).output
    assert "--strategies" in CliRunner().invoke(main, ["caching", "--help"]).output
    assert CliRunner().invoke(main, ["others"]).exit_code == 2
    assert "'x' is no list of numbers" in CliRunner().invoke(main, ["caching", "--hidden", "x"]).output
