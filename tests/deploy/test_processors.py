"""Exported libraries on other processors: several levels of x86-64 in one library, and ARM, by emulators."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dacergnn
from dacergnn.deploy.library import ExportedLibrary
from tests.deploy.networks import assert_equal, leaves, trained
from tests.support.compilers import needs
from tests.support.library import export

_SOURCE = Path(__file__).with_name("run_model.c")
_CAPACITY = 1 << 16
pytestmark = [pytest.mark.check, pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")]


def _program(compiler: str, folder: Path) -> Path:
    """Returns the program that runs a call."""
    made = folder / "run_model"
    subprocess.run([compiler, "-O1", "-Wall", str(_SOURCE), "-o", str(made), "-ldl"], check=True)
    return made


def _run(launcher: Sequence[str], program: Path, library: Path, tensors: list[Tensor], outputs: int) -> tuple[str, Any]:
    """Returns the kind of processor whose kernels ran, and the results as numbers [_CAPACITY] with their sizes."""
    call, results = program.with_name("call"), program.with_name("results")
    with call.open("wb") as file:
        np.array([len(tensors), outputs, _CAPACITY], np.int64).tofile(file)
        for tensor in tensors:
            sizes = [*tensor.shape, 0, 0, 0, 0][:4]
            np.array([tensor.nbytes, *sizes], np.int64).tofile(file)
            tensor.numpy().tofile(file)
    command = [*launcher, str(program), str(library), str(call), str(results)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # threads of an emulator must not spin
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    made: list[Tensor] = []
    with results.open("rb") as file:
        for _ in range(outputs):
            sizes = [int(size) for size in np.fromfile(file, np.int64, 4) if size]
            numbers = np.fromfile(file, np.float32, _CAPACITY // 4)
            made.append(torch.from_numpy(numbers[: prod(sizes)].reshape(sizes)))
    return run.stdout.strip(), made


@cache
def _network() -> tuple[Any, Any, list[Tensor]]:
    """Returns a model, the arguments of a call, and its results."""
    network = trained("HGT")
    arguments = network.arguments(25, 80)
    with torch.no_grad():
        expected = leaves(network.model(*arguments))
    return dacergnn.optimize(network.model), arguments, expected


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> ExportedLibrary:
    """Returns a library with kernels for three levels of x86-64."""
    needs("qemu-x86_64")
    model, arguments, _ = _network()
    levels = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    return export(model, tmp_path_factory.mktemp("several"), example=arguments, target_cpu=levels)


@pytest.mark.parametrize(("processor", "level"), [("Nehalem", "x86-64-v2"), ("max", "x86-64-v3")])
def test_a_library_chooses_when_it_is_loaded(
    processor: str, level: str, several: ExportedLibrary, tmp_path: Path
) -> None:
    _, arguments, expected = _network()
    launcher = ["qemu-x86_64", "-cpu", processor]
    kind, results = _run(launcher, _program("gcc", tmp_path), several.library, leaves(arguments), len(expected))
    assert kind == level
    assert_equal(results, expected)


def test_no_kernels_for_a_processor(tmp_path: Path) -> None:
    needs("qemu-x86_64")
    linear = torch.nn.Linear(4, 3).eval()
    made = export(linear, tmp_path, example=(torch.randn(5, 4),), target_cpu="x86-64-v3")
    program = _program("gcc", tmp_path)
    with pytest.raises(AssertionError, match="no kernels for this processor; the last ones are for x86-64-v3"):
        _run(["qemu-x86_64", "-cpu", "Nehalem"], program, made.library, [torch.randn(5, 4)], 1)


def test_arm(tmp_path: Path) -> None:
    for command in ("aarch64-linux-gnu-g++", "qemu-aarch64"):
        needs(command)
    model, arguments, expected = _network()
    made = export(model, tmp_path, example=arguments, target_cpu="aarch64")
    launcher = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
    program = _program("aarch64-linux-gnu-gcc", tmp_path)
    kind, results = _run(launcher, program, made.library, leaves(arguments), len(expected))
    assert kind == "aarch64"
    assert_equal(results, expected)
