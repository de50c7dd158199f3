"""CUDA sources through nvcc, for machines without a device: warnings are errors; registers and spills by kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from dacergnn.native.build import INCLUDE_FOLDER
from dacergnn.native.ptxas import VERBOSE, KernelUsage, kernel_usages

FLAGS = ("-x", "cu", "-std=c++20", "--extended-lambda", "-O3", "-Werror", "all-warnings", *VERBOSE, "--fatbin")
PROPERTY = "kernels"
"""Of a test: what its kernels take, which the report at the end of the run shows."""


def needs_nvcc() -> str:
    """The path of nvcc; see `needed`."""
    return needed(["nvcc"], "nvcc is not on PATH; install a CUDA toolkit, which needs no device.")


def needed(places: Iterable[str], missing: str) -> str:
    """The first program that is there. A test without one is skipped, or fails if ``DACERGNN_REQUIRE_NVCC`` is set."""
    path = next(filter(None, map(shutil.which, places)), None)
    if path is None:
        if os.environ.get("DACERGNN_REQUIRE_NVCC"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def compile_nvcc(source: str, archs: Sequence[int] = (80, 90)) -> list[KernelUsage]:
    """Compile ``source`` for all architectures; fails on any warning. See `needs_nvcc`."""
    nvcc = needs_nvcc()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "source.cu"
        file.write_text('#include "dacergnn/cuda/platform.cuh"\n#line 1 "source"\n' + source)
        machines = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
        includes = [f"-I{INCLUDE_FOLDER.parent}", f"-I{INCLUDE_FOLDER}"]
        command = [nvcc, *FLAGS, *machines, *includes, str(file), "-o", f"{folder}/out"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return kernel_usages(run.stdout + run.stderr)


def report(usages: Iterable[KernelUsage]) -> list[str]:
    """A line for every kernel: registers and spilled bytes a thread, for each architecture."""
    lines: dict[str, list[str]] = {}
    for usage in usages:
        spilled = f" + {usage.spilled} bytes spilled" if usage.spilled else ""
        lines.setdefault(usage.name, []).append(f"{usage.arch} {usage.registers:3}{spilled}")
    return [f"  {', '.join(found)}  {name}" for name, found in sorted(lines.items())]
