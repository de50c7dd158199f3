"""Checks the length of sentences and the spelling of pages and of modules' docstrings.

    python scripts/check_prose.py [FILE ...]

Prints a line for each finding, and fails if there is one. Tables, headings, code and pictures are no sentences. Words
of the field that the dictionary lacks are in docs/words.txt.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from spellchecker import SpellChecker

MEAN = 25
"""Words of a page's sentences in the mean, at most."""
LONGEST = 45
"""Words of a sentence, at most."""
ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(path for name in ("dacergnn", "benchmarks") for path in (ROOT / name).rglob("*.py"))
CODE = "`code`"
END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.!?])[\"')]?\s+(?=[A-Z\"'`(*\d])")
WORD = re.compile(r"(?<![\w./-])[A-Za-z]+(?:'[a-z]+)?(?![\w/]|\.\w)")
NAME = re.compile(r"[a-z][A-Z]|^[A-Z]{2,}s?$")
"""Names of classes and abbreviations, which no dictionary has."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a file and the line at which it starts."""

    line: int
    text: str

    @property
    def sentences(self) -> list[str]:
        return END.split(self.text)


def of_page(text: str) -> Iterator[tuple[Paragraph, bool]]:
    """Yields texts of a page, each with whether it consists of sentences."""
    kind = ""
    for token in MarkdownIt().enable("table").parse(text):
        if token.type.endswith("_open"):
            kind = token.type
        if token.type == "inline":
            pieces = [CODE if c.type == "code_inline" else c.content or " " for c in token.children or []]
            yield Paragraph((token.map or [0])[0] + 1, "".join(pieces)), kind == "paragraph_open"


def of_module(text: str) -> Iterator[tuple[Paragraph, bool]]:
    """Yields the paragraphs of a module's docstring without code; they are for the dictionary alone."""
    docstring = ast.get_docstring(ast.parse(text)) or ""
    for part in docstring.split("\n\n"):
        if not part.startswith(" "):
            yield Paragraph(1, re.sub(r"``.*?``|`.*?`", CODE, part, flags=re.DOTALL)), False


def findings(path: Path, spelling: SpellChecker) -> Iterator[str]:
    """Yields what is wrong with a file."""
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    lengths: list[int] = []
    for paragraph, prose in (of_module if path.suffix == ".py" else of_page)(path.read_text()):
        for sentence in paragraph.sentences if prose else ():
            lengths.append(sum(any(c.isalnum() for c in word) for word in sentence.split()))
            if lengths[-1] > LONGEST:
                yield f"{place}:{paragraph.line}: {lengths[-1]} words, at most {LONGEST}: {sentence[:60]}..."
        words = [word.removesuffix("'s") for word in WORD.findall(paragraph.text)]
        for word in sorted(spelling.unknown(word for word in words if not NAME.search(word))):
            yield f"{place}:{paragraph.line}: {word!r} is in neither the dictionary nor docs/words.txt"
    if lengths and sum(lengths) / len(lengths) > MEAN:
        yield f"{place}: {sum(lengths) / len(lengths):.1f} words a sentence, at most {MEAN}"


def dictionary() -> SpellChecker:
    spelling = SpellChecker(distance=1)
    spelling.word_frequency.load_words((ROOT / "docs" / "words.txt").read_text().split())
    return spelling


if __name__ == "__main__":
    spelling = dictionary()
    named = [Path(name).resolve() for name in sys.argv[1:]]
    found = [finding for path in named or [*PAGES, *MODULES] for finding in findings(path, spelling)]
    print("\n".join(found))
    sys.exit(bool(found))
