"""`dacergnn tune evaluate` on a part of the data set that comes with the project."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from dacergnn.cli import main
from dacergnn.performance.dataset import samples_of
from dacergnn.tuning.predictor import Predictor
from dacergnn.tuning.records import load
from tests.performance.test_dataset import SHIPPED


def test_models_are_trained_scored_and_drawn(tmp_path: Path) -> None:
    part = [row for row in load(SHIPPED) if "layer" not in row or (row["layer"] < 16 and row.get("plan", 0) < 2)]
    data, out, plots = (tmp_path / name for name in ("samples.jsonl", "model.npz", "plots"))
    data.write_text("".join(json.dumps(row) + "\n" for row in part))
    options = ["--epochs", "1", "--members", "2", "--pooled", "--cross-validate"]
    options += ["--out", str(out), "--plots", str(plots)]
    result = CliRunner().invoke(main, ["tune", "evaluate", "--data", str(data), *options])
    assert result.exit_code == 0, result.output
    for word in ("graph network", "pooled", "trees", "terms", "analytic"):
        assert word in result.output
    for figure in ("predicted.png", "ranked.png"):
        assert (plots / figure).stat().st_size > 1000
    programs = [sample.program for sample in samples_of(part)][:3]
    model = Predictor.load(out)
    assert len(model.members) == 2
    assert (model.predict(programs) > 0).all()
