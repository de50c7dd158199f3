"""Records one call of a layer as CUDA graphs, the forward and the backward, and replays it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from operator import is_
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from dacergnn.errors import DeviceError
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.signature import CallSignature
from dacergnn.runtime import cuda_graph
from dacergnn.runtime.dynamo import skipped_by_dynamo

Function = Callable[..., Any]
"""Takes the tensors to compute with in place of others, by their ids, and then the arguments of a call."""


class Remembers(Protocol):
    """Describes what recorded calls tell their layer, which remembers its last program and graph."""

    @property
    def last_call(self) -> tuple[CompiledProgram, HeteroGraph] | None: ...

    def remember(self, compiled: CompiledProgram, graph: HeteroGraph) -> None: ...


class Captured:
    """Represents one recorded call. Its memory stays in place: inputs are copied in, and results are copied out.

    Hence results and gradients are ordinary tensors. Every replay reads parameters in place. The recorded backward ends
    at leaves of its own that share their memory: autograd may have accumulated into the parameters on another stream
    before, and what the user has hooked to them runs once, at the step of autograd that replays.
    """

    def __init__(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        signature: CallSignature,
        tensors: Sequence[Tensor],
        key: list[Any],
        device: torch.device,
        layer: Remembers | None,
    ) -> None:
        self.signature, self._key, self._tensors = signature, key, list(tensors)
        tensors = self._read = [*dict.fromkeys(tensors)]  # one with two names has one gradient
        leaves = signature.leaves(args, kwargs) or []
        first = {id(leaves[place]): place for place in reversed(signature.features)}
        self.input_places = [*first.values()]
        """Positions of the tensors that are copied in, among the leaves of a call."""
        features = {i: leaves[place] for i, place in first.items()}
        own = {i: t.detach().clone().requires_grad_(t.requires_grad) for i, t in features.items()}
        args, kwargs = pytree.tree_map(lambda v: own.get(id(v), v), (args, kwargs))
        self._inputs = [t.detach() for t in own.values()]
        self._wanted = [t.requires_grad for t in (*own.values(), *tensors)]
        leaf_of = {id(t): t.detach().requires_grad_() for t in tensors if t.requires_grad}
        wanted = [t for t in own.values() if t.requires_grad]
        wanted += [leaf_of[id(t)] for t in tensors if t.requires_grad]
        self.differentiable = torch.is_grad_enabled() and bool(wanted)
        self.generation = 0
        self._form: Any = None
        self._token: Callable[[], object] = lambda: None
        self._recorder = cuda_graph.Recorder(device)

        def forward() -> list[Any]:
            leaves, self._form = pytree.tree_flatten(function(leaf_of, *args, **kwargs))
            return leaves

        def backward(roots: list[Tensor], gradients: list[Tensor]) -> Sequence[Tensor | None]:
            # The graph is kept, so that gradients can be computed again.
            return torch.autograd.grad(roots, wanted, gradients, retain_graph=True, allow_unused=True)

        def once() -> None:
            roots = [v for v in forward() if isinstance(v, Tensor) and v.requires_grad]
            if roots and self.differentiable:
                backward(roots, [torch.zeros_like(r) for r in roots])

        saved: set[int] = set()

        def note(tensor: Tensor) -> Tensor:
            saved.add(tensor.data_ptr())
            return tensor

        with saved_tensors_hooks(note, lambda t: t):  # hides hooks of the user
            self._recorder.warm_up(once)
            leaves, self._forward = self._recorder.record(forward)
            outputs = [v for v in leaves if isinstance(v, Tensor)]
            self._roots = [i for i, t in enumerate(outputs) if t.requires_grad]
            self.differentiable = self.differentiable and bool(self._roots)
            if self.differentiable:
                roots = [outputs[i] for i in self._roots]
                self._incoming = [torch.zeros_like(r) for r in roots]
                input_gradients, self._backward = self._recorder.record(lambda: backward(roots, self._incoming))
                self._gradients = [None if g is None else g.detach() for g in input_gradients]
        self._outputs = [t.detach() for t in outputs]
        self._places = [i for i, v in enumerate(leaves) if isinstance(v, Tensor)]
        self._leaves = [None if isinstance(v, Tensor) else v for v in leaves]
        self.read_again = [t for t in tensors if t.data_ptr() in saved]
        """The tensors that a backward reads in place; autograd checks that nobody has written to them."""
        self.ran = None if layer is None else layer.last_call

    def covers(self, key: list[Any], tensors: Sequence[Tensor]) -> bool:
        """Returns whether a call with this signature has the same key, and reads the same tensors."""
        return key == self._key and all(map(is_, tensors, self._tensors))

    @property
    def busy(self) -> bool:
        """Returns whether a backward may still read the memory of the last replay."""
        return self._token() is not None

    def run(self, features: Sequence[Tensor]) -> Any:
        """Returns the result for other features."""
        if self.differentiable:
            outputs: Sequence[Tensor] = _Replay.apply(self, *features, *self._read)  # pyright: ignore[reportUnknownMemberType, reportAssignmentType]
        else:
            outputs = self.replay(features)
        leaves = self._leaves.copy()
        for place, output in zip(self._places, outputs, strict=True):
            leaves[place] = output
        return pytree.tree_unflatten(leaves, self._form)

    def replay(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Runs the forward for other features, and returns copies of its outputs."""
        with self._turn(), torch.no_grad():
            self.generation += 1
            _copy(self._inputs, features)
            self._forward()
            return _copies(self._outputs)

    def replay_backward(self, generation: int, gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """Returns copies of the gradients of the features, then of the tensors; None for those that need none."""
        if generation != self.generation:
            raise DeviceError(
                "What a call with cuda_graph=True left for its backward was overwritten by a later one; call backward "
                "before the layer is called again, or optimize without cuda_graph."
            )
        with self._turn(), torch.no_grad():
            _copy(self._incoming, [gradients[i] for i in self._roots])
            self._backward()
            made = iter(_copies([g for g in self._gradients if g is not None]))
        input_gradients = iter([None if g is None else next(made) for g in self._gradients])
        return [next(input_gradients) if wanted else None for wanted in self._wanted]

    def _turn(self) -> AbstractContextManager[None]:
        return self._recorder.turn(None if self.ran is None else self.ran[1])

    def left(self, token: Tensor) -> None:
        """Notes a tensor that lives as long as a backward of the last replay may come."""
        self._token = weakref.ref(token)

    @property
    def constant(self) -> list[int]:
        """Returns the positions of the outputs that get no gradient."""
        return [i for i in range(len(self._outputs)) if i not in self._roots]


class _Replay(torch.autograd.Function):
    """Runs a replay as one step of autograd."""

    @staticmethod
    def forward(ctx: Any, captured: Captured, *tensors: Tensor) -> tuple[Tensor, ...]:
        outputs = captured.replay(tensors[: len(captured.input_places)])
        # Saved tensors are freed after the last backward, and only then. The token is on the CPU, where it can be read.
        token = torch.tensor(captured.generation, device="cpu")
        ctx.save_for_backward(token, *captured.read_again)
        captured.left(token)
        ctx.captured = captured
        ctx.mark_non_differentiable(*[outputs[i] for i in captured.constant])
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    @skipped_by_dynamo
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        token, *_ = ctx.saved_tensors
        return (None, *ctx.captured.replay_backward(int(token), gradients))


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(list(targets), list(sources))  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    made = [torch.empty_like(t) for t in tensors]
    _copy(made, tensors)
    return made
