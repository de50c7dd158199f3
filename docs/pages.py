"""Finds the parts of a page between marks, and writes or prints it, for the scripts that make pages."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
if str(FOLDER.parent) not in sys.path:
    sys.path.insert(1, str(FOLDER.parent))  # scripts of this folder use the laboratory, which is not installed


def replaced(page: str, part: str, text: str) -> str:
    """Returns a page with a text between the marks of one of its parts."""
    start, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    before, _, rest = page.partition(start)
    return f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}"


def give(name: str, text: str) -> None:
    """Writes a page of this folder, or prints it with ``--print`` on the command line."""
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(text)
    else:
        (FOLDER / name).write_text(text)
