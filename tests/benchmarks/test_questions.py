"""`python -m benchmarks QUESTION --quick`: every question is answered on a small scale."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from benchmarks.commands import QUESTIONS
from tests.conftest import ROOT

LIBRARIES = {
    "accuracy": "torch_geometric",
    "exported_requests": "torch_geometric",
    "front_ends": "dgl",
    "sampling": "dgl",
}
"""Packages that an environment may lack, by what needs them."""


@pytest.mark.check
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered(name: str) -> None:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    if name == "gpu_profile" and not torch.cuda.is_available():
        pytest.skip("there is no device")
    command = [sys.executable, "-m", "benchmarks", name, "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert any(character.isdigit() for character in run.stdout)
