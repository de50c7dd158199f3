"""Measures where the time of a training step goes: wall and processor time by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from dacergnn.graph.encodings import Encodings
from dacergnn.modules.graphs import GraphCache

KINDS = ("wall", "processor")


class Watch:
    """Adds up milliseconds by stage and kind of time; the time of an inner stage does not count for the outer one."""

    def __init__(self) -> None:
        self._spent: dict[tuple[str, str], float] = {}
        self._open: list[str] = []
        self._since = (0.0, 0.0)

    @contextmanager
    def time(self, stage: str) -> Generator[None]:
        """Counts what runs in the context as a part of a stage."""
        self._count()
        self._open.append(stage)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def taken(self) -> dict[tuple[str, str], float]:
        """Returns milliseconds by (stage, kind of time) since the last call."""
        milliseconds, self._spent = self._spent, {}
        return milliseconds

    def _count(self) -> None:
        now = time.perf_counter(), time.process_time()
        if self._open:
            for kind, start, end in zip(KINDS, self._since, now, strict=True):
                key = self._open[-1], kind
                self._spent[key] = self._spent.get(key, 0.0) + 1e3 * (end - start)
        self._since = now


@contextmanager
def encoding_timed(watch: Watch) -> Generator[None]:
    """Counts the encoding of graphs as the stage "encode", wherever in a step it happens.

    `GraphCache` and `Encodings` encode graphs: they read a graph, sort its edges, count pairs of nodes and types, and
    make the arrays that kernels read.
    """

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with watch.time("encode"):
                return function(*args, **kwargs)

        return call

    counts: Any = Encodings.counts
    with (
        patch.object(GraphCache, "encode", timed(GraphCache.encode)),
        patch.object(Encodings, "make", timed(Encodings.make)),
        patch.object(Encodings, "once", timed(Encodings.once)),
        patch.object(Encodings, "counts", property(timed(counts.fget))),
    ):
        yield
