"""Runs the Python of every page, and holds its command lines against the programs that they name.

The blocks of a page run in order, in one namespace and in an empty folder, as a reader runs them: a page shows all that
its blocks need. A block that needs a network, a second machine or a device has a comment that says so:
``<!--- skip: next if(not torch.cuda.is_available(), reason="it needs a device") -->``.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
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
LANGUAGES = {"python", "sh", "console", "text", "json", "toml", "c", "cpp", "{eval-rst}", "{include}", "{toctree}"}


def message(error: Exception) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def evaluate_commands(example: Example) -> None:
    for words in lines(example.parsed):
        try:
            check(words)
        except (AssertionError, click.ClickException) as error:
            pytest.fail(f"{example.path}:{example.line}: {' '.join(words)}: {message(error)}", pytrace=False)


COMPILED = ("README.md", *(f"docs/{n}.md" for n in ("quickstart", "deployment", "program_form", "howto/vscode")))
"""Pages that measure operators, export libraries or have programs of their own; the layers of others run in NumPy."""
LIBRARIES = ("torch_geometric", "dgl")
"""Packages that an environment may lack; a page runs up to the block that imports one."""
LONG = ("docs/architecture.md", "docs/commands.md", "docs/papers.md", "docs/results")
"""Pages to look things up in, which may be longer than is read at once; papers and results begin with a summary."""
COMMANDS = [CodeBlockParser(language, evaluate_commands) for language in ("sh", "console")]
SYBIL = Sybil([PythonCodeBlockParser(), SkipParser(), *COMMANDS])


def identify(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=identify(page), marks=() if identify(page) in COMPILED else pytest.mark.interpreted)
        for page in PAGES
    ],
)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    document = SYBIL.parse(page)
    module = ModuleType(page.stem)  # classes of blocks are looked for in it
    monkeypatch.setitem(sys.modules, page.stem, module)
    document.namespace = vars(module)
    for example in document.examples():
        with suppress(SkipTest):
            try:
                example.evaluate()
            except ModuleNotFoundError as error:
                library = (error.name or "").partition(".")[0]
                if library not in LIBRARIES:
                    raise
                pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_a_page_shows_all_that_it_runs(page: Path) -> None:
    text = page.read_text()
    assert "invisible-code" not in text, "readers copy what they see"
    for skipped in re.findall(r"<!---?\s*skip:(.*?)-->", text, re.DOTALL):
        assert re.search(r'"[^"]+"', skipped), f"skip:{skipped}needs a reason"


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_blocks_have_a_language(page: Path) -> None:
    """Indented blocks have none, and so are not checked."""
    tokens = MarkdownIt().parse(page.read_text())
    blocks = [token for token in tokens if token.type in ("fence", "code_block")]
    unknown = [(b.map and b.map[0] + 1, b.info) for b in blocks if b.info.partition(" ")[0] not in LANGUAGES]
    assert not unknown, f"lines and languages; known are {', '.join(sorted(LANGUAGES))}"


def test_pages_for_users_are_short() -> None:
    lengths = {identify(page): len(page.read_text().splitlines()) for page in PAGES}
    assert {page: lines for page, lines in lengths.items() if lines >= 300 and not page.startswith(LONG)} == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dacergnn bench --dat aifb", "No such option"),
        ("dacergnn explain --model gcn", "is not one of"),
        ("dacergnn cache fill", "No such command"),
        ("dacergnn tune run --out", "requires an argument"),
        ("python benchmarks/gone.py", "there is no"),
        ("python -m benchmarks level_bounds --gone", "No such option"),
        ("python -m examples.relational --gone", "No such option"),
        ("python -m examples.gone", "there is no module"),
        ("scripts/gpu_check.sh --gone", "has no option --gone"),
        ("make gone", "the Makefile has no gone"),
        ("make wheels GONE=1", "the Makefile has no GONE"),
        ("DACERGNN_DATA=x .venv/bin/python -m pip install -e '.[gone]'  # a comment", "no extras {'gone'}"),
        ("pytest tests/gone", "there is no tests/gone"),
        ("gone", "gone is no program"),
    ],
)
def test_what_is_wrong_with_a_command(line: str, reason: str) -> None:
    (words,) = lines(line)
    with pytest.raises((AssertionError, click.ClickException)) as caught:
        check(words)
    assert reason in message(caught.value)


def test_prompts_tell_commands_from_output() -> None:
    assert [*lines("$ dacergnn cache \\\n    path\n/home/me/.cache/dacergnn\n")] == [["dacergnn", "cache", "path"]]
