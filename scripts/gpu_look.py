"""Say in a line what a machine has of what scripts/gpu_check.sh needs, and in another what is missing and what to do.

    python scripts/gpu_look.py [WHEELS]

Exit status: 1 where nothing can run at all.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NEEDED = ("torch", "numpy", "scipy", "pip")
SYSTEM = "/usr/local/cuda/bin/nvcc"
FILES = {"nvcc": "nvidia_cuda_nvcc"}
"""Names of wheels that differ from those of what they bring."""


def nvcc() -> str | None:
    """Returns the path of the compiler of a toolkit, or None."""
    home = os.environ.get("CUDA_HOME", "")
    places = (os.environ.get("NVCC", ""), str(Path(home) / "bin" / "nvcc") if home else "", "nvcc", SYSTEM)
    return next(filter(None, map(shutil.which, filter(None, places))), None)


def installed(names: Iterable[str]) -> dict[str, str | None]:
    """Returns the version of each package, or None where it is not installed."""

    def find(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return {name: find(name) for name in names}


def missing(found: dict[str, str | None], compiler: str | None, wheels: list[str], release: str) -> tuple[str, bool]:
    """Returns what is missing and what to do, empty where nothing is, and whether the rest can run.

    Args:
        wheels: Names of the files that can be installed.
        release: Of Python, as in the names of wheels: "312".
    """
    carried = {name.split("-")[0].lower() for name in wheels}
    remedies = {
        "numpy": "make the wheels without naming it in WITHOUT",
        "scipy": "make the wheels without naming it in WITHOUT",
        "nvcc": "install a CUDA toolkit from 12.0 up, or make the wheels WITH=cuda; no layer of ours runs without it",
    }
    lacking = [name for name in ("numpy", "scipy") if not found[name]] + ["nvcc"] * (compiler is None)
    brought = [name for name in lacking if FILES.get(name, name) in carried]
    told = [f"{name} ({'comes from the wheels' if name in brought else remedies[name]})" for name in lacking]
    usable = True
    if not found["torch"]:
        told.append("torch (install a build with CUDA; nothing runs without it)")
        usable = False
    if wheels and not found["pip"]:
        told.append("pip (install it, to install the wheels)")
        usable = False
    others = {m[1] for m in (re.search(r"-cp(\d+)-cp\d+-", name) for name in wheels) if m}
    if others and release not in others:
        told.append(f"wheels for this Python (make the wheels WHEELS_PYTHON={release[0]}.{release[1:]})")
        usable = False
    return f"missing: {'; '.join(told)}" if told else "", usable


def main() -> None:
    """Look, say and end."""
    folder = Path(sys.argv[1]) if sys.argv[1:] and sys.argv[1] else None
    wheels = sorted(path.name for path in folder.glob("*.whl")) if folder else []
    found, compiler = installed(NEEDED), nvcc()
    parts = [f"{name} {release}" for name, release in found.items() if release]
    print(f"found: Python {platform.python_version()}, {', '.join([*parts, *([compiler] if compiler else [])])}")
    text, usable = missing(found, compiler, wheels, "".join(platform.python_version_tuple()[:2]))
    if text:
        print(text)
    sys.exit(not usable)


if __name__ == "__main__":
    main()
