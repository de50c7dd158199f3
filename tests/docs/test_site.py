"""That the site builds without a warning, and that its reference has every public name."""

from __future__ import annotations

import importlib
import pkgutil
import posixpath
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sphinx.util.inventory import InventoryFile

import dacergnn

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = (
    "bench",
    "datasets",
    "deploy",
    "distributed",
    "errors",
    "layerwise",
    "loader",
    "modules",
    "ops",
    "profiling",
    "sampler",
)
INTERNAL = {"cli", "frontends", "graph", "library_nodes", "native", "program", "runtime"}
INTERNAL |= {"report", "sdfg_passes", "tuning", "viewer"}


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Builds the site, and returns the qualified names of the Python objects that it describes."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "docs", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    with (folder / "objects.inv").open("rb") as file:
        found = InventoryFile.load(file, "", posixpath.join)
    return {name for kind, names in found.items() if kind.startswith("py:") for name in names}


def public_names(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    made_here = [n for n, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in made_here if not name.startswith("_")]


def places(module: ModuleType, name: str) -> set[str]:
    """Returns the names of a public name in the reference: in its module, in the package, and where it is made."""
    value = getattr(module, name)
    modules = [module, *([dacergnn] if getattr(dacergnn, name, None) is value else [])]
    return {f"{m.__name__}.{name}" for m in modules} | {f"{getattr(value, '__module__', '')}.{name}"}


def test_the_reference_has_every_public_name(documented: set[str]) -> None:
    modules = [dacergnn, *(importlib.import_module(f"dacergnn.{name}") for name in PUBLIC)]
    lacking = [f"{m.__name__}.{n}" for m in modules for n in public_names(m) if not places(m, n) & documented]
    assert not lacking, "give them a place in docs/reference"


def test_every_package_is_public_or_internal() -> None:
    packages = {module.name for module in pkgutil.iter_modules(dacergnn.__path__) if module.ispkg}
    assert packages - set(PUBLIC) == INTERNAL
