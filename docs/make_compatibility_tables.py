"""Makes compatibility_tables.md: what may be done to a compiled layer, and for which kinds of layers that is tested.

    python docs/make_compatibility_tables.py [--print]

The rows of its tables are the kinds of layers in `tests/compatibility/kinds.py`, the columns the tests beside it, which
are collected and not run. A test that no line of `compatibility_topics.py` is about is an error. With ``--print`` the
page is printed, and nothing is written.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import pytest
from compatibility_topics import TOPICS
from pages import FOLDER, give

from dacergnn.tables import Table

ROOT = FOLDER.parent
TESTS = ROOT / "tests" / "compatibility"


HEAD = """# Compatibility: what is tested

These tables tell what may be done to a compiled layer, what happens then, and for which kinds of layers a test holds
it. [Compatibility](compatibility.md) has the same in words.

`docs/make_compatibility_tables.py` makes them from `tests/compatibility`, which runs one layer of every kind in
float64, beside its original where there is one: `compile-...` and `own...` are modules of this package. "yes" means
tested; "(yes)" tested where the layer has such a thing, a bias or a Linear, say; "-" not tested, mostly since there is
nothing that could be done.
"""


class Collected:
    """A plugin of pytest that notes which tests there are of which kinds of layers."""

    def __init__(self) -> None:
        self.kinds: dict[str, set[str]] = {}
        """Names of kinds by tests."""
        self.conditional: set[str] = set()
        """Tests that leave out kinds which lack what they are about."""
        self.rows: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from tests.compatibility.kinds import KINDS  # pytest has put the root of the project in the path

        self.rows = [kind.name for kind in KINDS]
        for item in session.items:
            assert isinstance(item, pytest.Function)
            name = item.function.__name__
            kind: Any = item.callspec.params.get("kind") if hasattr(item, "callspec") else None
            if kind is None:  # about layers of its own
                continue
            self.kinds.setdefault(name, set()).add(kind.name)
            if "skip" in item.function.__code__.co_names:
                self.conditional.add(name)

    def cell(self, test: str, kind: str) -> str:
        if kind not in self.kinds[test]:
            return "-"
        return "(yes)" if test in self.conditional else "yes"


def collect() -> Collected:
    """Returns the tests of the folder; SystemExit unless each has a topic, and each topic a test."""
    found, output = Collected(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", str(TESTS)]
    with redirect_stdout(output):
        code = pytest.main(arguments, plugins=[found])
    if code != pytest.ExitCode.OK:
        sys.exit(f"The tests in {TESTS} cannot be collected:\n{output.getvalue()}")
    known = {topic.test for topics in TOPICS.values() for topic in topics}
    for test in sorted(known ^ set(found.kinds)):
        lacks = "has no test of that name" if test in known else "has no line in TOPICS of docs/compatibility_topics.py"
        sys.exit(f"{test} {lacks}; write one and run docs/make_compatibility_tables.py.")
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return Table("", head, len(head), rows=rows).markdown()


def page() -> str:
    """Returns the text of compatibility_tables.md."""
    found, text = collect(), HEAD
    for title, topics in TOPICS.items():
        effects = table(["", "what is done", "what happens"], [[t.title, t.done, t.effect] for t in topics])
        rows = [[f"`{kind}`", *[found.cell(t.test, kind) for t in topics]] for kind in found.rows]
        kinds = table(["kind of layer", *[t.title for t in topics]], rows)
        text += f"\n## {title}\n\n{effects}\n\n{kinds}\n"
    return text


if __name__ == "__main__":
    give("compatibility_tables.md", page())
