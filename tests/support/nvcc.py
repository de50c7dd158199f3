"""CUDA sources through nvcc, for machines without a device: warnings are errors; registers and spills by kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dacergnn.library_nodes.cpu import INCLUDE_FOLDER

FLAGS = ("-x", "cu", "-std=c++20", "--extended-lambda", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin")
_KERNEL = re.compile(
    r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class KernelUsage:
    """What one kernel takes: per thread registers, bytes of stack and bytes spilled; bytes of static shared memory."""

    name: str
    arch: str
    registers: int
    stack: int
    spilled: int
    shared: int


def compile_nvcc(source: str, archs: Sequence[int] = (80, 90)) -> list[KernelUsage]:
    """Compile ``source`` for each architecture; skips the test where nvcc is missing, fails on any warning."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on PATH")
    usages: list[KernelUsage] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "source.cu"
        file.write_text('#include "dacergnn/cuda/platform.cuh"\n#line 1 "source"\n' + source)
        for arch in archs:
            command = [nvcc, *FLAGS, f"-arch=sm_{arch}", f"-I{INCLUDE_FOLDER}", str(file), "-o", f"{folder}/out"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stderr
            names = subprocess.run(
                ["c++filt"], input=run.stdout + run.stderr, capture_output=True, text=True, check=True
            )
            usages += [_usage(m) for m in _KERNEL.finditer(names.stdout)]
    return usages


def _usage(found: re.Match[str]) -> KernelUsage:
    shared = re.search(r"(\d+) bytes smem", found["rest"])
    return KernelUsage(
        name=found["name"],
        arch=found["arch"],
        registers=int(found["registers"]),
        stack=int(found["stack"]),
        spilled=int(found["stores"]) + int(found["loads"]),
        shared=int(shared[1]) if shared else 0,
    )
