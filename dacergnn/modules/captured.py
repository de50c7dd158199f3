"""Calls of a layer as CUDA graphs: recorded when they come again, replayed from then on."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import ArrayError, DacergnnError, DeviceError
from dacergnn.graph import HeteroGraph
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.captured_call import Captured, Function
from dacergnn.modules.replay.call import Call
from dacergnn.runtime import cuda_graph
from dacergnn.runtime.cuda_device import allows_tf32

_KEPT = 8


class Captures:
    """The recorded calls of a layer, latest first.

    A call is recorded when one like it was made before: with the same graph, integers and parameters, features of the
    same types and shapes, gradients asked for of the same. All others run as they are, so do calls whose memory is
    still in use by a backward to come, and calls that are part of somebody else's recording.
    """

    def __init__(self, layer: RunsPrograms) -> None:
        self._layer = weakref.ref(layer)
        self._kept: list[Captured] = []
        self._seen: list[tuple[list[Any], list[weakref.ref[Any]]]] = []

    def run(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor],
        owner: object,
    ) -> Any:
        """``function(*args, **kwargs)``, whose result follows from the arguments and ``tensors``.

        Args:
            tensors: What it reads besides, and may be differentiated by: parameters.
            owner: What else it depends on; compared by equality.

        Raises:
            ArrayError: The arguments are not on a CUDA device.
        """
        call = None if cuda_graph.capturing() else Call.of(args, kwargs)
        if call is None or not call.comparable:
            return function(*args, **kwargs)
        device = _device(call, tensors)
        key = [owner, *_circumstances(), *call.form]
        key += [(t.data_ptr(), t.shape, t.dtype, t.requires_grad) for t in tensors]
        for captured in self._kept:
            if captured.covers(key, call, tensors):
                return function(*args, **kwargs) if captured.busy else self._replay(captured, call)
        if not self._came_before(key, call) or _in_backward():
            result = function(*args, **kwargs)
            self._seen = [(key, [weakref.ref(v) for v in call.same]), *self._seen[: _KEPT - 1]]
            return result
        try:
            captured = Captured(function, args, kwargs, call, tensors, key, device, self._layer())
        except DacergnnError:
            raise
        except RuntimeError as error:
            problem = f"This call cannot be recorded as a CUDA graph: {error}"
            raise DeviceError(f"{problem}\nOptimize without cuda_graph=True to run it as it is.") from error
        self._kept = [captured, *self._kept[: _KEPT - 1]]
        return self._replay(captured, call)

    def _came_before(self, key: list[Any], call: Call) -> bool:
        return any(k == key and all(map(is_, call.same, [r() for r in same])) for k, same in self._seen)

    def _replay(self, captured: Captured, call: Call) -> Any:
        layer = self._layer()
        if layer is not None and captured.ran is not None:
            layer.remember(*captured.ran)
        return captured.run([call.tensors[i] for i in captured.given])

    @property
    def summary(self) -> str | None:
        """For reports."""
        count = len(self._kept)
        return f"CUDA graphs replay {count} kind{'s' * (count > 1)} of calls" if count else None


def _device(call: Call, tensors: Sequence[Tensor]) -> torch.device:
    """The device that a call is about."""
    graphs = [v for v in call.same if isinstance(v, HeteroGraph)]
    (device, *_) = [v.device for v in (*graphs, *call.tensors, *tensors)] or [torch.device("cpu")]
    check_capturable("the call", device)
    return device


def check_capturable(name: str, device: torch.device) -> None:
    """ArrayError unless there are CUDA graphs for a device."""
    if device.type != cuda_graph.Recorder.kind:
        problem = f"is on {device}, but cuda_graph=True records calls on CUDA devices; move model, graph and inputs"
        raise ArrayError(name, f"{problem} there with .to('cuda'), or leave cuda_graph out")


def _in_backward() -> bool:
    """Whether this is a call that a checkpoint makes again, and so has to do what it did before."""
    return torch._C._current_graph_task_id() != -1  # pyright: ignore[reportPrivateUsage]


def _circumstances() -> list[Any]:
    """What kernels are chosen by besides the call."""
    return [allows_tf32(), torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")]
