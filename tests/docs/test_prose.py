"""Checks that sentences are short and words spelled, by the limits in scripts/check_prose.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "check_prose.py"))


@pytest.fixture(scope="module")
def spelling() -> Any:
    return SCRIPT["dictionary"]()


@pytest.mark.parametrize("page", SCRIPT["PAGES"], ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_of_a_page(page: Path, spelling: Any) -> None:
    assert [*SCRIPT["findings"](page, spelling)] == []


def test_docstrings_of_modules(spelling: Any) -> None:
    assert [finding for path in SCRIPT["MODULES"] for finding in SCRIPT["findings"](path, spelling)] == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("One sentense.", "page.md:1: 'sentense' is in neither the dictionary nor docs/words.txt"),
        ("word " * 46 + "end.", "47 words, at most 45"),
        (f"{'word ' * 30}end. {'Word ' * 30}end.", "31.0 words a sentence, at most 25"),
        ("| a |\n|---|\n|" + "word " * 50 + "|", ""),
        ("```text\nsentense\n```\n# A hedding", "'hedding'"),
    ],
)
def test_what_is_found(text: str, finding: str, tmp_path: Path, spelling: Any) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    found = "\n".join(SCRIPT["findings"](page, spelling))
    assert finding in found
    assert bool(finding) == bool(found)
    assert "'sentense'" not in found or "sentense" in finding
