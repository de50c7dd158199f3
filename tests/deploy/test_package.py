"""Packages of AOTInductor give the numbers of the model in C++ without Python, and in Python without this package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import aoti_load_package
from torch.utils import _pytree as pytree

from dacergnn.deploy.package import export_package
from dacergnn.errors import ArrayError, DacergnnError
from tests.deploy.packaged import (
    SIZES,
    batch,
    built_program,
    hetero_sage,
    hgt,
    read_tensors,
    trained,
    without_package,
    write_tensors,
)

HERE = Path(__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
# Words of exceptions, by what is wrong with the call.
ERRORS = ("source 99 of edge 1 is out of range", "destination -1 of edge 0 is out of range")


def bad_batches() -> list[Any]:
    far, negative = batch(*SIZES[0]), batch(*SIZES[0])
    far[1]["paper", "cites", "paper"][0, 1] = 99
    negative[1]["author", "writes", "paper"][1, 0] = -1
    return [far, negative]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, nn.Module]]:
    folder = tmp_path_factory.mktemp("packages")
    models = {"hgt": trained(hgt), "sage": trained(hetero_sage)}
    for name, model in models.items():
        export_package(model, folder, example=batch(*SIZES[0]), name=name)
    return folder, models


@pytest.mark.check
def test_cpp_gives_the_numbers_of_the_model(packages: tuple[Path, dict[str, nn.Module]]) -> None:
    folder, models = packages
    batches = [batch(*sizes) for sizes in SIZES]
    for name in models:
        for i, args in enumerate([*batches, *bad_batches()]):
            write_tensors(folder / f"{name}_{i}.bin", pytree.tree_leaves(args))
    program = built_program(HERE / "aoti_main.cpp", folder)
    # Torch checks the sizes of all inputs as well, which must not refuse empty batches.
    environment = os.environ | {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
    run = subprocess.run([program, folder, *models], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for name, model in models.items():
        for i, args in enumerate(batches):
            with torch.no_grad():
                expected = model(*args)
            (made,) = read_tensors(folder / f"{name}_{i}.out")
            size = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
            torch.testing.assert_close(made, expected, rtol=0, atol=1e-6 * size)
        for i, words in enumerate(ERRORS, len(batches)):
            assert words in (folder / f"{name}_{i}.error").read_text()


@pytest.mark.check
def test_python_needs_no_dacergnn(packages: tuple[Path, dict[str, nn.Module]]) -> None:
    folder, models = packages
    for name, model in models.items():
        with torch.no_grad():
            calls = [(args, model(*args)) for args in (batch(*sizes) for sizes in SIZES)]
        torch.save(calls, folder / "calls.pt")
        files = folder / f"{name}.pt2", folder / "calls.pt", folder / f"lib{name}_operators.so"
        run = without_package(HERE / "replay.py", "package", *files, cwd=folder)
        assert run.returncode == 0, run.stderr


@pytest.mark.check
def test_operators_of_python_serve_packages(packages: tuple[Path, dict[str, nn.Module]]) -> None:
    folder, models = packages
    args = batch(*SIZES[1])
    for name, model in models.items():
        torch.ops.load_library(folder / f"lib{name}_operators.so")
        loaded = aoti_load_package(str(folder / f"{name}.pt2"))
        with torch.no_grad():
            torch.testing.assert_close(loaded(*args), model(*args), rtol=1e-5, atol=1e-6)


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    model = trained(hgt)
    with pytest.raises(DacergnnError, match="name='a b'"):
        export_package(model, tmp_path, example=batch(*SIZES[0]), name="a b")
    with pytest.raises(ArrayError, match="model is in training mode"):
        export_package(model.train(), tmp_path, example=batch(*SIZES[0]))
