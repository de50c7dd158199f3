"""Makes docs/supported.md of docs/supported.json, which scripts/supported.py writes: `python docs/make_supported.py`.

python docs/make_supported.py [--print]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dacergnn.tables import Table

FOLDER = Path(__file__).resolve().parent
HEAD = """# Supported releases

`tests/supported` holds what has to work with every release: layers of both libraries against their originals,
programs, `torch.compile`, state and pickles, autocast, second derivatives. `scripts/supported.py` runs these tests with
the oldest and the newest releases, and this table is made of what it found.

"""
WORDS = ("set", "Python", "torch", "PyG", "DGL", "compiler")
TAIL = """
Every test run repeats the sets of this release of Python; `make supported` runs all of them. Python 3.14 is allowed,
since DaCe and torch allow it, but has not been tested. DaCe is pinned to 2.0.0b1.
"""


def page(rows: list[dict[str, Any]]) -> str:
    table = Table("", (*WORDS, "passed", "failed", "left out", "run"), words=(*WORDS, "run"))
    reasons: list[str] = []
    for row in rows:
        versions = row.get("versions", {})
        shown = [versions.get(name) or "-" for name in ("python", "torch", "torch_geometric", "dgl", "compiler")]
        counts = [str(row.get(name, "-")) for name in ("passed", "failed", "skipped")]
        table.add_row(row["name"], *shown, *counts, row["date"])
        if row["reason"]:
            reasons.append(f"- {row['name']}: {row['reason']}.")
    left = "\nWhat was left out:\n\n" + "\n".join(reasons) + "\n" if reasons else ""
    return HEAD + table.markdown() + "\n" + left + TAIL


if __name__ == "__main__":
    made = page(json.loads((FOLDER / "supported.json").read_text()))
    if "--print" in sys.argv:
        sys.stdout.write(made)
    else:
        (FOLDER / "supported.md").write_text(made)
