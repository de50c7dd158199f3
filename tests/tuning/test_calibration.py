"""Models that are fitted to a machine: what is recovered, what is kept, and which file decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks.learned_model.dataset import samples_of
from dacergnn import Config
from dacergnn.cli import main
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import load
from dacergnn.tuning import calibration, collect, graphs, programs, tuned
from dacergnn.tuning.calibration import calibrated, fitted, probe
from dacergnn.tuning.collect import CollectSettings
from dacergnn.tuning.model_file import SHIPPED, model_digest, model_file, own_file
from dacergnn.tuning.predictor import Predictor
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.tuned import model_of, shipped
from tests.benchmarks.learned_model import test_dataset


@pytest.fixture(scope="module")
def samples() -> list[Measured]:
    rows = [row for row in load(test_dataset.SHIPPED) if "layer" not in row or row["layer"] < 12]
    return samples_of(rows)


def predicted(model: Predictor, samples: list[Measured]) -> np.ndarray:
    return model.predict([sample.program for sample in samples])


def test_factors_of_another_machine_are_found(samples: list[Measured]) -> None:
    count = shipped().parts([samples[0].program]).shape[-1]
    factors = np.linspace(1.0, 3.0, count)
    machine = shipped().scaled(np.tile(factors, (len(shipped().members), 1)))
    there = [replace(s, seconds=float(t)) for s, t in zip(samples, predicted(machine, samples), strict=True)]
    found = fitted(shipped(), there, ridge=1e-4)
    seconds = np.array([sample.seconds for sample in there])
    assert np.abs(predicted(shipped(), there) / seconds - 1).mean() > 0.3
    assert np.abs(predicted(found, there) / seconds - 1).mean() < 0.03


def test_layers_that_were_left_out_score_a_calibration(samples: list[Measured]) -> None:
    found = calibrated(shipped(), [replace(sample, seconds=3.0 * sample.seconds) for sample in samples])
    assert found.samples == len(samples)
    assert found.before.mean_error > 0.4
    assert found.after.mean_error < 0.2
    assert found.after.ranked > found.before.ranked - 0.02
    few = [sample for sample in samples if sample.layer in ("random 0", "random 1")]
    with pytest.raises(DacergnnError, match="2 layers are too few to calibrate by"):
        calibrated(shipped(), few)


def test_files_keep_factors_and_threads(samples: list[Measured], tmp_path: Path) -> None:
    factors = np.full((len(shipped().members), shipped().parts([samples[0].program]).shape[-1]), 2.0)
    model = replace(shipped().scaled(factors), threads=7)
    model.save(tmp_path / "own.npz")
    again = Predictor.load(tmp_path / "own.npz")
    assert again.threads == 7
    np.testing.assert_allclose(predicted(again, samples), 2 * predicted(shipped(), samples), rtol=1e-5)


def test_which_model_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path))
    assert model_file(None) == SHIPPED
    assert model_digest(None) == ""
    own = own_file()
    own.parent.mkdir()
    replace(shipped(), threads=torch.get_num_threads()).save(own)
    assert own.name.endswith(f"-{torch.get_num_threads()}.npz")
    assert model_file(None) == own
    assert model_of(None).threads == torch.get_num_threads()
    assert model_digest(None)
    assert model_file(str(SHIPPED)) == SHIPPED
    with pytest.raises(DacergnnError, match=r"model='none\.npz' does not exist"):
        model_of(Config(model="none.npz").model)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_too_little_time_names_the_minutes_that_are_needed(
    samples: list[Measured], monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    few = [s for s in samples if s.layer in sorted({s.layer for s in samples})[:layers]]
    monkeypatch.setattr(calibration, "probe", lambda *_: iter([few]))
    needed = {0: 2, 1: 2, 3: 1}[layers]
    message = rf"minutes=0.4 are too few: {layers} of the 4 layers .* give {needed} at least .*--minutes {needed}\)"
    with pytest.raises(DacergnnError, match=message):
        calibration.calibrate(shipped(), 2, 0.4, lambda *_: None)


@pytest.mark.interpreted
def test_probes_are_layers_on_which_networks_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "DRAWN", 2)
    monkeypatch.setattr(graphs, "EDGES", (200, 400))
    monkeypatch.setattr(programs, "WIDTHS", (4, 8))
    monkeypatch.setattr(collect, "_ELEMENTS", 1 << 12)
    monkeypatch.setattr(collect, "Reference", lambda device: lambda: 1.0)
    make = calibration.CollectSettings

    def fewer(**options: Any) -> CollectSettings:
        # A machine with other work leaves no layer out.
        own: dict[str, Any] = {**options, "graphs": 1, "repeat": 2, "limit": 0.5}
        return make(**own)

    monkeypatch.setattr(calibration, "CollectSettings", fewer)
    layers = [*probe(shipped(), 2, float("inf"))]
    assert len(layers) == 2
    found = [sample for layer in layers for sample in layer]
    assert len({sample.layer for sample in found}) > 1
    assert all(sample.seconds > 0 and sample.runs == 2 and sample.family for sample in found)


def test_the_command_keeps_the_model_for_this_machine(
    samples: list[Measured], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(model: Any, threads: int, minutes: float, on_layer: Callable[[int, int], None]) -> Any:
        on_layer(1, len(samples))
        return calibrated(model, samples)

    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(calibration, "calibrate", measured)
    result = CliRunner().invoke(main, ["tune", "calibrate", "--threads", "3"])
    assert result.exit_code == 0, result.output
    assert own_file(3).is_file()
    assert Predictor.load(own_file(3)).threads == 3
    assert "after" in result.output


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    tuned._loaded.cache_clear()  # pyright: ignore[reportPrivateUsage]
