"""What is told while something takes long."""

from __future__ import annotations

import io
import os
import sys
import threading
import time

import pytest

from dacergnn import progress
from dacergnn.progress import working

SILENT_S = 0.05


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SILENT_S", SILENT_S)
    monkeypatch.setattr(progress, "_TICK_S", SILENT_S / 5)
    monkeypatch.delenv("DACERGNN_QUIET", raising=False)


def until(text: str, stream: io.StringIO) -> None:
    deadline = time.monotonic() + 30
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(SILENT_S / 5)
    assert text in stream.getvalue()


def test_lines_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with working("compiling RGATConv (float32, training)"):
        until("compiling RGATConv (float32, training) ...\n", sys.stderr)
        with working("inner"):
            time.sleep(3 * SILENT_S)
    told = sys.stderr.getvalue().splitlines()
    assert told == ["compiling RGATConv (float32, training) ...", "compiling RGATConv (float32, training): 0 s"]


def test_a_spinner_on_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "30")
    with working("compiling " + "x" * 100):
        until("\r| compiling xx", sys.stderr)
        until("\r/ compiling xx", sys.stderr)
    *drawn, cleared, last = sys.stderr.getvalue().split("\r")
    assert all(len(line.removesuffix("\x1b[K")) < 30 for line in drawn)
    assert (cleared + last).endswith("\x1b[Kcompiling " + "x" * 100 + ": 0 s\n")


def test_several_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    go = threading.Event()

    def other() -> None:
        with working("second"):
            go.wait()

    thread = threading.Thread(target=other)
    with working("first"):
        thread.start()
        until("first and 1 more: 0 s", sys.stderr)
    until(" second: 0 s", sys.stderr)
    go.set()
    thread.join()


def test_quick_failing_and_quiet_work_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with working("quick"):
        pass

    def fail() -> None:
        with working("failing"):
            until("failing ...", sys.stderr)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    monkeypatch.setenv("DACERGNN_QUIET", "1")
    with working("quiet"):
        time.sleep(3 * SILENT_S)
    assert sys.stderr.getvalue() == "failing ...\n"


def test_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with working("silent"):
        time.sleep(3 * SILENT_S)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_tells_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with working("of the parent"):
        child = os.fork()
        if child == 0:
            sys.stderr = open(writing, "w")  # noqa: PTH123, SIM115
            with working("of the child"):
                time.sleep(4 * SILENT_S)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writing)
    assert os.read(reading, 1000).decode().splitlines() == ["of the child ...", "of the child: 0 s"]
    os.close(reading)
