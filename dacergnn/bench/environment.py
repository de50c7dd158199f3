"""Tells what results depend on: versions, compilers, processor and device, and rates."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from dacergnn.config import Rates
from dacergnn.errors import BuildError
from dacergnn.json_lines import Row, Writer
from dacergnn.native import nvcc
from dacergnn.native.build import compiler as found_compiler
from dacergnn.native.build import vectors
from dacergnn.native.processor import info
from dacergnn.target import find

PACKAGES = ("torch", "dace", "numpy", "torch_geometric", "pyg_lib", "dgl", "triton")
# Instruction sets of which the kernels, or the libraries that they call, choose one.
X86_FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16")
ARM_FEATURES = ("asimd", "asimdhp", "sve", "sve2", "bf16", "i8mm")


def environment() -> dict[str, str | int]:
    """Returns versions, compilers, processor and device, by name; nothing is measured."""
    return {
        "dacergnn": installed_version("dacergnn"),
        "python": platform.python_version(),
        **{name: installed_version(name) for name in PACKAGES},
        "compiler": compiler(),
        "kernels": kernels(),
        **machine(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "driver": driver(),
        "CUDA toolkit": toolkit(),
    }


def about(**more: Any) -> dict[str, Any]:
    """Returns the first record of a file: the environment, command, date, the commit of a checkout, and more."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    return {
        "environment": environment(),
        "command": " ".join((name, shlex.join(sys.argv[1:]))),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }


def write_run(path: Path, rows: Iterable[Row], **more: Any) -> None:
    """Appends the rows of a run to a file of JSON lines, after a record of what they depend on (`about`)."""
    Writer(path).write([about(**more), *rows])


def commit() -> str:
    """Returns the commit of the checkout that this package is in, "" for an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    with suppress(OSError):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.stdout.strip() if run.returncode == 0 else ""
    return ""


def machine() -> dict[str, str | int]:
    """Returns the processor, its instructions, cores and threads in use, and what sets its clock."""
    model, features = cpu_facts(Path("/proc/cpuinfo"))
    return {
        "cpu": model or platform.processor() or platform.machine(),
        "cpu features": features,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "governor": governor(),
    }


def governor(processors: Path = Path("/sys/devices/system/cpu")) -> str:
    """Returns the names of the rules that set the clocks of the processors, or "unknown", as in virtual machines."""
    names: set[str] = set()
    for file in processors.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        with suppress(OSError):
            names.add(file.read_text().strip())
    return ", ".join(sorted(names)) or "unknown"


def load() -> float | None:
    """Returns how many threads ran or waited in the last minute, by the system's count; None where it has none."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def installed_version(package: str) -> str:
    """Returns the version of `package`, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def compiler() -> str:
    """Returns what the C++ compiler of builds says of itself, or why there is none."""
    try:
        return found_compiler()[1]
    except BuildError as error:
        return str(error)


def kernels() -> str:
    """Returns the target of layers on the CPU and the vectors of its kernels, or why there is no compiler."""
    try:
        return f"{find(None).name}, {vectors()}"
    except BuildError as error:
        return str(error)


def driver() -> str:
    """Returns the version of the driver of NVIDIA devices, or "none"."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "none"
    return told[0] if told else "none"


def toolkit() -> str:
    """Returns the release of nvcc, or why there is none, and the CUDA release that torch was built for."""
    try:
        release = nvcc.compiler()[1]
    except BuildError as error:
        release = str(error)
    return f"{release}; torch for {torch.version.cuda or 'the processor'}"


def cpu_facts(cpuinfo: Path) -> tuple[str, str]:
    """Returns the model name and the known instruction sets of the first processor; empty if the file has none."""
    first = takewhile(str.strip, info(cpuinfo))
    pairs = (line.partition(":") for line in first)
    facts = {key.strip(): value.strip() for key, _, value in pairs}
    part = f"ARM, implementer {facts.get('CPU implementer')}, part {facts['CPU part']}" if "CPU part" in facts else ""
    flags = facts.get("flags", facts.get("Features", "")).split()
    return facts.get("model name", part), " ".join(f for f in (*X86_FEATURES, *ARM_FEATURES) if f in flags)


def described(rates: Rates) -> dict[str, str]:
    """Returns rates by name, and how to compile layers by them."""
    values = ", ".join(f"{name}={value:.4g}" for name, value in asdict(rates).items())
    return {
        "copy bandwidth": f"{rates.streamed / 1e9:.1f} GB/s",
        "gather bandwidth": f"{rates.gathered / 1e9:.1f} GB/s",
        "gathered rows": f"{rates.rows / 1e6:.0f} million/s",
        "GEMM rate": f"{rates.flops / 1e9:.0f} GFLOP/s",
        "to compile by": f"Config(rates=Rates({values}))",
    }
