"""Install a folder of wheels into another folder, without network, but for those that this Python has already.

    PYTHONPATH=. python scripts/install_wheels.py WHEELS TARGET

The package itself, and what it pins, go there unless just that version is installed: a machine's own torch, numpy and
the like stay the ones that are used. The parts of a CUDA compiler have to lie in one folder, so all of them go there
unless the machine has a compiler.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scripts.gpu_look import nvcc

EXACT = ("dacergnn", "dace")
COMPILER = "nvidia_"


def wanted(wheels: Path) -> list[Path]:
    """The wheels that are to be installed; SystemExit where there are none of the package or of what it pins."""
    found: list[Path] = []
    names: set[str] = set()
    compiler = nvcc()
    for path in sorted(wheels.glob("*.whl")):
        name, release = path.name.split("-")[:2]
        names.add(name)
        if name.startswith(COMPILER):
            found += [] if compiler else [path]
            continue
        try:
            installed = version(name.replace("_", "-"))
        except PackageNotFoundError:
            installed = None
        if installed is None or (name in EXACT and (installed != release or name == "dacergnn")):
            found.append(path)
    missing = [name for name in EXACT if name not in names]
    if missing:
        sys.exit(f"{wheels} has no wheel of {' and '.join(missing)}; make the folder with 'make wheels'")
    return found


def main() -> None:
    """Install, and say what."""
    wheels, target = (Path(argument) for argument in sys.argv[1:])
    chosen = wanted(wheels)
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), *map(str, chosen)]
    code = subprocess.run(command, check=False).returncode
    print("installed", *(path.name for path in chosen), sep="\n  ")
    sys.exit(code)


if __name__ == "__main__":
    main()
