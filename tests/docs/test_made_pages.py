"""Checks that pages which scripts make are what these scripts make now."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SCRIPTS = [path for path in sorted(DOCS.glob("make_*.py")) if "[--print]" in path.read_text()]


RUN = """
import contextlib, io, json, runpy, sys, traceback
pages = {}
scripts, sys.argv[1:] = sys.argv[1:], ["--print"]
for script in scripts:
    with contextlib.redirect_stdout(io.StringIO()) as page:
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            page.write(traceback.format_exc())
    pages[script] = page.getvalue()
print(json.dumps(pages))
"""


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Returns what the scripts print, by their paths; one process runs all, since its imports take longest."""
    command = [sys.executable, "-c", RUN, *map(str, SCRIPTS)]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(DOCS)}
    )
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_page_is_what_its_script_makes(script: Path, made: dict[str, str]) -> None:
    page = DOCS / f"{script.stem.removeprefix('make_')}.md"
    assert page.read_text() == made[str(script)], f"run docs/{script.name}"


@pytest.fixture
def families(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("make_families")


def test_the_table_of_the_readme_is_what_was_measured(families: Any) -> None:
    page = (ROOT / "README.md").read_text()
    table = families.table(json.loads(families.RECORDS.read_text()))
    assert page == families.replaced(page, "families", table), "run docs/make_families.py --no-measure"


@pytest.mark.parametrize(
    ("theirs", "text"),
    [(5.0, "0.50x (slower)"), (9.5, "no gain"), (10.9, "no gain"), (11.1, "1.1x"), (12345.0, "1,234x")],
)
def test_no_gain_is_said_in_words(theirs: float, text: str, families: Any) -> None:
    assert families.factor(theirs, 10.0) == text


def test_coverage_lists_the_layers_of_both_libraries() -> None:
    """Comparing all that docs/make_coverage.py finds takes minutes, since it runs every layer."""
    conv, dgl = pytest.importorskip("torch_geometric.nn.conv"), pytest.importorskip("dgl.nn.pytorch.conv")
    _, *sections, models = re.split(r"^## ", (DOCS / "coverage.md").read_text(), flags=re.MULTILINE)
    named = re.findall(r'^        "([^"]+)": Model\(', (DOCS / "coverage_models.py").read_text(), flags=re.MULTILINE)
    assert re.findall(r"^\| ([^|]+) \| `", models, flags=re.MULTILINE) == named
    for section, names in zip(sections, (conv.__all__, [*dgl.__all__, "HeteroGraphConv"]), strict=True):
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", section, re.MULTILINE)
        assert [name for name, _ in rows] == list(names)
        assert f"\n{sum(runs == 'compiled' for _, runs in rows)} of {len(rows)} classes of" in section


def test_the_table_of_environment_variables_is_whole() -> None:
    files = [path for folder in ("dacergnn", "tests") for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text() for path in files)
    read = set(re.findall(r'environ\.get\("(\w+)"', text))
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "environment.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert read <= listed
    assert [name for name in sorted(listed) if name not in text] == []
