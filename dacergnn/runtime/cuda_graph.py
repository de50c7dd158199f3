"""Work on a CUDA device, recorded once and then launched as a whole."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import torch

from dacergnn.graph import HeteroGraph

Result = TypeVar("Result")


def capturing() -> bool:
    """Returns whether torch's current stream is being recorded into a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class Recorder:
    """Records into CUDA graphs that share one pool of memory, and runs them one at a time.

    Args:
        device: On which everything is that is recorded.
    """

    kind = "cuda"
    """Type of the devices that there are graphs for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._last = torch.cuda.current_stream(device)

    def warm_up(self, work: Callable[[], object]) -> None:
        """Run on a side stream, as recordings do, so that libraries load there what they need once."""
        with torch.cuda.device(self._device):
            current, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                work()
            current.wait_stream(side)

    def record(self, work: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """Returns what some work returns, in memory that stays where it is, and the function that does its device part
        again.

        Other threads may go on using the device meanwhile.
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
        """Use what was recorded, and its memory, after all earlier uses, on whatever stream they were.

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
