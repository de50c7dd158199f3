"""Tells on standard error what takes long.

On a terminal one line counts the seconds; elsewhere one line tells what began, and one how long it took. Nothing is
written about what ends within a second. ``DACERGNN_QUIET=1`` switches all of it off.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_SILENT_S = 1.0
_TICK_S = 0.1
_SPINNER = "|/-\\"


@dataclass(eq=False)
class _Work:
    title: str
    started: float
    told: bool = False


class _Display:
    """Shows all work under way in this process; a thread redraws it while there is any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: list[_Work] = []
        self._thread: threading.Thread | None = None
        self._ticks = 0

    def begin(self, title: str) -> _Work:
        work = _Work(title, time.monotonic())
        with self._lock:
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="dacergnn progress", daemon=True)
                self._thread.start()
        return work

    def end(self, work: _Work, *, failed: bool) -> None:
        seconds = time.monotonic() - work.started
        with self._lock:
            self._works.remove(work)
            clear = "\r\x1b[K" if _on_terminal() and work.told else ""
            done = f"{work.title}: {seconds:.0f} s\n" if work.told and not failed else ""
            _write(clear + done)

    def _watch(self) -> None:
        while True:
            time.sleep(_TICK_S)
            with self._lock:
                if not self._works:
                    self._thread = None
                    return
                self._show()

    def _show(self) -> None:
        now = time.monotonic()
        late = [work for work in self._works if now - work.started > _SILENT_S]
        if late and _on_terminal():
            self._ticks += 1
            first, more = late[0], f" and {len(late) - 1} more" if len(late) > 1 else ""
            line = f"{_SPINNER[self._ticks % 4]} {first.title}{more}: {now - first.started:.0f} s"
            _write("\r" + line[: shutil.get_terminal_size().columns - 1] + "\x1b[K")
        for work in late:
            if not work.told and not _on_terminal():
                _write(f"{work.title} ...\n")
            work.told = True


_display = _Display()
_local = threading.local()


def _renew() -> None:
    """Starts anew in a forked child, which has none of its parent's threads."""
    global _display
    _display, _local.busy = _Display(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def working(title: str) -> Generator[None]:
    """Shows ``title``, such as "compiling RGATConv", while the body runs; within another one in the same thread, not.

    What a body that raises has taken is not told.
    """
    if getattr(_local, "busy", False) or os.environ.get("DACERGNN_QUIET", "0") not in ("", "0"):
        yield
        return
    _local.busy, display = True, _display
    work, failed = display.begin(title), True
    try:
        yield
        failed = False
    finally:
        _local.busy = False
        display.end(work, failed=failed)


@contextmanager
def untold() -> Generator[None]:
    """Shows nothing of what this thread does meanwhile, for those that show it in their own way."""
    before, _local.busy = getattr(_local, "busy", False), True
    try:
        yield
    finally:
        _local.busy = before


def _on_terminal() -> bool:
    with suppress(AttributeError, ValueError):  # no standard error, or a closed one
        return sys.stderr.isatty()
    return False


def _write(text: str) -> None:
    with suppress(AttributeError, ValueError, OSError):
        if text:
            sys.stderr.write(text)
            sys.stderr.flush()
