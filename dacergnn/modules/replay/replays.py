"""The recordings that a layer keeps."""

from __future__ import annotations

import weakref
from functools import partial
from operator import is_
from typing import Any

from torch import nn

from dacergnn.config import CheckGraph
from dacergnn.graph import HeteroGraph
from dacergnn.modules.replay.call import Call
from dacergnn.modules.replay.reach import Unwatchable
from dacergnn.modules.replay.recording import Attempt, Recording
from dacergnn.modules.replay.watch import Watch

_KEPT = 4
_ATTEMPTS = 3


class Replays:
    """The recordings of a layer, latest first, and whether it is worth to look for more."""

    def __init__(self, module: nn.Module, others: dict[str, Any], check: CheckGraph) -> None:
        self.reason: str | None = None
        """Why the last call that could have been repeated was not."""
        self._module, self._others = module, others
        self._check: CheckGraph = check
        self._recordings: list[Recording] = []
        self._last: tuple[list[Any], list[weakref.ref[Any]]] | None = None
        self._left: dict[tuple[bool, bool], int] = {}

    def find(self, call: Call) -> Recording | None:
        """The recording that covers a call."""
        try:
            for recording in self._recordings:
                if recording.covers(call):
                    self._left.pop(self._kind(call), None)
                    return recording
        except RuntimeError:  # a tensor has become a sparse one, say
            pass
        return None

    def attempt(self, call: Call) -> Attempt | None:
        """What records a call so that it can be repeated; None if the call before it was another, or that is vain."""
        if not call.comparable:
            return None
        last, self._last = self._last, (call.form, [weakref.ref(v) for v in call.same])
        left = self._left.get(self._kind(call), _ATTEMPTS)
        if not left and self.reason is None:
            self.reason = "its state changes from call to call"
        if last is None or not left or last[0] != call.form:
            return None
        if not all(map(is_, call.same, [r() for r in last[1]])):
            return None
        self._left[self._kind(call)] = left - 1
        graphs = {f"graph {i}": g for i, g in enumerate(call.graphs) if not isinstance(g, HeteroGraph)}
        try:
            return Attempt(call, Watch(self._module, self._others | graphs))
        except Unwatchable as reason:
            self.reason = str(reason)
        except Exception as error:  # of descriptors, say; no reason not to record
            self.reason = f"finding out what it depends on fails with {type(error).__name__}: {error}"
        return None

    def keep(self, attempt: Attempt, result: Any) -> None:
        """Note a call that has succeeded, if it can be repeated."""
        try:
            found = attempt.finish(result, partial(_forget, weakref.ref(self)), self._check)
        except Unwatchable as reason:
            self.reason = str(reason)
            return
        self.reason = None
        # Those of parameters that are not there any more would keep them alive.
        others = [r for r in self._recordings if r.watch.own == found.watch.own]
        self._recordings = [found, *others[: _KEPT - 1]]

    def _kind(self, call: Call) -> tuple[bool, bool]:
        return self._module.training, call.outline[0]

    @property
    def summary(self) -> str | None:
        """For reports: whether calls are repeated, and why some are not."""
        if not self._recordings:
            return None if self.reason is None else f"every call is recorded: {self.reason}"
        others = "" if self.reason is None else f"; others are recorded: {self.reason}"
        return f"calls like one before run its program at once{others}"

    def forget(self) -> None:
        """Drop what is about graphs that are gone."""
        self._recordings = [r for r in self._recordings if all(v() is not None for v in r.same)]


def _forget(replays: weakref.ref[Replays], _: object) -> None:
    found = replays()
    if found is not None:
        found.forget()
