"""Checks that links lead somewhere in a browser of the repository; the site's own build checks anchors, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


def targets(page: Path) -> Iterator[str]:
    for token in MarkdownIt().parse(page.read_text()):
        for child in token.children or []:
            yield from (str(child.attrs[name]) for name in ("href", "src") if name in child.attrs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Tests have no network, so that of a link to another site only the form is checked."""
    for target in targets(page):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            assert parts.scheme == "https", target
            assert "." in parts.netloc, target
        else:
            assert (page.parent / parts.path).exists(), f"{page.name} links to {target}, which does not exist"
