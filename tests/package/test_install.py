"""The package as users get it: an sdist, a wheel of it, and what works from the wheel in an environment of its own."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
USE = """
import dacergnn
import torch

graph = dacergnn.HeteroGraph.from_arrays(torch.zeros(2, 3).long(), torch.zeros(3).long(), num_nodes=3)
edges: int = graph.size("E")
layers = dacergnn.explain(dacergnn.optimize(torch.nn.Linear(1, 1), graph)).layers
wrong: str = graph.size("E")
dacergnn.Config(level=3)
layers.missing
"""
"""The last three lines are wrong."""


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DACERGNN_DATA")} | variables
    with tempfile.TemporaryDirectory() as empty:  # where Python finds neither the checkout nor another's files
        return subprocess.run(
            [*map(str, command)], capture_output=True, text=True, check=False, env=environment, cwd=empty
        )


def done(*command: str | Path, **variables: str) -> str:
    result = run(*command, **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built of it."""
    out = tmp_path_factory.mktemp("dist")
    with (Path(tempfile.gettempdir()) / "dacergnn_build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of pytest-xdist would write the same files of the checkout
        done(sys.executable, "-m", "build", "--outdir", out, ROOT)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with torch and the wheel alone."""
    folder = tmp_path_factory.mktemp("environment")
    done(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    done(python, "-m", "pip", "install", "--quiet", f"torch=={torch.__version__.partition('+')[0]}")
    done(python, "-m", "pip", "install", "--quiet", archives[1])
    return python


def run_blocks(python: Path, page: str, folder: Path) -> None:
    """Runs the Python blocks of a page, as a user does who copies them into one file."""
    blocks = PYTHON_BLOCK.findall((ROOT / "docs" / page).read_text())
    assert len(blocks) > 4
    file = folder / "blocks.py"
    file.write_text("\n".join(blocks))
    done(python, file, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "2"))


def test_the_sdist_holds_tests_pages_examples_and_the_changelog(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"CHANGELOG.md", "LICENSE", "README.md", "CITATION.cff", "SECURITY.md", "tests/conftest.py"}
    assert names >= expected | {"docs/quickstart.md", "examples/han.py", "benchmarks/commands.py", "dacergnn/py.typed"}
    assert not [name for name in names if name.endswith(".pyc") or ".cache" in name]


def test_the_wheel_holds_the_package_alone(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[1]) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("METADATA")]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"dacergnn"}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "dacergnn").rglob("*") if path.is_file()}
    kept = {path for path in sources if "__pycache__" not in path}
    assert kept <= set(names)
    graph = "dacergnn/datasets/graphs/aifb"
    assert {f"{graph}.npz", f"{graph}.txt"} <= set(names)
    assert any(name.endswith(f"dist-info/licenses/{graph}.txt") for name in names)
    assert "License-Expression: BSD-3-Clause AND MIT" in metadata
    for line in ("Typing :: Typed", "Project-URL: ", "Keywords: ", "Provides-Extra: pyg", "Provides-Extra: data"):
        assert line in metadata


@pytest.mark.check
def test_quickstarts_run_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """First with torch alone, then with PyG beside it."""
    present = "import importlib.util as i; print([n for n in ('torch_geometric', 'dgl', 'pytest') if i.find_spec(n)])"
    assert done(installed, "-c", present) == "[]\n"
    assert "explain" in done(installed, "-m", "dacergnn", "--help")
    assert "pip install 'dacergnn[pyg]'" in run(installed, "-m", "dacergnn", "bench").stderr
    run_blocks(installed, "quickstart_torch.md", tmp_path)
    done(installed, "-m", "pip", "install", "--quiet", "torch_geometric")
    run_blocks(installed, "quickstart.md", tmp_path)


@pytest.mark.check
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_read_the_installed_package(installed: Path, tmp_path: Path, checker: str) -> None:
    file = tmp_path / "use.py"
    file.write_text(USE)
    options = ["--python-executable"] if checker == "mypy" else ["--pythonpath"]
    result = run(sys.executable, "-m", checker, *options, installed, file)
    wrong = {int(line) for line in re.findall(r"use\.py:(\d+):(?:\d+:?)? -?\s*error", result.stdout)}
    assert wrong == {8, 9, 10}, result.stdout + result.stderr
