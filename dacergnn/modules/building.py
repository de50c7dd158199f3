"""Lets one thread at a time work on SDFGs, and one thread make a build that others wait for."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from contextlib import AbstractContextManager

from dacergnn.runtime.forked import in_children

_building = threading.RLock()  # DaCe keeps global state
_turns: weakref.WeakSet[Turns] = weakref.WeakSet()


def building() -> AbstractContextManager[object]:
    """Returns a lock for code that makes, rewrites or lowers SDFGs."""
    return _building


class Turns:
    """Holds a lock for each build of a program, under which it is made."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, threading.RLock] = {}
        _turns.add(self)

    def of(self, build: Hashable) -> AbstractContextManager[object]:
        """Returns the lock of a build."""
        return self._locks.setdefault(build, threading.RLock())

    def renew(self) -> None:
        self._locks.clear()


def _renew() -> None:
    """Replaces all locks, since other threads may have held them when this process was forked."""
    global _building
    _building = threading.RLock()
    for turns in _turns:
        turns.renew()


in_children(_renew)
