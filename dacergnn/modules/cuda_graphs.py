"""Records calls of a layer as CUDA graphs when they come again, and replays them from then on."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.config import CheckGraph
from dacergnn.errors import ArrayError, DacergnnError, DeviceError
from dacergnn.graph import HeteroGraph
from dacergnn.modules.cuda_graph_call import Captured, Function, Remembers
from dacergnn.modules.signature import CallSignature, is_modified
from dacergnn.runtime import cuda_graph
from dacergnn.runtime.cuda_device import allows_tf32

_KEPT = 8


class Captures:
    """Holds the recorded calls of a layer, latest first.

    A call is recorded when one like it was made before: with the same graph, integers and parameters, features of the
    same types and shapes, and gradients of the same tensors. All others run as they are. So do calls whose memory a
    later backward still needs, calls within another recording, and calls that write to tensors of the layer.
    """

    def __init__(self, layer: Remembers, check: CheckGraph) -> None:
        self._layer = weakref.ref(layer)
        self._check: CheckGraph = check
        self._kept: list[Captured] = []
        self._seen: list[tuple[list[Any], CallSignature]] = []

    def run(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor],
        owner: object,
    ) -> Any:
        """Returns ``function({}, *args, **kwargs)``, which depends on the arguments, ``tensors`` and ``owner`` alone.

        Args:
            function: Its first argument tells which tensors to compute with in place of others, by their ids.
            tensors: Parameters and buffers that the function reads; gradients with respect to them may be needed.
            owner: Anything else that the result depends on; compared by equality.

        Raises:
            ArrayError: The arguments are not on a CUDA device.
        """
        if cuda_graph.capturing() or is_modified():
            return function({}, *args, **kwargs)
        key: list[Any] = [owner, *_circumstances()]
        key += [(t.data_ptr(), t.shape, t.dtype, t.requires_grad) for t in tensors]
        for captured in self._kept:
            leaves = captured.signature.leaves(args, kwargs)
            if leaves is not None and captured.covers(key, tensors):
                return function({}, *args, **kwargs) if captured.busy else self._replay(captured, leaves)
        seen = next((s for k, s in self._seen if k == key and s.leaves(args, kwargs) is not None), None)
        signature = CallSignature.of(args, kwargs, self._check) if seen is None else seen
        if signature is None:
            return function({}, *args, **kwargs)
        leaves = signature.leaves(args, kwargs) or []
        device = _device(leaves, tensors)
        if seen is None or _in_backward():
            versions = [t._version for t in tensors]
            result = function({}, *args, **kwargs)
            if versions == [t._version for t in tensors]:  # recording would write to them more often than the call
                self._seen = [(key, signature), *self._seen[: _KEPT - 1]]
            return result
        try:
            captured = Captured(function, args, kwargs, signature, tensors, key, device, self._layer())
        except DacergnnError:
            raise
        except RuntimeError as error:
            problem = f"This call cannot be recorded as a CUDA graph: {error}"
            raise DeviceError(f"{problem}\nOptimize without cuda_graph=True to run it as it is.") from error
        self._kept = [captured, *self._kept[: _KEPT - 1]]
        return self._replay(captured, leaves)

    def _replay(self, captured: Captured, leaves: Sequence[Any]) -> Any:
        layer = self._layer()
        if layer is not None and captured.ran is not None:
            layer.remember(*captured.ran)
        return captured.run([leaves[i] for i in captured.input_places])

    @property
    def summary(self) -> str | None:
        """Returns a text for reports on the recorded calls; None if there are none."""
        count = len(self._kept)
        return f"CUDA graphs replay {count} kind{'s' * (count > 1)} of calls" if count else None


def _device(leaves: Sequence[Any], tensors: Sequence[Tensor]) -> torch.device:
    """Returns the device of a call; raises ArrayError unless it has CUDA graphs."""
    values = [v for kind in (HeteroGraph, Tensor) for v in leaves if isinstance(v, kind)]
    (device, *_) = [v.device for v in (*values, *tensors)] or [torch.device("cpu")]
    check_capturable("the call", device)
    return device


def check_capturable(name: str, device: torch.device) -> None:
    """Raises ArrayError unless there are CUDA graphs for a device."""
    if device.type != cuda_graph.Recorder.kind:
        problem = f"is on {device}, but cuda_graph=True records calls on CUDA devices; move model, graph and inputs"
        raise ArrayError(name, f"{problem} there with .to('cuda'), or leave cuda_graph out")


def _in_backward() -> bool:
    """Returns whether a checkpoint repeats this call in a backward, so that it must do what it did before."""
    return torch._C._current_graph_task_id() != -1  # pyright: ignore[reportPrivateUsage]


def _circumstances() -> list[Any]:
    """Returns the settings of torch that the choice of kernels depends on besides the call."""
    return [allows_tf32(), torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")]
