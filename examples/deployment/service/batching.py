"""Runs requests of several clients as one: those that arrive within some milliseconds are joined."""

from __future__ import annotations

import queue
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from layout import Layout

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from exported_model import ExportedModel

Arrays = dict[str, np.ndarray]


class Busy(Exception):
    """Says that there are too many requests, or that the service is being stopped."""


@dataclass(eq=False)
class _Request:
    arrays: Arrays
    answer: Future[Arrays] = field(default_factory=Future[Arrays])


class Batcher:
    """Collects requests and runs them on a thread of its own.

    Args:
        wait: How long the first request of a batch waits for others, in seconds.
        most: The most requests of a batch.
        room: The most requests that wait; others are refused.
    """

    def __init__(self, model: ExportedModel, *, wait: float = 0.003, most: int = 64, room: int = 512) -> None:
        self.model, self.wait, self.most = model, wait, most
        self.layout = Layout.of(model.manifest)
        self.requests = self.batches = 0
        self._waiting: queue.Queue[_Request | None] = queue.Queue(room)
        self._closed = False
        self._lock = threading.Lock()
        self._worker = threading.Thread(target=self._work, name="batches")
        self._worker.start()

    def submit(self, arrays: Arrays) -> Future[Arrays]:
        """Returns the results of a request to come.

        Raises:
            Busy: Too many requests wait, or the batcher is closed.
        """
        request = _Request(arrays)
        with self._lock:
            if self._closed:
                raise Busy("The service is being stopped.")
            try:
                self._waiting.put_nowait(request)
            except queue.Full:
                raise Busy("Too many requests wait; try again later.") from None
        return request.answer

    def close(self) -> None:
        """Answers the requests that wait, and takes no others."""
        with self._lock:
            self._closed = True
        self._waiting.put(None)
        self._worker.join()

    def _work(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._collect()
            batch = [request for request in batch if request.answer.set_running_or_notify_cancel()]
            joined = [r for r in batch if self.layout is not None and self.layout.fits(r.arrays)]
            for request in batch:
                if request not in joined:
                    self._run_alone(request)
            if joined:
                self._run(joined)

    def _collect(self) -> tuple[list[_Request], bool]:
        """Returns the requests of the next batch, and whether others may follow."""
        first = self._waiting.get()
        if first is None:
            return [], False
        batch, end = [first], time.monotonic() + self.wait
        while len(batch) < self.most:
            try:
                request = self._waiting.get(timeout=max(end - time.monotonic(), 0))
            except queue.Empty:
                break
            if request is None:
                return batch, False
            batch.append(request)
        return batch, True

    def _run(self, batch: list[_Request]) -> None:
        assert self.layout is not None
        requests = [request.arrays for request in batch]
        try:
            answers = self.layout.split(self.model(self.layout.join(requests)), requests)
        except Exception:
            for request in batch:  # so that one request spoils no other
                self._run_alone(request)
            return
        self.requests += len(batch)
        self.batches += 1
        for request, answer in zip(batch, answers, strict=True):
            request.answer.set_result(answer)

    def _run_alone(self, request: _Request) -> None:
        """Runs a request that may be wrong; the model tells in which way."""
        self.requests += 1
        self.batches += 1
        try:
            request.answer.set_result(self.model(request.arrays))
        except Exception as error:
            request.answer.set_exception(error)
