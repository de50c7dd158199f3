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

from tests.training.distributed import KINDS, WORLDS, State


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all processes have saved; one start for all of them, since that takes longer than their training."""
    found = tmp_path_factory.mktemp("distributed")
    command = [sys.executable, "-m", "tests.training.distributed", str(found)]
    run = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return found


@pytest.mark.check
@pytest.mark.parametrize("world", WORLDS)
def test_processes_train_as_one_does_with_their_batches_joined(world: int, folder: Path) -> None:
    saved = [torch.load(folder / f"{rank}-of-{world}.pt") for rank in range(world)]
    differences: dict[tuple[str, str], float] = {}
    for name, (before, joined) in torch.load(folder / f"joined-{world}.pt").items():
        assert _difference(joined, before) > 1e-2, f"{name} has not learned"
        for way in KINDS[name].ways:
            differences[name, way] = max(_difference(found[name, way], joined) for found in saved)
    assert differences.keys() == saved[0].keys()
    assert {case: value for case, value in differences.items() if not value < 1e-6} == {}


def _difference(found: State, expected: State) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[name] - value).abs().max()) for name, value in expected.items())
