"""CUDA graphs in emulation: what a call does to tensors is taken down, and done again without its Python."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dacergnn.runtime import cuda_graph
from dacergnn.runtime.cuda_executable import CUDAExecutable

aten: Any = torch.ops.aten
_READS = (
    "_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "_unique2",
    "unique_consecutive", "unique_dim", "bincount", "repeat_interleave", "allclose",
)  # fmt: skip
"""Operators for which a device has to tell the host something."""


class Tape(TorchDispatchMode):
    """Takes down what is done to tensors while it is active, kernels of compiled programs included."""

    active: Tape | None = None

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], object]] = []
        self.kept: list[Any] = []

    def __enter__(self) -> Any:
        Tape.active = self
        return super().__enter__()

    def __exit__(self, *details: Any) -> None:
        Tape.active = None
        super().__exit__(*details)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _READS and kwargs.get("output_size") is None:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        result = func(*args, **kwargs)
        if func.namespace == "profiler":
            return result
        outputs = [r for r in (result if isinstance(result, tuple | list) else [result]) if isinstance(r, Tensor)]
        self.kept += [args, kwargs, outputs]
        if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            return result  # a view
        self.steps.append(lambda: _again(func, args, kwargs, outputs))
        return result

    def replay(self) -> None:
        """Do all of it again, to the same memory."""
        with torch.no_grad():
            for step in self.steps:
                step()


def _again(func: Any, args: Any, kwargs: Any, outputs: list[Tensor]) -> None:
    if func.overloadpacket.__name__.startswith(("empty", "new_empty")):
        for output in outputs:
            output.fill_(torch.nan if output.is_floating_point() else random.randrange(100))
        return
    result = func(*args, **kwargs)
    for output, found in zip(outputs, result if isinstance(result, tuple | list) else [result], strict=True):
        if output is not found:
            output.copy_(found)


class EmulatedRecorder(cuda_graph.Recorder):
    """Stands in for that of CUDA graphs."""

    kind = "cpu"
    count = 0
    """Recordings so far."""

    def __init__(self, device: torch.device) -> None:  # pyright: ignore[reportMissingSuperCall]
        pass

    def warm_up(self, work: Callable[[], object]) -> None:
        work()

    def record(self, work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        EmulatedRecorder.count += 1
        with Tape() as tape:
            result = work()
        return result, tape.replay

    @contextmanager
    def turn(self, about: object) -> Generator[None]:
        yield


@pytest.fixture
def emulated_graphs(monkeypatch: pytest.MonkeyPatch) -> type[EmulatedRecorder]:
    """While it lasts, recordings of calls are made by `Tape`."""
    launch = CUDAExecutable._launch  # pyright: ignore[reportPrivateUsage]

    def taken_down(self: CUDAExecutable, arguments: array[int]) -> Any:
        if Tape.active is not None:
            own = arguments[:]
            Tape.active.steps.append(lambda: launch(self, own))
        return launch(self, arguments)

    monkeypatch.setattr(CUDAExecutable, "_launch", taken_down)
    monkeypatch.setattr(cuda_graph, "Recorder", EmulatedRecorder)
    monkeypatch.setattr(cuda_graph, "capturing", lambda: Tape.active is not None)
    monkeypatch.setattr(EmulatedRecorder, "count", 0)
    return EmulatedRecorder
