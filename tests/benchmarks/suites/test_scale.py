"""The suite of large graphs, on a small one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.commands import main
from dacergnn.bench.process import OUT_OF_MEMORY, reason
from dacergnn.errors import MemoryLimitError
from dacergnn.json_lines import load


@pytest.mark.check
def test_steps_within_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    options = ["--models", "rgat", "--data", "am~0.01", "--limits", "12MB,1MB", "--hidden", "16", "--steps", "1"]
    result = CliRunner().invoke(main, ["scale", *options, "--json", str(path)])
    assert result.exit_code == 1, "one limit is too low"
    _, whole, limited, refused = load(path)
    assert (whole["limit"], limited["limit"]) == ("", "12MB")
    assert whole["ranges"] == 1
    assert limited["ranges"] > 1
    assert limited["estimate"] <= 12e6 < whole["estimate"]
    assert limited["max_error"] < 1e-4
    assert min(whole["train_ms"], limited["train_ms"], limited["peak_mb"]) > 0
    assert "a step needs" in refused["note"]
    assert "Training steps within a limit of memory" in result.output


@pytest.mark.check
def test_processes_share_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    options = ["--models", "rgat", "--data", "am~0.05", "--processes", "1,2", "--steps", "1"]
    result = CliRunner().invoke(main, ["scale", *options, "--json", str(path)])
    assert result.exit_code == 0, result.output
    _, one, two = load(path)
    assert two["peak"] < 0.7 * one["peak"]
    assert (one["received"], one["least"]) == (0, 0)
    assert 0 < two["received"] <= 1.2 * two["least"]
    assert "Full-graph training in several processes" in result.output


@pytest.mark.check
def test_processes_in_rounds(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    options = ["--models", "rgat", "--data", "aifb", "--processes", "2", "--steps", "1", "--rounds", "2MB"]
    result = CliRunner().invoke(main, ["scale", *options, "--json", str(path)])
    assert result.exit_code == 0, result.output
    _, row = load(path)
    assert row["rounds"] == "2MB"
    assert row["received"] > row["least"], "rows that several pieces read are sent again, and for the backward"


def test_rounds_are_for_processes() -> None:
    result = CliRunner().invoke(main, ["scale", "--rounds", "1MB"])
    assert result.exit_code == 2
    assert "is for several processes; give --processes, too" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("counts", "message"),
    [("two", "'two' is no list of numbers"), ("0", "a number below 1"), ("1,-2", "a number below 1")],
)
def test_wrong_numbers_of_processes(counts: str, message: str) -> None:
    result = CliRunner().invoke(main, ["scale", "--processes", counts])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_limit_that_is_too_low_says_what_is_needed() -> None:
    error = MemoryLimitError("RGAT", 2_000_000, 1_000_000)
    assert reason(error).startswith("MemoryLimitError: RGAT: a step needs 2 MB beside its inputs, but 1 MB are left")
    assert reason(MemoryError()) == OUT_OF_MEMORY


def test_wrong_limits() -> None:
    result = CliRunner().invoke(main, ["scale", "--limits", "much"])
    assert result.exit_code != 0
    assert "memory='much'; pass a size" in result.output + str(result.exception)
