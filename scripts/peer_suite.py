"""Run PyG's own tests of layers, models and explanations, or DGL's of layers, with compiled layers and without.

    python scripts/peer_suite.py PATH_TO_A_CHECKOUT [--only WORD ...] [--limit SECONDS] [--json FILE]

The tests are those of the checkout, the layers those of the installed torch_geometric or dgl. Every file runs in
processes of its own, once as it is and once in each of two ways:

- constructors: where a class of layers is called, a compiled layer comes out;
- calls: layers are the library's, and each call of one is made by a compiled layer that is kept for it.

A table tells how many tests pass, which ones pass without compiled layers only, and why calls have run the original.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

TESTS = Path(__file__).with_name("peer_tests.py")
GROUPS = {
    "test/nn/conv": "test_*.py",
    "test/nn/models": "test_*.py",
    "test/nn": "test_to_hetero*.py test_sequential.py",
    "test/explain": "**/test_*.py",
    "tests/python/pytorch/nn": "**/test_*.py",
}
"""Folders with tests of a library, and the files in each of them."""
WITHOUT, *WITH = MODES = ("without", "constructors", "calls")
ENDED = "the process ended here"


@dataclass
class Outcome:
    """What the tests of a file have given in one way to run them.

    Args:
        tests: "passed", "skipped", or what was wrong in a line, by the name of a test.
        calls: Calls of compiled layers that returned a result.
        fallbacks: How many of them ran the original, by layer and reason.
        seconds: How long the process took.
    """

    tests: dict[str, str] = field(default_factory=dict[str, str])
    calls: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0

    @property
    def passed(self) -> set[str]:
        """The tests that have passed."""
        return {name for name, what in self.tests.items() if what == "passed"}


def run_file(checkout: Path, file: Path, mode: str, limit: float) -> Outcome:
    """What the tests of a file give in a process of their own."""
    started = time.perf_counter()
    rows: list[Any] = [["(start)", "the process gave no results", 0, {}]]
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines")
        command = [sys.executable, str(TESTS), str(checkout), str(file), mode, str(lines)]
        with Path(folder, "log").open("w") as log, suppress(subprocess.TimeoutExpired):
            environment = {"CXXFLAGS": "-O0", **os.environ}
            subprocess.run(command, env=environment, cwd=folder, timeout=limit, stdout=log, stderr=log, check=False)
        if lines.exists():  # whose last line names the test that was running
            rows = [json.loads(line) for line in lines.read_text().splitlines()] or rows
    outcome = Outcome(seconds=round(time.perf_counter() - started, 1))
    for name, what, calls, fallbacks in rows:
        if outcome.tests.get(name, ENDED) in (ENDED, "passed"):
            outcome.tests[name] = what
        outcome.calls, outcome.fallbacks = calls, Counter(fallbacks)
    return outcome


def report(console: Console, results: dict[str, dict[str, Outcome]]) -> None:
    """Print what all files have given."""
    table = Table("folder", "pass without", "with: constructors", "with: calls", "compiled calls", "original")
    for group in [*GROUPS, ""]:
        found = [modes for file, modes in results.items() if group in ("", _group(file))]
        if found:
            table.add_row(group or "all", *_row(found))
    console.print(table)
    for file, modes in results.items():
        for mode in WITH:
            for name in sorted(modes[WITHOUT].passed - modes[mode].passed):
                console.print(f"{file} {name} ({mode}): {modes[mode].tests.get(name, 'not run')}")
    reasons = sum((o.fallbacks for modes in results.values() for o in modes.values()), Counter[str]())
    for reason, count in reasons.most_common(40):
        console.print(f"{count:6} {reason}")


def _row(found: Sequence[dict[str, Outcome]]) -> Iterator[str]:
    yield str(sum(len(modes[WITHOUT].passed) for modes in found))
    for mode in WITH:
        yield str(sum(len(modes[WITHOUT].passed & modes[mode].passed) for modes in found))
    calls = sum(o.calls for modes in found for o in modes.values())
    fallen = sum(o.fallbacks.total() for modes in found for o in modes.values())
    yield str(calls - fallen)
    yield f"{fallen} ({fallen / max(calls, 1):.1%})"


def _group(file: str) -> str:
    return max((group for group in GROUPS if file.startswith(group)), key=len)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, run the tests and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="folder with the repository of PyG or of DGL")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="files whose names hold one of these")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a file in one way to run it (600)")
    parser.add_argument("--json", type=Path, help="file for all results; those that it holds of other files stay")
    given = parser.parse_args(arguments)
    checkout = given.checkout.resolve()
    files = sorted({p for folder, names in GROUPS.items() for n in names.split() for p in (checkout / folder).glob(n)})
    files = [file for file in files if any(word in file.name for word in given.only)]
    if not files:
        parser.error(f"{checkout} holds no such file of tests; name a checkout of PyG's or of DGL's repository.")
    console = Console(width=110, markup=False, highlight=False, soft_wrap=True)
    results: dict[str, dict[str, Outcome]] = {}
    for file in files:
        name = file.relative_to(checkout).as_posix()
        results[name] = {mode: run_file(checkout, file, mode, given.limit) for mode in MODES}
        counts = ", ".join(f"{len(o.passed)} {mode} ({o.seconds:.0f} s)" for mode, o in results[name].items())
        console.print(f"{name}: passed {counts}")
        if given.json:
            kept = json.loads(given.json.read_text()) if given.json.exists() else {}
            kept[name] = {mode: {**vars(outcome)} for mode, outcome in results[name].items()}
            given.json.write_text(json.dumps(kept, indent=1))
    report(console, results)


if __name__ == "__main__":
    main()
