"""Sets up what every test runs under: two threads (one beside others), a build cache, real graphs, strict DaCe."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
UNTRACED = ("docs", "examples", "kernels", "parity", "training")
_WORTH_A_REPORT = 60.0
"""Seconds."""
# Folders whose tests ask whether the right program runs with the right arrays; `compiled` marks those that do not, and
# `interpreted` those of other folders that do.
INTERPRETED = ("capture", "compatibility", "frontends", "fuzz", "layerwise", "modules", "parity")

# Before torch or dace are imported: both read their environment then.
# With several worker processes one thread each, or they wait for each other at every barrier; they inherit the two of
# the process that starts them.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("DACERGNN_QUIET", "1")
# Tables are as wide as in a file, whatever terminal the tests are started from.
os.environ["COLUMNS"] = "200"
# Many tests start other Pythons, each of which would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Values do not depend on how hard g++ tries; tests of kernels build them as users do. Generated functions take all
# sizes and types, and DaCe's functions around them, whether anybody uses them or not; how vectors are passed between
# compilers for different processors matters to nobody.
UNUSED = ("parameter", "variable", "but-set-variable", "local-typedefs", "function")
WARNINGS = " ".join(["-Wall", "-Wextra", "-Werror", "-Wno-psabi", *[f"-Wno-unused-{what}" for what in UNUSED]])
os.environ.setdefault("CXXFLAGS", f"-O0 {WARNINGS}")
os.environ.setdefault("DACERGNN_CACHE_DIR", str(ROOT / ".cache" / "dacergnn"))
if "DACERGNN_DATA" not in os.environ and (ROOT.parent / "shared" / "data").is_dir():
    os.environ["DACERGNN_DATA"] = str(ROOT.parent / "shared" / "data")

import dace  # noqa: E402
import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from dacergnn.modules.programs import compiled_program  # noqa: E402
from dacergnn.runtime.pool import POOL  # noqa: E402
from tests.support import interpreted, nvcc  # noqa: E402

THREADS = int(os.environ["OMP_NUM_THREADS"])
torch.set_num_threads(THREADS)
# Otherwise an exception inside a transformation's can_be_applied counts as "does not match".
dace.Config.set("optimizer", "match_exception", value=True)
# Folders that DaCe would make in the working directory.
dace.Config.set("default_build_folder", value=str(ROOT / ".cache" / "dace"))

# Compilation takes seconds, so no deadline; the same examples in every run unless a profile is named.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, derandomize=False, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Lets torch.compile forget what it compiled before, and afterwards."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the listings in tests/program/golden anew")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints where the time went, and what nvcc says of each kernel, by the test that compiled it."""
    reports = [r for kind in ("passed", "failed", "error", "") for r in terminalreporter.stats.get(kind, [])]
    _report_times(terminalreporter, [r for r in reports if hasattr(r, "duration")])
    found = [value for r in reports for name, value in getattr(r, "user_properties", []) if name == nvcc.PROPERTY]
    if found:
        terminalreporter.section("registers of CUDA kernels, a thread")
    for kernels in found:
        terminalreporter.line(f"{kernels['title']}, {kernels['seconds']:.0f} s:")
        for line in nvcc.report(nvcc.KernelUsage(**usage) for usage in kernels["usages"]):
            terminalreporter.line(line)
    if found:
        terminalreporter.line(f"nvcc took {sum(kernels['seconds'] for kernels in found):.0f} s in all")


def _report_times(terminalreporter: Any, reports: list[Any]) -> None:
    """Prints the seconds of all workers by folder, with set-up and tear-down, and the ten slowest tests."""
    folders, tests = Counter[str](), Counter[str]()
    for report in reports:
        tests[report.nodeid] += report.duration
        folders[report.nodeid.split("::")[0].removeprefix("tests/").split("/")[0]] += report.duration
    if sum(folders.values()) < _WORTH_A_REPORT:
        return
    terminalreporter.section("seconds of workers by folder, and the slowest tests")
    for name, seconds in [*folders.most_common(), *tests.most_common(10)]:
        terminalreporter.line(f"{seconds:7.1f}  {name}")


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end, so that the garbage collector need not visit them in each test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Has layers of a test run in NumPy where it or its folder is `INTERPRETED`, unless all are to run compiled."""
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    usual = "interpreted" if folder in INTERPRETED else "compiled"
    way = next((mark.name for mark in item.iter_markers() if mark.name in ("compiled", "interpreted")), usual)
    interpreted.set_default("cpu" if way == "compiled" else os.environ.get("DACERGNN_TEST_TARGET", "interpreted"))
    result = yield
    if torch.get_num_threads() != THREADS:  # commands set it for their measurements
        torch.set_num_threads(THREADS)
    if nextitem is None or nextitem.path != item.path:  # programs of a file hold their libraries, graphs and buffers
        compiled_program.cache_clear()
        POOL.clear()
        gc.collect()
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tracing lines, DaCe's among them, doubles the time: of a test with parameters, one case in five is measured.

    What some folders run through, others measure.
    """
    cases: Counter[str] = Counter()
    for item in items:
        name, _, _ = item.nodeid.partition("[")
        if cases[name] % 5 or item.path.relative_to(ROOT / "tests").parts[0] in UNTRACED:
            item.add_marker(pytest.mark.no_cover)
        cases[name] += 1
