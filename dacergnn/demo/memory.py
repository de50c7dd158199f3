"""Measures the peak memory of training, each model in its own process."""

from __future__ import annotations

import subprocess
import sys

from dacergnn.bench.memory import peak_growth
from dacergnn.demo.training import Run


def peak_in_process(kind: str) -> int:
    """Returns `working_bytes` of model `kind`, measured in a new process."""
    command = [sys.executable, "-m", "dacergnn.demo", "--measure", kind]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])


def working_bytes(run: Run, epochs: int = 3) -> int:
    """Returns the largest growth of the process in training epochs, above data, parameters and optimizer state."""
    run.epoch()
    run.optimizer.zero_grad(set_to_none=True)

    def train() -> None:
        for _ in range(epochs):
            run.epoch()

    return peak_growth(train)[0]
