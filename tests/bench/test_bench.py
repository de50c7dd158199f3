"""`dacergnn bench`: a model as it is against the same model compiled, by strategies of caching."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from dacergnn.bench import Comparison, Subject, comparison, process, runner
from dacergnn.bench.calls import training_step
from dacergnn.bench.strategies import ORIGINAL, Strategies
from dacergnn.bench.subject import LAYERS
from dacergnn.cli import main
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import load

LIMITS = runner.Limits(threads=1, repeat=1, budget_s=0.1)
SMALL: dict[str, Any] = {"data": "am~0.0005", "features": 4}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers answer in this process."""
    pytest.importorskip("torch_geometric")

    def ask(function: str, *arguments: Any, **_: Any) -> dict[str, Any]:
        return {"peak_mb": 2.0} if function.endswith("peak") else resolve_name(function)(*arguments)

    monkeypatch.setattr(runner, "ask", ask)


@pytest.mark.interpreted
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_by_name_are_right_in_all_strategies(layer: str) -> None:
    pytest.importorskip("torch_geometric")
    subject = Subject(layer=layer, heads=2 if layer in ("gat", "rgat") else 1, **SMALL)
    names = [ORIGINAL, "cache_all", "recompute_all"]
    rows = runner.times(Strategies(subject), names, LIMITS)["rows"]
    assert {name: (row["status"], row["note"]) for name, row in rows.items()} == dict.fromkeys(names, ("ok", ""))
    assert all(row["max_error"] < 1e-4 and row["train_ms"] > 0 and row["infer_ms"] > 0 for row in rows.values())
    assert rows["recompute_all"]["saved_mb"] <= rows["cache_all"]["saved_mb"]


@pytest.mark.interpreted
@pytest.mark.usefixtures("asked")
def test_the_command_compares_draws_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture, path = tmp_path / "bars.png", tmp_path / "results.jsonl"
    options = ["--layer", "gcn", "--data", SMALL["data"], "--features", "4", "--caching", "cache_all,auto"]
    options += ["--repeat", "1", "--budget", "0.1", "--plot", str(picture), "--json", str(path)]
    result = CliRunner().invoke(main, ["bench", *options])
    assert result.exit_code == 0, result.output
    assert "auto" in result.stdout
    assert picture.stat().st_size > 1000
    about, *rows = load(path)
    assert {"environment", "command", "commit", "date", "load"} <= about.keys()
    assert [row["candidate"] for row in rows] == ["original", "cache_all", "auto"]
    assert all(row["peak_mb"] == 2.0 for row in rows)


OWN = """
import torch
from torch_geometric.nn import GCNConv

def model():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    return GCNConv(4, 4, bias=False), (torch.randn(3, 4, requires_grad=True), edges)

def nothing():
    return torch.nn.Linear(4, 4), (torch.randn(3, 4),)
"""


@pytest.mark.interpreted
@pytest.mark.usefixtures("asked")
def test_models_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    found = comparison.compare(Subject("their_own:model"), modes=("train",), repeat=1, budget_s=0.1)
    assert found.ok, found.text()
    assert "train ms" in found.text()
    assert "infer ms" not in found.text()
    rows = comparison.compare(Subject("their_own:nothing"), memory=False).rows
    assert "nothing of this model is compiled" in rows[1]["note"]
    for source, message in (("their_own:none", "name a function"), ("their_own", "names no function")):
        with pytest.raises(DacergnnError, match=message):
            comparison.compare(Subject(source))


def test_models_and_arguments_go_to_the_device() -> None:
    pytest.importorskip("torch_geometric")
    model, (rows, edges) = Subject(layer="hgt", data=SMALL["data"], features=4, device="meta").made()
    tensors = [*model.parameters(), *rows.values(), *edges.values()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert all(x.requires_grad and x.is_leaf for x in rows.values())


def test_what_is_wrong_is_told() -> None:
    rows = [{"candidate": "original", "status": "ok", "note": "", "train_ms": 2.0}]
    rows += [{"candidate": "auto", "status": "wrong", "note": "differs by 1e-01"}]
    found = Comparison("a model", rows, ("train",), {})
    assert not found.ok
    assert "wrong: differs by 1e-01" in found.text()
    with pytest.raises(DacergnnError, match=r"mode='fast' is not one of infer, train\."):
        comparison.compare(Subject(), modes=("fast",))


class Numbers(runner.Experiment[str]):
    """Has candidates with an error each."""

    def __init__(self, **errors: float | str) -> None:
        self.errors = errors

    def original(self) -> str:
        return "original"

    def ready(self, candidate: str) -> runner.Ready:
        def check() -> float | str:
            if candidate == "fails":
                raise MemoryError
            return self.errors[candidate]

        program = {"program": candidate.rstrip("0123456789")}
        return runner.Ready({"train": lambda: None}, check, lambda: program)


def test_one_rule_for_what_is_wrong_fails_or_is_the_same() -> None:
    errors = {"original": 2e-3, "near": 3e-3, "near2": 1e-4, "far": 1e-2, "nan": float("nan"), "unknown": "too large"}
    found = runner.times(Numbers(**errors), [*errors, "fails"], LIMITS)["rows"]
    assert {name: row["status"] for name, row in found.items()} == {
        **dict.fromkeys(("original", "near", "near2", "unknown"), "ok"), "far": "wrong", "nan": "wrong",
        "fails": "out of memory",
    }  # fmt: skip
    assert found["near2"]["same_as"] == "near"
    assert found["near2"]["train_ms"] == found["near"]["train_ms"]
    assert found["far"]["note"] == "differs from the reference by 1.0e-02, the original by 2.0e-03"
    assert found["unknown"]["note"] == "too large"
    assert "train_ms" not in found["far"]


def test_a_function_is_called_in_a_process_of_its_own() -> None:
    def asked(function: str, *arguments: Any, limit_s: float = 60.0) -> Any:
        return process.ask(function, *arguments, limit_s=limit_s, threads=1, limit_bytes=8 << 30)

    assert asked("builtins.dict", {("a", 1): {2}}) == {("a", 1): {2}}
    assert asked("time.sleep", 9, limit_s=0.05) == {"error": "not done after 0 s"}
    assert "no_such" in asked("dacergnn.no_such.function")["error"]
    assert asked("os._exit", 3) == {"error": "the process ended with code 3"}


def test_gradients_are_in_the_order_of_names() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    outputs, gradients = training_step(model, (torch.ones(4, 2, requires_grad=True),))()
    assert [tuple(part.shape) for part in (*outputs, *gradients)] == [(4, 1), (4, 2), (3,), (3, 2), (1,), (1, 3)]
