"""Data-parallel training in several processes on the CPU, as one process trains with the joined batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT

pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from tests.training.distributed import KINDS, WORLD, State


@pytest.mark.check
def test_processes_train_as_one_does_with_their_batches_joined(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.distributed", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    saved = [torch.load(tmp_path / f"{rank}.pt") for rank in range(WORLD)]
    differences: dict[tuple[str, str], float] = {}
    for name, (before, joined) in torch.load(tmp_path / "joined.pt").items():
        assert _difference(joined, before) > 1e-2, f"{name} has not learned"
        for way in KINDS[name].ways:
            differences[name, way] = max(_difference(found[name, way], joined) for found in saved)
    assert differences.keys() == saved[0].keys()
    assert {case: value for case, value in differences.items() if not value < 1e-6} == {}


def _difference(found: State, expected: State) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[name] - value).abs().max()) for name, value in expected.items())
