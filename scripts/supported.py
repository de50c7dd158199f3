"""Runs tests/supported with the oldest and the newest releases that the package supports, and keeps what passed.

    python scripts/supported.py [NAME ...]     # of the sets below; all of them by default

A set is the environment of this Python with other releases in a folder before it, or an environment of its own for
another release of Python. A folder whose releases are all named stays for the next run. Results go to
docs/supported.json, from which docs/make_supported.py makes a page.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "supported"
RESULTS = ROOT / "docs" / "supported.json"
VERSIONS = """
import json, platform, re
from importlib.metadata import PackageNotFoundError, version
found = {"python": platform.python_version()}
for name in ("torch", "torch_geometric", "dgl", "dace"):
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = ""
from dacergnn.native.build import compiler
print(json.dumps({**found, "compiler": re.sub(r" \\(.*?\\)", "", compiler()[1])}))
"""


@dataclass(frozen=True)
class Supported:
    """Describes releases to test with.

    Args:
        name: The name of the set.
        requirements: What pip installs into a folder of its own.
        alone: Whether the requirements are installed without what they need themselves.
        variables: Environment variables of the tests.
        python: A release of Python, for which an environment of its own is made; "" for this one.
    """

    name: str
    requirements: tuple[str, ...] = ()
    alone: bool = True
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = ""


SETS = (
    Supported("developers' environment"),
    Supported("oldest torch", ("torch==2.8.0",), alone=False),
    Supported("newest torch", ("torch",), alone=False),
    Supported("oldest PyG", ("torch_geometric==2.6.0",)),
    Supported("newest PyG", ("torch_geometric",)),
    Supported("DGL 1.1.3", ("dgl==1.1.3",)),
    # What it needs is named here, since that would bring another torch.
    Supported("DGL 2.1", ("dgl==2.1.0", "torchdata==0.9.0", "pandas", "python-dateutil", "pydantic<2")),
    Supported("clang", variables={"CXX": "clang++"}),
    Supported("Python 3.12", python="3.12"),
    Supported("Python 3.13", python="3.13"),
)


def environment(one: Supported) -> tuple[Path, dict[str, str]]:
    """Makes the environment of a set, unless it is there; returns its Python, and the variables to run it with."""
    folder = FOLDER / one.name.replace(" ", "_").replace("'", "")
    python, paths, kept = Path(sys.executable), [str(ROOT)], folder / "kept.txt"
    named = " ".join([sys.version, *one.requirements]) if all("==" in name for name in one.requirements) else ""
    if one.python or not (named and kept.is_file() and kept.read_text() == named):
        shutil.rmtree(folder, ignore_errors=True)
    if one.python:
        command = shutil.which(f"python{one.python}")
        if command is None:
            raise FileNotFoundError(f"there is no python{one.python}")
        run(command, "-m", "venv", str(folder))
        python = folder / "bin" / "python"
        run(str(python), "-m", "pip", "install", "-q", "torch")
        run(str(python), "-m", "pip", "install", "-q", f"{ROOT}[pyg,test]")
    elif one.requirements:
        if not folder.is_dir():
            options = ["--no-compile", *(["--no-deps"] if one.alone else [])]
            run(str(python), "-m", "pip", "install", "-q", "--target", str(folder), *options, *one.requirements)
            kept.write_text(named)
        paths.insert(0, str(folder))
    return python, {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **one.variables}


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def result(one: Supported) -> dict[str, Any]:
    """Returns the releases of a set, and what passed, failed and was skipped with them."""
    facts: dict[str, Any] = {"name": one.name, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    try:
        python, variables = environment(one)
    except FileNotFoundError as error:
        return {**facts, "reason": str(error)}
    except subprocess.CalledProcessError as error:
        return {**facts, "reason": f"{' '.join(Path(word).name for word in error.cmd[:3])} fails"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", f"--junit-xml={report}"]
        tests = [str(python), "-m", "pytest", *options, str(ROOT / "tests" / "supported")]
        subprocess.run(tests, cwd=ROOT, env=variables, check=False)
        versions = subprocess.run(
            [str(python), "-W", "ignore", "-c", VERSIONS], env=variables, cwd=folder, capture_output=True, text=True,
            check=True,
        ).stdout  # fmt: skip
        suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    reasons = [found.get("message", "") for found in suite.iter("skipped")]
    return {
        **facts,
        "versions": json.loads(versions.splitlines()[-1]),
        "passed": counts["tests"] - failed - counts["skipped"],
        "failed": failed,
        "skipped": counts["skipped"],
        "reason": "; ".join(dict.fromkeys(reasons)),
    }


def main(*names: str) -> int:
    """Runs sets and keeps their results; returns the number of sets in which a test failed."""
    unknown = set(names) - {one.name for one in SETS}
    if unknown:
        sys.exit(f"There is no set {sorted(unknown)[0]!r}; the sets are {', '.join(one.name for one in SETS)}.")
    known = {row["name"]: row for row in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    for one in SETS:
        if not names or one.name in names:
            known[one.name] = result(one)
            print(json.dumps(known[one.name]))
    rows = [known[one.name] for one in SETS if one.name in known]
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    return sum(known[name].get("failed", 0) > 0 for name in names or known)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
