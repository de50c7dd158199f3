"""Finds, checks and calls the CUDA compiler. No GPU is needed to build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dacergnn.errors import BuildError, UnsupportedMachineError

OLDEST = (12, 0)
"""The first release of the CUDA toolkit whose nvcc supports C++20."""
SYSTEM = "/usr/local/cuda/bin/nvcc"
"""Names the place where installers put nvcc."""
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


SHARED_KIB = {80: 163, 87: 163, 90: 227, 100: 227, 103: 227, 110: 227}
"""The most shared memory of a block by architecture, as the CUDA programming guide lists it; others have 99 KiB."""
MOST_SHARED_KIB = 160
"""Shared memory of a block that kernels make use of."""


@cache
def compiler() -> tuple[str, str]:
    """Returns path and release of nvcc: ``NVCC``, else the first that is found.

    It is looked for in ``CUDA_HOME`` and ``CUDA_PATH``, as torch does, on PATH, in /usr/local/cuda, and among the
    packages of pip (``pip install 'dacergnn[cuda]'``).

    Raises:
        UnsupportedMachineError: There is none, or it is too old.
    """
    chosen = os.environ.get("NVCC")
    path = next(filter(None, map(shutil.which, [chosen] if chosen else _candidates())), None)
    if path is None:
        looked_for = f'"{chosen}", which NVCC names, is not there' if chosen else "nvcc was found nowhere"
        raise UnsupportedMachineError(
            f"The CUDA compiler {looked_for}; pip install 'dacergnn[cuda]', or install the CUDA toolkit "
            f"({OLDEST[0]}.{OLDEST[1]} or newer) and set CUDA_HOME or NVCC."
        )
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"release (\d+)\.(\d+)", text)
    release = (int(match[1]), int(match[2])) if match else (0, 0)
    if release < OLDEST:
        raise UnsupportedMachineError(
            f"{path} is of CUDA {release[0]}.{release[1]}, but generated code needs {OLDEST[0]}.{OLDEST[1]} or newer; "
            "install a newer CUDA toolkit, or set NVCC to the nvcc of one."
        )
    return path, f"{release[0]}.{release[1]}"


def _candidates() -> list[str]:
    """Returns where nvcc may be, the preferred place first."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places = [str(home / "bin" / "nvcc") for home in homes]
    packages = find_spec("nvidia")
    folders = [Path(folder) for folder in packages.submodule_search_locations or ()] if packages else []
    bundled = [str(path) for folder in folders for path in sorted(folder.glob("cu*/bin/nvcc"), reverse=True)]
    return [*places, "nvcc", SYSTEM, *bundled]


@cache
def known() -> list[int]:
    """Returns the architectures that nvcc knows, without the dot; none if it does not list them."""
    run = subprocess.run([compiler()[0], "--list-gpu-arch"], capture_output=True, text=True, check=False)
    return sorted(int(number) for number in re.findall(r"compute_(\d+)", run.stdout))


def supported(architecture: int) -> int:
    """Returns the architecture to build for so that a device runs the code: its own, or the newest that nvcc knows."""
    return max((a for a in known() if a <= architecture), default=architecture)


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
    shared = min(MOST_SHARED_KIB, *(SHARED_KIB.get(a, 99) for a in architectures))
    limit = f"-DDACERGNN_SHARED_BYTES={shared * 1024}"
    return [compiler()[0], *FLAGS, limit, *machines, f"-gencode=arch=compute_{newest},code=compute_{newest}"]


def for_host(options: Iterable[str]) -> list[str]:
    """Returns the words that pass options on to the compiler and the linker of the host."""
    pairs = [("-Xlinker", o.removeprefix("-Wl,")) if o.startswith("-Wl,") else ("-Xcompiler", o) for o in options]
    return [word for pair in pairs for word in pair]


def host_command() -> list[str]:
    """Returns the command that compiles C++ which calls the CUDA runtime, without include folders and files."""
    return [compiler()[0], "-x", "c++", "-std=c++20", "-O3", "-Xcompiler", "-fPIC"]


def link_command() -> list[str]:
    """Returns the command that joins objects to a library, which holds the CUDA runtime."""
    return [compiler()[0], "-shared", "-cudart", "static"]
