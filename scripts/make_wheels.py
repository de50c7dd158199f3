"""Make the folder of wheels that scripts/gpu_check.sh installs: the package, and what it needs besides torch.

    python scripts/make_wheels.py FOLDER [PYTHON [NAME,... [EXTRA,...]]]

for a release of Python (3.12) on Linux with x86-64, without the packages named (those that the machine has: numpy,
scipy), and with further extras of the package (cuda, for a machine without nvcc). Wheels that are no longer needed are
removed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNUSED = {
    *("cmake", "ninja", "scikit_build", "distro"),
    *("sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions", "setuptools"),
    *("scikit_learn", "joblib", "threadpoolctl", "narwhals", "pytest_cov", "coverage"),
}
"""Names the packages that are left out: what DaCe asks for to build its own programs, what comes with torch, and what
only tests use that need no device."""
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (17, 24, 26, 27, 28, 31, 34)] + ["manylinux2014_x86_64", "linux_x86_64"]


def requirements(more: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Returns what is pinned, to be built from source, and what the package, tests and peers need besides torch.

    ``more`` names further extras. Raises SystemExit for one that the package does not have.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    unknown = [name for name in more if name not in extras]
    if unknown:
        sys.exit(f"WITH={unknown[0]}: the package has no such extra; choose from {', '.join(extras)}")
    names = [*project["dependencies"], *(name for extra in ("pyg", "test", *more) for name in extras[extra])]
    pinned = [name for name in names if "==" in name]
    return pinned, [name for name in names if name not in pinned and not name.startswith("torch>")]


def main() -> None:
    """Build, download, and say how much it is."""
    folder = Path(sys.argv[1])
    release = sys.argv[2] if len(sys.argv) > 2 else "3.12"
    without = UNUSED | {name.replace("-", "_") for name in (sys.argv[3] if len(sys.argv) > 3 else "").split(",")}
    pip = [sys.executable, "-m", "pip"]
    pinned, others = requirements([name for name in (sys.argv[4] if len(sys.argv) > 4 else "").split(",") if name])
    for old in folder.glob("*.whl"):
        old.unlink()
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # of an earlier wheel: what is gone would be packed again
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT), *pinned], check=True)
    built = [str(path) for path in folder.glob("*.whl") if not path.name.startswith("dacergnn-")]
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", release]
    options += [f"--platform={platform}" for platform in PLATFORMS]
    subprocess.run([*pip, "download", "--quiet", "-d", str(folder), *options, *built, *others], check=True)
    for path in folder.glob("*.whl"):
        if path.name.split("-")[0].lower() in without:
            path.unlink()
    wheels = sorted(folder.glob("*.whl"))
    print(f"{folder}: {len(wheels)} wheels, {sum(p.stat().st_size for p in wheels) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
