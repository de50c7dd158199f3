"""scripts/mutations.py: its changes can still be made, and a run tells those that tests notice from the others."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import mutations
from scripts.mutations import Copy, Mutation, Outcome

PACKAGE = mutations.ROOT / "dacergnn"
CHANGE = Mutation("minus", "dacergnn/sums.py", "a + b", "a - b", ("tests/test_sums.py",), "Sums are differences.")
SUMS = "def add(a: int, b: int) -> int:\n    return a + b\n\n\nUNUSED = 0\n"
TESTS = "from dacergnn.sums import add\n\n\ndef test_sums() -> None:\n    assert add(1, 2) == 3\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package of the same name and one test."""
    root = tmp_path / "checkout"
    texts = {"dacergnn/__init__.py": "", "dacergnn/sums.py": SUMS, "tests/test_sums.py": TESTS, ".gitignore": "kept\n"}
    for name, text in (texts | {"kept": "no part of the copy"}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def test_all_mutations_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutations.main(["--check"]) == 0
    assert capsys.readouterr().out == "All 100 mutations can be made.\n"


def test_all_folders_of_the_package_with_tests_have_one() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= {m.file.split("/")[1] for m in mutations.table()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": "a * b"}, "'a * b' occurs 0 times in dacergnn/sums.py, not once"),
        ({"text": "int"}, "'int' occurs 3 times in dacergnn/sums.py, not once"),
        ({"file": "dacergnn/gone.py"}, "'a + b' occurs 0 times in dacergnn/gone.py, not once"),
        ({"instead": "a + b"}, "the change must be one of a single line"),
        ({"instead": "a\nb"}, "the change must be one of a single line"),
        ({"instead": "a +"}, "dacergnn/sums.py is no Python with the change"),
        ({"tests": ()}, "there must be one to 4 files of tests, and [] are not there"),
        ({"tests": ("tests/gone.py",)}, "there must be one to 4 files of tests, and ['tests/gone.py'] are not there"),
        ({"name": "7"}, "a name must be unlike those of the others, and no number"),
    ],
)  # fmt: skip
def test_mutations_that_cannot_be_made(checkout: Path, change: dict[str, object], said: str) -> None:
    changed = replace(CHANGE, **change)  # type: ignore[arg-type]
    assert [*mutations.problems([changed], checkout)] == [f"{changed.name}: {said}"]
    assert not [*mutations.problems([CHANGE], checkout)]


@pytest.mark.check
def test_tests_notice_some_changes(checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that a test notices, one that none does, one that no import survives, one that is not done in time."""
    changes = [
        CHANGE,
        replace(CHANGE, name="unused", text="UNUSED = 0", instead="UNUSED = 1"),
        replace(CHANGE, name="gone", text="def add", instead="def added"),
        replace(CHANGE, name="endless", instead="__import__('time').sleep(600)"),
    ]
    (tmp_path / "copy").mkdir()
    copy = Copy(tmp_path / "copy", checkout)
    assert not (copy.folder / "kept").exists()
    found: list[tuple[Mutation, Outcome]] = []
    for number, change in enumerate(changes, 1):
        limit = 2.0 if change.name == "endless" else 300.0
        mutations.measure(copy, [(number, change)], limit, lambda *pair: found.append(pair))
    assert [outcome.status for _, outcome in found] == ["killed", "survived", "killed", "killed"]
    reasons = [outcome.reason for _, outcome in found]
    assert reasons[0].startswith("FAILED tests/test_sums.py::test_sums")
    assert reasons[2].startswith("ERROR tests/test_sums.py")
    assert reasons[3] == "not done after 2 s"
    assert (copy.folder / "dacergnn/sums.py").read_text() == (checkout / "dacergnn/sums.py").read_text() == SUMS
    assert mutations.baseline(copy, CHANGE.tests, 300.0) == 0
    assert mutations.by_folder(found).splitlines()[1].split()[:5] == ["dacergnn", "4", "3", "1", "0"]
    assert "  1 killed" in capsys.readouterr().out


def test_results_of_several_runs_are_kept(tmp_path: Path) -> None:
    path, other = tmp_path / "results.json", replace(CHANGE, name="other")
    for mutation, status in ((CHANGE, "killed"), (other, "survived"), (other, "killed")):
        mutations.keep(path, [(mutation, Outcome(status, 1.0, ""))], [CHANGE, other])  # type: ignore[arg-type]
    assert [(row["name"], row["status"]) for row in json.loads(path.read_text())] == [
        ("minus", "killed"),
        ("other", "killed"),
    ]
    mutations.keep(path, [], [replace(CHANGE, instead="b - a"), other])
    assert [row["name"] for row in json.loads(path.read_text())] == ["other"]
