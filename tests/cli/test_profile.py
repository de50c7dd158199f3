"""`dacergnn profile`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dacergnn import Rates
from dacergnn.profiling import measure
from tests.cli.test_cli import run

LAYER = ("profile", "--model", "rgcn", "--data", "aifb~0.02", "--features", "6")


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LEAST_CALLS", 1)
    monkeypatch.setattr(measure, "MOST_CALLS", 1)
    monkeypatch.setattr(measure, "_rates", lambda *_: Rates(1e11, 1e10, 1e10, 1e9))


def test_training(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run(*LAYER, "--plot", str(tmp_path / "rgcn.png"))
    assert result.exit_code == 0, result.output
    for part in ("forward", "backward", "GFLOP/s", "roofline", "grad_x", "The call takes"):
        assert part in result.output
    assert (tmp_path / "rgcn.png").exists()


def test_sdfgs_with_times(tmp_path: Path) -> None:
    result = run(*LAYER, "--sdfg", str(tmp_path / "sdfg"))
    assert result.exit_code == 0, result.output
    names = {f"{name}.{ending}" for name in ("rgcn", "rgcn_backward") for ending in ("sdfg", "report.json")}
    assert {path.name for path in (tmp_path / "sdfg").iterdir()} == names


def test_passes_of_an_inference_are_those_that_are_named() -> None:
    few = json.loads(run(*LAYER, "--mode", "infer", "--passes", "narrow_products", "--json").output)
    all_passes = json.loads(run(*LAYER, "--mode", "infer", "--json").output)
    assert {operator["role"] for operator in all_passes["operators"]} == {"forward"}
    assert len(few["operators"]) > len(all_passes["operators"])
    assert "there is no pass 'fuse'" in run(*LAYER, "--passes", "fuse").output


def test_a_missing_device_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "torch finds no CUDA device here; leave --device out" in run(*LAYER, "--device", "cuda").output
