"""Captures a step in a CUDA graph, whose replays take no time of the processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def replayed(step: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a call that replays ``step`` on the tensors that it ran on, and returns the result of the replay.

    The step runs a few times before it is captured, on a stream of its own, as torch asks for.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> Any:
        graph.replay()
        return result

    return replay
