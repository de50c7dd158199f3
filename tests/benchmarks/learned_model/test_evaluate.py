"""`benchmarks model train` and `judge` on a part of the data set that comes with the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.commands import main
from benchmarks.learned_model.dataset import samples_of
from benchmarks.learned_model.division import machine_factors, on_one_scale
from benchmarks.learned_model.judging import Budget, on_another_machine
from dacergnn.json_lines import load
from dacergnn.tuning.predictor import Predictor
from tests.benchmarks.learned_model.test_dataset import SHIPPED


@pytest.mark.check
def test_models_are_trained_scored_and_drawn(tmp_path: Path) -> None:
    part = [row for row in load(SHIPPED) if "layer" not in row or (row["layer"] < 12 and row.get("plan", 0) < 2)]
    data, out, plots = (tmp_path / name for name in ("samples.jsonl", "model.npz", "plots"))
    data.write_text("".join(json.dumps(row) + "\n" for row in part))
    options = ["--epochs", "1", "--members", "2", "--pooled", "--cross-validate", "--depths", "0,1"]
    judge = ["model", "judge", "--data", str(data), *options, "--json", str(tmp_path / "judged.jsonl")]
    result = CliRunner().invoke(main, [*judge, "--plots", str(plots)])
    assert result.exit_code == 0, result.output
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "benchmarks.learned_model.contenders.train", lambda *_, **__: pytest.fail("it is trained again")
        )
        assert CliRunner().invoke(main, judge).stdout == result.stdout.partition(str(plots))[0]
    for word in ("graph network", "pooled", "trees", "terms", "analytic", "convolutions"):
        assert word in result.output
    for figure in ("predicted.png", "ranked.png"):
        assert (plots / figure).stat().st_size > 1000
    options = ["--epochs", "1", "--members", "2"]
    result = CliRunner().invoke(main, ["model", "train", "--data", str(data), "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    programs = [sample.program for sample in samples_of(part)][:3]
    model = Predictor.load(out)
    assert len(model.members) == 2
    assert (model.predict(programs) > 0).all()


@pytest.mark.check
def test_machines_are_judged_by_what_was_learned_on_others(tmp_path: Path) -> None:
    """The second machine is three times as slow as the first: what is known of the first is right but for a factor."""
    part = [row for row in load(SHIPPED) if "layer" not in row or (row["layer"] < 24 and row.get("plan", 0) < 3)]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("".join(json.dumps(row) + "\n" for row in part))
    slow = [
        {**row, "seconds": [[3 * t, 3 * d] for t, d in row["seconds"]]} if "seconds" in row else row for row in part
    ]
    slow[0] = {**slow[0], "machine": {**slow[0]["machine"], "cpu": "slow"}}
    second.write_text("".join(json.dumps(row) + "\n" for row in slow))
    samples = samples_of([*load(first), *load(second)])
    assert {s.machine for s in samples} == {"AMD EPYC, 2 threads", "slow, 2 threads"}
    factors = machine_factors(samples)
    assert factors["slow, 2 threads"] == pytest.approx(3 * factors["AMD EPYC, 2 threads"])
    scaled = on_one_scale(samples, factors)
    half = len(samples) // 2
    assert [s.seconds for s in scaled[:half]] == pytest.approx([s.seconds for s in scaled[half:]])
    found = on_another_machine(samples, "slow, 2 threads", Budget(epochs=1, members=1)).judged().scores
    assert found["graph network, fitted"].mean_error < found["graph network"].mean_error
    options = ["--data", str(first), "--data", str(second), "--epochs", "1", "--members", "1", "--machines"]
    result = CliRunner().invoke(main, ["model", "judge", *options])
    assert result.exit_code == 0, result.output
    assert "learned elsewhere than on slow, 2 threads" in result.output
