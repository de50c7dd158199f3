"""Records a call so that calls like it can run its programs at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dacergnn.frontends.symbolic.edges import EdgeIndex, EndIndex, plain
from dacergnn.frontends.symbolic.record import ABOUT, COUNTS, OF_GRADIENTS, STRIDED
from dacergnn.frontends.symbolic.sizes import Size
from dacergnn.frontends.symbolic.steps import ProgramRun
from dacergnn.frontends.symbolic.tape import Tape
from dacergnn.frontends.symbolic.value import Value
from dacergnn.graph import HeteroGraph
from dacergnn.modules.replay.reach import Unwatchable
from dacergnn.modules.replay.recording import Recording
from dacergnn.modules.replay.watch import Watch
from dacergnn.modules.signature import CallSignature
from dacergnn.runtime.cuda_device import random_state

_FORM = frozenset(("shape", "dtype", "device", "layout", "requires_grad", "ndim", "is_cpu", "is_cuda", "is_sparse",
                   "is_sparse_csr", "is_quantized", "is_nested", "is_meta", "is_mkldnn", "_version"))  # fmt: skip


class Looks(TorchFunctionMode):
    """Notes on a tape, while it is active, what is done with tensors that are not recorded."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        tape, options = self._tape, kwargs or {}
        if _about_form(func):
            return self._form(func, args, options)
        if func.__name__ == "__get__" and func.__self__.__name__ in OF_GRADIENTS:
            tape.refuse(f"{func.__self__.__name__} is read")
        before = len(tape.steps)
        result = func(*args, **options)
        if not _recorded(result) and not tape.made_since(before, result):
            tape.called(func, plain(args), plain(options), result)
        return result

    def _form(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Returns the answer to a question about the form of a tensor, with sizes that note their use."""
        tensor = args[0] if args else None
        result = func(*args, **options)
        if func in STRIDED:
            self._tape.refuse("strides are read")
        if type(tensor) is not Tensor:
            return result
        if type(result) is torch.Size:
            return self._tape.shape(tensor)
        if func is Tensor.size:
            return self._tape.shape(tensor)[_axis(tensor, args, options)]
        if func in COUNTS:
            for size in self._tape.shape(tensor):
                if type(size) is Size:
                    size.is_known()
        return result


def _axis(tensor: Tensor, args: tuple[Any, ...], options: dict[str, Any]) -> int:
    """Returns the axis that `Tensor.size` is asked for."""
    axis = args[1] if len(args) > 1 else options["dim"]
    return int(axis) % tensor.dim()


def _recorded(result: Any) -> bool:
    if type(result) in (tuple, list):
        return len(result) > 0 and all(_recorded(r) for r in result)
    return type(result) in (Value, EdgeIndex, EndIndex)


def _about_form(func: Any) -> bool:
    if func.__name__ == "__get__":
        return func.__self__.__name__ in _FORM
    return func in ABOUT or func is torch.device or func.__name__ == "_set_grad_enabled"


@dataclass
class Attempt:
    """Represents a call that is recorded, and watched for other effects, so that it can run again without recording.

    Args:
        signature: The signature of the call.
        leaves: The tensors and graphs among its arguments.
        watch: The other objects that it can reach.
    """

    signature: CallSignature
    leaves: list[Any]
    watch: Watch
    like: list[Recording] = field(default_factory=list)
    """Recordings of calls whose arguments have the same form."""
    edges: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = {id(t): t for t in self.watch.tensors}
        self.tape = Tape([*zip(self.leaves, self.signature.axes, strict=True)], own)
        self.looks = Looks(self.tape)
        self._before = self._state()

    def _state(self) -> Any:
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        return [0 if t.is_inference() else t._version for t in tensors], self.watch.versions(), self._random_state()

    def _random_state(self) -> list[bytes]:
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        device = tensors[0].device if tensors else torch.device("cpu")
        return [s.numpy().tobytes() for s in random_state(device)]

    def finish(self, result: Any, forget: Callable[[object], None]) -> Recording:
        """Returns a recording that repeats the call; ``forget`` is called when a graph is gone.

        Raises:
            Unwatchable: The call did more than the tape says, or its result holds more than what the call made.
        """
        tape = self.tape
        if tape.problem is not None:
            raise Unwatchable(tape.problem)
        *versions, random = self._state()
        unexplained = random != self._before[2] and not tape.draws
        if not self.watch.unchanged() or versions != [*self._before[:2]] or unexplained:
            raise Unwatchable("it changes attributes or tensors, or draws random numbers")
        if any(isinstance(s, ProgramRun) and isinstance(s.edges, HeteroGraph) for s in tape.steps):
            guarded = {id(v) for v in (*self.signature.same, *self.watch.integers)}
            if not guarded.issuperset(map(id, self.edges)):
                raise Unwatchable("its edges are made during the call")
        return Recording(self.signature, self.watch, self.leaves, tape, result, forget)
