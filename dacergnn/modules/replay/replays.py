"""The recordings that a layer keeps."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from dacergnn.config import CheckGraph
from dacergnn.graph import HeteroGraph
from dacergnn.modules.replay.attempt import Attempt
from dacergnn.modules.replay.reach import Unwatchable
from dacergnn.modules.replay.recording import Recording
from dacergnn.modules.replay.watch import Watch
from dacergnn.modules.signature import CallSignature, is_modified

_KEPT = 4
_ATTEMPTS = 3


class Replays:
    """Holds the recordings of a layer, latest first, and decides whether to make more."""

    def __init__(self, module: nn.Module, others: dict[str, Any], check: CheckGraph) -> None:
        self.reason: str | None = None
        """The reason for which the last call that could have been repeated was not."""
        self._failure = ""
        self._module, self._others = module, others
        self._check: CheckGraph = check
        self._recordings: list[Recording] = []
        self._last: CallSignature | None = None
        self._left: dict[tuple[bool, bool], int] = {}

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Recording, list[Any]]]:
        """Yields the recordings that may cover a call, with the tensors and graphs among the arguments."""
        for recording in () if is_modified() else self._recordings:
            leaves = recording.leaves(args, kwargs)
            if leaves is not None:
                yield recording, leaves

    def repeated(self) -> None:
        """Notes that a recording was of use, so that more are worth making."""
        self._left.pop(self._mode(), None)

    def attempt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Attempt | None:
        """Returns an attempt to record a call for repetition; None if the call before it differs, or if it is vain."""
        if is_modified():
            return None
        left = self._left.get(self._mode(), _ATTEMPTS)
        if not left:
            self.reason = self.reason or "its state changes from call to call"
            return None
        last = self._last
        leaves = None if last is None else last.leaves(args, kwargs)
        if last is None or leaves is None or any(map(_has_attributes, leaves)):
            self._last = self._signature(args, kwargs)
            return None
        self._left[self._mode()] = left - 1
        foreign = [v for v in leaves if not isinstance(v, (torch.Tensor, HeteroGraph))]
        graphs = {f"graph {i}": graph for i, graph in enumerate(foreign)}
        like = [r for r in self._recordings if r.signature.leaves(args, kwargs) is not None]
        try:
            return Attempt(last, leaves, Watch(self._module, self._others | graphs), like)
        except Unwatchable as reason:
            self.reason = str(reason)
        except Exception as error:  # of descriptors, for example; tracing is possible all the same
            self.reason = f"finding out what it depends on fails with {type(error).__name__}: {error}"
        return None

    def keep(self, attempt: Attempt, result: Any) -> None:
        """Keeps a call that has succeeded, if it can be repeated."""
        try:
            recording = attempt.finish(result, partial(_forget, weakref.ref(self)))
        except Unwatchable as reason:
            self.reason = str(reason)
            return
        self.reason = None
        covered = [r for r in attempt.like if recording.widen(r)]
        # Recordings with former parameters would keep these alive.
        others = [r for r in self._recordings if r.watch.own == recording.watch.own and r not in covered]
        self._recordings = [recording, *others[: _KEPT - 1]]

    def drop(self, recording: Recording, error: Exception) -> None:
        """Forgets a recording that failed on a call that could be traced, so that later calls do not fail again."""
        self._recordings = [r for r in self._recordings if r is not recording]
        self._failure = f"; one that failed with {type(error).__name__}: {error}, is repeated no more"

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallSignature | None:
        """Returns the signature of a call for any sizes; an exact one if some objects may not be replaced by others."""
        signature = CallSignature.of(args, kwargs, self._check, any_size=True)
        exact = signature is not None and signature.same
        return CallSignature.of(args, kwargs, self._check) if exact else signature

    def _mode(self) -> tuple[bool, bool]:
        return self._module.training, torch.is_grad_enabled()

    @property
    def summary(self) -> str | None:
        """Returns a text for reports: whether calls are repeated, and why some are not."""
        if not self._recordings:
            return None if self.reason is None else f"every call is recorded: {self.reason}{self._failure}"
        others = "" if self.reason is None else f"; others are recorded: {self.reason}"
        return f"calls like one before run its program at once{others}{self._failure}"

    def forget(self) -> None:
        """Drops recordings about graphs that are gone."""
        self._recordings = [r for r in self._recordings if all(v is not None for v in r.signature.same)]


def _has_attributes(value: Any) -> bool:
    """Returns whether a tensor of edges has attributes of its own, which a forward may read."""
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and bool(vars(value))


def _forget(replays: weakref.ref[Replays], _: object) -> None:
    referent = replays()
    if referent is not None:
        referent.forget()
