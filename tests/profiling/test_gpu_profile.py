"""`benchmarks gpu_profile`: a line for each case, tables that end with the worst operators of all, calls again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.questions import gpu_profile
from benchmarks.suite import results
from dacergnn import Rates
from dacergnn.profiling import measure

CASES = ("--device", "cpu", "--data", "aifb~0.02", "--hidden", "6", "--models")


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LEAST_CALLS", 1)
    monkeypatch.setattr(measure, "MOST_CALLS", 1)
    monkeypatch.setattr(measure, "_rates", lambda *_: Rates(1e11, 1e10, 1e10, 1e9))


def run(folder: Path, *arguments: str) -> Result:
    files = ("--json", str(folder / "profile.jsonl"), "--markdown", str(folder / "profile.md"))
    result = CliRunner().invoke(gpu_profile.main, [*CASES, *arguments, *files])
    assert result.exit_code == 0, result.output
    return result


def lines(folder: Path) -> list[dict[str, Any]]:
    return results(folder / "profile.jsonl")


def test_cases_are_kept_and_not_measured_again(tmp_path: Path) -> None:
    run(tmp_path, "rgcn", "--mode", "infer")
    run(tmp_path, "rgcn,rgat", "--mode", "infer")
    found = lines(tmp_path)
    assert [(line["data"], line["model"], line["mode"]) for line in found] == [
        ("aifb~0.02", "rgcn", "infer"),
        ("aifb~0.02", "rgat", "infer"),
    ]
    assert all(line["profile"]["operators"] and line["note"] == "" for line in found)
    text = (tmp_path / "profile.md").read_text()
    assert text.index("## rgcn aifb~0.02 infer") < text.index("## rgat") < text.index("## The worst 10 operators")
    rows = [line for line in text.splitlines() if line.startswith("| 1 | ")]
    slowest = max((o for line in found for o in line["profile"]["operators"]), key=lambda o: o["ms"] - o["bound_ms"])
    assert len(rows) == 1
    assert f"| {', '.join(slowest['results'])} (forward) |" in rows[0]


def test_a_case_that_fails_is_noted_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(gpu_profile, "native_layer", fail)
        assert "RuntimeError: out of memory" in run(tmp_path, "rgcn", "--mode", "infer").output
    assert "RuntimeError: out of memory" in (tmp_path / "profile.md").read_text()
    run(tmp_path, "rgcn", "--mode", "infer")
    assert [line["note"] for line in lines(tmp_path)] == ["RuntimeError: out of memory", ""]
    assert "out of memory" not in (tmp_path / "profile.md").read_text()


def test_nothing_begins_after_the_time(tmp_path: Path) -> None:
    run(tmp_path, "rgcn", "--time-limit", "0")
    assert lines(tmp_path) == []


def test_forecasts_are_in_the_table_of_the_worst() -> None:
    kernel = {"name": "Row", "limit": "grid"}
    times = {"measured_ms": 3.0, "ms": 2.0, "bound_ms": 0.5}
    one = {"results": ["out"], "role": "forward", "kernels": [kernel], **times}
    line = {"data": "am~", "model": "rgat", "mode": "train", "hidden": 64, "note": "", "text": "",
            "profile": {"forecast": {"operators": [{**one, "measured_ms": 1.0}, one]}}}  # fmt: skip
    first, second = gpu_profile.worst([line]).rows
    assert first == ("1", "rgat am~ train", "out (forward)", "Row", "grid", "2.500", "3.000", "2.000", "0.500")
    assert second[5:7] == ("0.500", "1.000")


def test_a_missing_device_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = CliRunner().invoke(gpu_profile.main, ["--data", "aifb"])
    assert result.exit_code == 2
    assert "torch finds no CUDA device here; `dacergnn forecast` needs none." in result.output
