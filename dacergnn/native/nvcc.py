"""Finds, checks and calls the CUDA compiler. No GPU is needed to build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from dacergnn.errors import BuildError

OLDEST = (12, 0)
"""The first release of the CUDA toolkit whose nvcc supports C++20."""
FLAGS = (
    "-x",
    "cu",
    "-std=c++20",
    "-O3",
    "-lineinfo",  # for compute-sanitizer and profilers; the code is the same
    "--extended-lambda",
    "--expt-relaxed-constexpr",
    "-Xcompiler",
    "-fPIC",
    "-shared",
    "-D__restrict__=",
    "-w",
)


@cache
def compiler() -> tuple[str, str]:
    """Returns path and release of nvcc: ``NVCC``, else nvcc on PATH, else nvcc of ``CUDA_HOME`` (/usr/local/cuda).

    Raises:
        BuildError: There is none, or it is too old.
    """
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    name = os.environ.get("NVCC", "nvcc")
    path = shutil.which(name) or shutil.which(str(home / "bin" / "nvcc"))
    if path is None:
        raise BuildError(
            f'The CUDA compiler "{name}" is neither on PATH nor in {home / "bin"}; install the CUDA toolkit '
            f"({OLDEST[0]}.{OLDEST[1]} or newer), or set NVCC or CUDA_HOME."
        )
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"release (\d+)\.(\d+)", text)
    release = (int(match[1]), int(match[2])) if match else (0, 0)
    if release < OLDEST:
        raise BuildError(
            f"{path} is of CUDA {release[0]}.{release[1]}, but generated code needs {OLDEST[0]}.{OLDEST[1]} or newer; "
            "install a newer CUDA toolkit, or set NVCC to the nvcc of one."
        )
    return path, f"{release[0]}.{release[1]}"


@cache
def known() -> list[int]:
    """Returns the architectures that nvcc knows, without the dot; none if it does not list them."""
    run = subprocess.run([compiler()[0], "--list-gpu-arch"], capture_output=True, text=True, check=False)
    return sorted(int(number) for number in re.findall(r"compute_(\d+)", run.stdout))


def command(architectures: tuple[int, ...]) -> list[str]:
    """Returns the command of nvcc, without include folders and files, for one library for all ``architectures``.

    Args:
        architectures: Compute capabilities without the dot, such as 90. Devices newer than the last get its PTX.

    Raises:
        BuildError: There is no suitable nvcc.
    """
    machines = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in sorted(architectures)]
    newest = max(architectures)
    listed = known()
    unknown = [a for a in sorted(architectures) if listed and a not in listed]
    if unknown:
        path, release = compiler()
        raise BuildError(
            f"{path} of CUDA {release} does not know compute capability {unknown[0] / 10}, only {listed[0] / 10} to "
            f"{listed[-1] / 10}; install another CUDA toolkit, or name older ones in Config(cuda_arch=({listed[-1]},)),"
            " whose code newer devices run as well."
        )
    return [compiler()[0], *FLAGS, *machines, f"-gencode=arch=compute_{newest},code=compute_{newest}"]
