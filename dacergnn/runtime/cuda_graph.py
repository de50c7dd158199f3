"""Records work on a CUDA device once, and then launches it as a whole."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import torch

from dacergnn.graph import HeteroGraph

Result = TypeVar("Result")


def capturing() -> bool:
    """Tells whether torch's current stream is being recorded into a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class Recorder:
    """Records into CUDA graphs that share one pool of memory, and runs them one at a time.

    Args:
        device: The device of all recorded work.
    """

    kind = "cuda"
    """Type of the devices that have graphs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._last = torch.cuda.current_stream(device)

    def warm_up(self, work: Callable[[], object]) -> None:
        """Runs work on a side stream, as recordings do, so that libraries initialize themselves there."""
        with torch.cuda.device(self._device):
            current, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                work()
            current.wait_stream(side)

    def record(self, work: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """Records work; returns its result, in memory that stays where it is, and a function that repeats the device
        part.

        Other threads may use the device meanwhile.
        """
        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            result = work()
        return result, graph.replay

    @contextmanager
    def turn(self, about: HeteroGraph | None) -> Generator[None]:
        """Orders a use of the recorded work and its memory after all earlier uses, on any stream.

        Args:
            about: The graph whose encodings are read.
        """
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            if stream != self._last:
                stream.wait_stream(self._last)
                self._last = stream
                if about is not None:
                    about.record_stream(stream)
            yield
