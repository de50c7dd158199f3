"""CUDA sources through nvcc, for machines without a device: warnings are errors; registers and spills by kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dacergnn.native.build import INCLUDE_FOLDER

FLAGS = ("-x", "cu", "-std=c++20", "--extended-lambda", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v", "--fatbin")
PROPERTY = "kernels"
"""Of a test: what its kernels take, which the report at the end of the run shows."""
_KERNEL = re.compile(
    r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class KernelUsage:
    """What one kernel takes: per thread registers, bytes of stack and bytes spilled; bytes of static shared memory.

    ``name`` is that of its functor, in which ``function#2`` is the second such lambda of a function.
    """

    name: str
    arch: str
    registers: int
    stack: int
    spilled: int
    shared: int


def needs_nvcc() -> str:
    """The path of nvcc. A test that has none is skipped, or fails if ``DACERGNN_REQUIRE_NVCC`` is set."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        missing = "nvcc is not on PATH; install a CUDA toolkit, which needs no device."
        if os.environ.get("DACERGNN_REQUIRE_NVCC"):
            pytest.fail(missing)
        pytest.skip(missing)
    return nvcc


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
    names = subprocess.run(["c++filt"], input=run.stdout + run.stderr, capture_output=True, text=True, check=True)
    return [_usage(m) for m in _KERNEL.finditer(names.stdout)]


def report(usages: Iterable[KernelUsage]) -> list[str]:
    """A line for every kernel: registers and spilled bytes a thread, for each architecture."""
    lines: dict[str, list[str]] = {}
    for usage in usages:
        spilled = f" + {usage.spilled} bytes spilled" if usage.spilled else ""
        lines.setdefault(usage.name, []).append(f"{usage.arch} {usage.registers:3}{spilled}")
    return [f"  {', '.join(found)}  {name}" for name, found in sorted(lines.items())]


def _readable(name: str) -> str:
    """The functor that a kernel runs, without what is the same in all or said otherwise."""
    name = re.sub(r"(?:__program_)?(\w+?)(?:_internal)?(?:\([^()]*\))?::\{lambda\([^()]*\)#(\d+)\}", r"\1#\2", name)
    name = name.replace("dacergnn::cuda::", "").replace("decltype(nullptr)", "none").replace("> >", ">>")
    name = re.sub(r"\b(\d+)l\b", r"\1", name)
    functor = re.fullmatch(r"void run<\d+, (?P<functor>.+?)>\((?P=functor)\)", name.replace(" >", ">"))
    return functor["functor"] if functor else name


def _usage(found: re.Match[str]) -> KernelUsage:
    shared = re.search(r"(\d+) bytes smem", found["rest"])
    return KernelUsage(
        name=_readable(found["name"]),
        arch=found["arch"],
        registers=int(found["registers"]),
        stack=int(found["stack"]),
        spilled=int(found["stores"]) + int(found["loads"]),
        shared=int(shared[1]) if shared else 0,
    )
