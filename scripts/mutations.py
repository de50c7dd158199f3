"""Measures what the tests notice: makes changes to the package, one at a time, and runs tests on each.

    python scripts/mutations.py [--only NAME_OR_NUMBER ...] [--folder dacergnn/modules] [--from N] [--to M]
    python scripts/mutations.py --list | --check | --baseline     # with the same choices

The changes are in mutations.toml. Each is made in a copy of the checkout, whose kept builds are those of the checkout.
Tests that are marked `check` are left out, as in `make test`.
A change is killed if a test fails, takes too long or cannot be imported; it has survived if all tests pass.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
RESULTS = ROOT / ".cache" / "mutations.json"
COUNT = 100
"""The number of mutations, so that shares of different versions compare."""
MOST_TESTS = 4
"""Files of tests of a mutation, at most."""
LIMIT = 900.0
"""Seconds that the tests of a mutation may take."""
NO_TESTS = 5
"""The exit status of pytest when there are no tests."""

Status = Literal["killed", "survived", "skipped"]


@dataclass(frozen=True)
class Mutation:
    """Describes a change of one line.

    Args:
        name: Tells it from others.
        file: The file that is changed, from the root of the checkout.
        text: A part of a line, which occurs once in the file.
        instead: What takes its place.
        tests: The files of tests that may see it.
        breaks: A sentence that says what goes wrong.
        cache: Which build cache the tests use: that of the checkout, or an empty one of their own.
    """

    name: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]
    breaks: str
    cache: Literal["shared", "own"] = "shared"

    @property
    def folder(self) -> str:
        """Returns the folder of the package in which the file is; the package for files beside the folders."""
        return "/".join(self.file.split("/")[:-1][:2])

    def applied(self, content: str) -> str:
        """Returns the content of the file with the change."""
        return content.replace(self.text, self.instead)


@dataclass(frozen=True)
class Outcome:
    """Describes what tests said of a change.

    Args:
        status: What has become of the change; "skipped" if no test ran.
        seconds: What the tests took.
        reason: The first test that failed, or the last line of the tests.
    """

    status: Status
    seconds: float
    reason: str


def table(path: Path = TABLE) -> list[Mutation]:
    """Returns the mutations of a file, in order."""
    found = tomllib.loads(path.read_text())["mutation"]
    return [Mutation(**{**entry, "tests": tuple(entry["tests"])}) for entry in found]


def problems(mutations: Sequence[Mutation], root: Path = ROOT) -> Iterator[str]:
    """Yields what keeps mutations from being made in a checkout."""
    for name, count in Counter(m.name for m in mutations).items():
        if count > 1 or name.isdigit():
            yield f"{name}: a name must be unlike those of the others, and no number"
    for m in mutations:
        path = root / m.file
        content = path.read_text() if path.is_file() else ""
        if content.count(m.text) != 1:
            yield f"{m.name}: {m.text!r} occurs {content.count(m.text)} times in {m.file}, not once"
        elif m.text == m.instead or "\n" in m.text + m.instead:
            yield f"{m.name}: the change must be one of a single line"
        elif path.suffix == ".py" and not _is_python(m.applied(content)):
            yield f"{m.name}: {m.file} is no Python with the change"
        missing = [test for test in m.tests if not (root / test).is_file()]
        if missing or not 1 <= len(m.tests) <= MOST_TESTS:
            yield f"{m.name}: there must be one to {MOST_TESTS} files of tests, and {missing} are not there"


def _is_python(content: str) -> bool:
    try:
        ast.parse(content)
    except SyntaxError:
        return False
    return True


class Copy:
    """A copy of the files that git knows, or would add, in which tests run.

    Args:
        folder: An empty folder for the copy.
        root: The checkout.
    """

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder.resolve()
        self._root = root
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in sorted({name for name in names if name and (root / name).is_file()}):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.folder / name)
        self._check_imports()

    def _variables(self) -> dict[str, str]:
        """Returns the environment of tests: modules of the copy, builds and data of the checkout."""
        paths = [str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"DACERGNN_CACHE_DIR": str(self._root / ".cache" / "dacergnn")}
        data = self._root.parent / "shared" / "data"
        if data.is_dir():
            variables["DACERGNN_DATA"] = str(data)
        return {**variables, **os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def _check_imports(self) -> None:
        """Fails unless the package that Python finds is the copy's, whatever else is installed."""
        code = "import importlib.util; print(importlib.util.find_spec('dacergnn').origin)"
        command = [sys.executable, "-c", code]
        found = subprocess.run(
            command, cwd=self.folder.parent, env=self._variables(), capture_output=True, text=True, check=True
        ).stdout.strip()
        if Path(found).resolve() != self.folder / "dacergnn" / "__init__.py":
            sys.exit(f"Python finds dacergnn in {found}, not in the copy of the checkout.")

    @contextmanager
    def changed(self, mutation: Mutation) -> Iterator[None]:
        """Makes a change for a while."""
        path = self.folder / mutation.file
        content = path.read_text()
        try:
            _write(path, mutation.applied(content))
            yield
        finally:
            _write(path, content)

    def test(self, files: Iterable[str], limit: float, *options: str, own_cache: bool = False) -> Outcome:
        """Runs files of tests for at most ``limit`` seconds."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not check", *options, *files]
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryFile("w+", errors="replace") as output:
            variables = self._variables() | ({"DACERGNN_CACHE_DIR": cache} if own_cache else {})
            start = time.monotonic()
            process = subprocess.Popen(
                command, cwd=self.folder, env=variables, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                result = process.wait(limit)
            except subprocess.TimeoutExpired:
                result = None
            finally:
                with suppress(ProcessLookupError):  # with the processes that tests have started
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            seconds = round(time.monotonic() - start, 1)
            output.seek(0)
            lines = output.read().splitlines()
        if result is None:
            return Outcome("killed", seconds, f"not done after {limit:.0f} s")
        return Outcome(_status(result, lines), seconds, _reason(result, lines))


def _write(path: Path, content: str) -> None:
    """Writes a file, and removes what Python has compiled of it, since it may have been written in the same second."""
    path.write_text(content)
    if path.suffix == ".py":
        Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)


def _status(result: int, lines: Sequence[str]) -> Status:
    if result not in (0, NO_TESTS):  # tests have failed, cannot be imported, or have ended the process
        return "killed"
    return "survived" if any(re.search(r"\b\d+ passed\b", line) for line in lines[-1:]) else "skipped"


def _reason(result: int, lines: Sequence[str]) -> str:
    failed = (line for line in lines if line.startswith(("FAILED ", "ERROR ")))
    last = next((line for line in reversed(lines) if line.strip()), "")
    return (last if result == 0 else next(failed, f"exit status {result}: {last}"))[:200]


def chosen(mutations: Sequence[Mutation], options: argparse.Namespace) -> list[tuple[int, Mutation]]:
    """Returns the mutations that the options choose, with their numbers from 1 on; exits if there is none."""
    folder = (options.folder or "").rstrip("/")
    names = {*(options.only or ())}
    unknown = names - {m.name for m in mutations} - {str(number) for number in range(1, len(mutations) + 1)}
    if unknown:
        sys.exit(f"There is no mutation {sorted(unknown)[0]!r}; --list shows all.")
    last = len(mutations) if options.last is None else options.last
    found = [
        (number, m)
        for number, m in enumerate(mutations, 1)
        if options.first <= number <= last
        and (not names or m.name in names or str(number) in names)
        and (not folder or m.file == folder or m.file.startswith(f"{folder}/"))
    ]
    if not found:
        sys.exit("The options leave no mutation; --list shows all.")
    return found


def measure(
    copy: Copy, mutations: Sequence[tuple[int, Mutation]], limit: float, done: Callable[[Mutation, Outcome], None]
) -> None:
    """Makes each change and runs its tests; prints a line for each, and calls ``done``."""
    for number, m in mutations:
        with copy.changed(m):
            outcome = copy.test(m.tests, limit, "-x", own_cache=m.cache == "own")
        print(f"{number:3} {outcome.status:8} {outcome.seconds:6.1f} s  {m.name}: {outcome.reason}", flush=True)
        done(m, outcome)


def baseline(copy: Copy, files: Sequence[str], limit: float) -> int:
    """Runs files of tests one by one without a change, and prints a line for each; returns how many failed."""
    failed = 0
    for file in files:
        outcome = copy.test([file], limit)
        failed += outcome.status == "killed"
        said = {"killed": "failed", "survived": "passed", "skipped": "skipped"}[outcome.status]
        print(f"{said:8} {outcome.seconds:6.1f} s  {file}: {outcome.reason}", flush=True)
    print(f"{failed} of {len(files)} files fail without a change.")
    return failed


def by_folder(outcomes: Sequence[tuple[Mutation, Outcome]]) -> str:
    """Returns a table of what has become of changes."""
    lines = [f"{'folder':32} {'mutations':>9} {'killed':>7} {'survived':>8} {'skipped':>7} {'seconds':>8}"]
    folders = sorted({m.folder for m, _ in outcomes})
    for folder in [*folders, "in all"]:
        own = [outcome for m, outcome in outcomes if folder in (m.folder, "in all")]
        counts = Counter(outcome.status for outcome in own)
        numbers = f"{len(own):9} {counts['killed']:7} {counts['survived']:8} {counts['skipped']:7}"
        lines.append(f"{folder:32} {numbers} {sum(outcome.seconds for outcome in own):8.0f}")
    return "\n".join(lines)


def keep(path: Path, outcomes: Sequence[tuple[Mutation, Outcome]], mutations: Sequence[Mutation]) -> None:
    """Writes outcomes to a file; those of other mutations stay there, as long as the table has these."""
    known = {row["name"]: row for row in (json.loads(path.read_text()) if path.exists() else [])}
    new = {m.name: outcome for m, outcome in outcomes}
    rows: list[dict[str, Any]] = []
    for m in mutations:
        own = asdict(m) | {"tests": [*m.tests]}
        if m.name in new:
            rows.append(own | asdict(new[m.name]))
        elif own.items() <= known.get(m.name, {}).items():
            rows.append(known[m.name])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures how many changes of the package the tests notice.")
    parser.add_argument("--list", action="store_true", help="print the mutations, and run nothing")
    parser.add_argument("--check", action="store_true", help="check that all mutations can be made, and run nothing")
    parser.add_argument("--baseline", action="store_true", help="run the tests of the mutations without a change")
    parser.add_argument("--only", nargs="+", metavar="NAME_OR_NUMBER", help="make these alone")
    parser.add_argument("--folder", help="make those in a folder or file alone, such as dacergnn/modules")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="start with this number")
    parser.add_argument("--to", dest="last", type=int, metavar="M", help="end with this number")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the results go, as JSON")
    parser.add_argument("--timeout", type=float, default=LIMIT, metavar="SECONDS", help="the time for each mutation")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script; returns 1 if mutations cannot be made, or if tests fail without a change."""
    options = _options(arguments)
    mutations = table()
    found = [*problems(mutations), *([f"{len(mutations)} mutations, not {COUNT}"] if len(mutations) != COUNT else [])]
    if found:
        print("\n".join(found))
        return 1
    selected = chosen(mutations, options)
    if options.list:
        for number, m in selected:
            print(f"{number:3} {m.name} ({m.file}): {m.breaks}")
    elif options.check:
        print(f"All {COUNT} mutations can be made.")
    else:
        with tempfile.TemporaryDirectory(prefix="mutations-", ignore_cleanup_errors=True) as folder:
            copy = Copy(Path(folder))
            if options.baseline:
                files = sorted({test for _, m in selected for test in m.tests})
                return int(baseline(copy, files, options.timeout) > 0)
            outcomes: list[tuple[Mutation, Outcome]] = []

            def note(mutation: Mutation, outcome: Outcome) -> None:
                outcomes.append((mutation, outcome))
                keep(options.output, outcomes, mutations)  # also of runs that end early

            measure(copy, selected, options.timeout, note)
        print(by_folder(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
