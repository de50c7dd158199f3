"""The suite of large graphs, on a small one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dacergnn.cli import main


@pytest.mark.slow
def test_steps_within_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    options = ["--models", "rgat", "--data", "am~0.01", "--limits", "12MB", "--hidden", "16", "--steps", "1"]
    result = CliRunner().invoke(main, ["bench", "--suite", "scale", *options, "--json", str(path)])
    assert result.exit_code == 0, (result.output, result.exception)
    whole, limited = json.loads(path.read_text())["rows"]
    assert (whole["limit"], limited["limit"]) == ("", "12MB")
    assert whole["ranges"] == 1
    assert limited["ranges"] > 1
    assert limited["estimate"] <= 12e6 < whole["estimate"]
    assert limited["difference"] < 1e-4
    assert min(whole["seconds"], limited["seconds"]) > 0
    assert "Training steps within a limit of memory" in result.output


def test_wrong_limits() -> None:
    result = CliRunner().invoke(main, ["bench", "--suite", "scale", "--limits", "much"])
    assert result.exit_code != 0
    assert "memory='much'; pass a size" in result.output + str(result.exception)
