"""Runs the Python of every page, and holds its command lines against the programs that they name.

The blocks of a page run in order, in one namespace and in an empty folder. What a page needs and does not show stands
in a comment, ``<!--- invisible-code-block: python``. A block for a device has a comment, too:
``<!--- skip: next if(not torch.cuda.is_available(), reason="it needs a device") -->``.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from unittest import SkipTest

import click
import pytest
import torch
from markdown_it import MarkdownIt
from sybil import Example, Sybil
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser, SkipParser

from tests.docs.shell import check, lines

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "console", "text", "json", "toml", "cpp", "{eval-rst}", "{include}", "{toctree}"}


def evaluate_commands(example: Example) -> None:
    for words in lines(example.parsed):
        try:
            check(words)
        except (AssertionError, click.ClickException) as error:
            reason = error.format_message() if isinstance(error, click.ClickException) else error
            pytest.fail(f"{example.path}:{example.line}: {' '.join(words)}: {reason}", pytrace=False)


COMMANDS = [CodeBlockParser(language, evaluate_commands) for language in ("sh", "console")]
SYBIL = Sybil([PythonCodeBlockParser(), SkipParser(), *COMMANDS])


def identify(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.no_cover
@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    document = SYBIL.parse(page)
    document.namespace["__name__"] = page.stem  # as a module has it
    for example in document.examples():
        with suppress(SkipTest):
            example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_blocks_have_a_language(page: Path) -> None:
    """Indented blocks have none, and so are not checked."""
    tokens = MarkdownIt().parse(page.read_text())
    blocks = [token for token in tokens if token.type in ("fence", "code_block")]
    unknown = [(b.map and b.map[0] + 1, b.info) for b in blocks if b.info.partition(" ")[0] not in LANGUAGES]
    assert not unknown, f"lines and languages; known are {', '.join(sorted(LANGUAGES))}"
