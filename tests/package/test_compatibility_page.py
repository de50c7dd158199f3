"""That docs/compatibility.md says what the tests in tests/compatibility are about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_what_its_script_makes() -> None:
    made = subprocess.run(
        [sys.executable, str(DOCS / "make_compatibility.py"), "--print"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert (DOCS / "compatibility.md").read_text() == made.stdout, "run docs/make_compatibility.py"
