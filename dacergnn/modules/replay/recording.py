"""A call that is recorded so that calls like it can run its program at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dacergnn.frontends.symbolic import Computed
from dacergnn.frontends.symbolic.edges import EdgeIndex, EndIndex
from dacergnn.frontends.symbolic.record import ABOUT, place, spelled
from dacergnn.frontends.symbolic.value import Value
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.replay.reach import Unwatchable
from dacergnn.modules.replay.watch import Watch
from dacergnn.modules.signature import SIMPLE, CallSignature
from dacergnn.runtime.cuda_device import random_state

_FORM = frozenset(("shape", "dtype", "device", "layout", "requires_grad", "ndim", "is_cpu", "is_cuda", "is_sparse",
                   "is_sparse_csr", "is_quantized", "is_nested", "is_meta", "is_mkldnn"))  # fmt: skip


class Looks(TorchFunctionMode):
    """While it is active, notes what is done with tensors that are not recorded, but for asking for their form."""

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.found is None and not _recorded(result) and not _about_form(func):
            attribute = func.__name__ in ("__get__", "__set__")
            name = f"torch.Tensor.{func.__self__.__name__}" if attribute else spelled(func)
            self.found = f"{name} is computed as it is ({place()})"
        return result


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
    """A call that is recorded with an eye on what it does besides, so that it can be run again without recording.

    Args:
        signature: That of the call.
        leaves: The tensors and graphs among its arguments.
        watch: What else it can reach.
    """

    signature: CallSignature
    leaves: list[Any]
    watch: Watch
    looks: Looks = field(default_factory=Looks)
    runs: list[tuple[CompiledProgram, HeteroGraph, bool]] = field(default_factory=list)
    shapes: list[torch.Size] = field(default_factory=list)
    """Of what the programs give."""
    computed: list[Computed] = field(default_factory=list)
    edges: list[Tensor] = field(default_factory=list)
    problem: str | None = None

    def __post_init__(self) -> None:
        self._before = self._state()

    def _state(self) -> Any:
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        versions = [0 if t.is_inference() else t._version for t in tensors]
        device = tensors[0].device if tensors else torch.device("cpu")
        return versions, self.watch.versions(), [s.numpy().tobytes() for s in random_state(device)]

    def finish(self, result: Any, forget: Callable[[object], None]) -> Recording:
        """What repeats the call; ``forget`` is called when a graph is gone.

        Raises:
            Unwatchable: The call did more than run one program, or its result is more than that of the program.
        """
        problem = self.problem or self.looks.found
        if problem is not None:
            raise Unwatchable(problem)
        if len(self.runs) != 1 or len(self.computed) != 1:
            raise Unwatchable(f"it runs {len(self.runs)} programs")
        if not self.watch.unchanged() or self._state() != self._before:
            raise Unwatchable("it changes attributes or tensors, or draws random numbers")
        if self.runs[0][2] is not self.signature.state[0]:
            raise Unwatchable("gradients are on in parts of it")
        guarded = {id(v) for v in (*self.signature.same, *self.watch.integers)}
        if not guarded.issuperset(map(id, self.edges)):
            raise Unwatchable("its edges are made during the call")
        return Recording(self, self.computed[0], result, forget)


class Recording:
    """How to run the program of a call for others that are like it."""

    def __init__(self, attempt: Attempt, computed: Computed, result: Any, forget: Callable[[object], None]) -> None:
        self.signature, self.watch = attempt.signature, attempt.watch
        self.signature.when_gone(forget)
        self._known = self._overlap(attempt.leaves)
        ids = [*map(id, attempt.leaves)]
        self.compiled, self.graph, _ = attempt.runs[0]
        self._arrays: list[Any] = []
        self._given: list[tuple[int, int]] = []
        self._on_edges: list[int] = []
        for slot, (tensor, origin) in enumerate(computed.inputs):
            if id(tensor) in ids:
                self._given.append((slot, ids.index(id(tensor))))
            elif origin != "graph" and id(tensor) not in attempt.watch.ids:
                raise Unwatchable("what it computes before, outside of the program, is part of the result")
            if origin == "edges":
                self._on_edges.append(slot)
            self._arrays.append(None if id(tensor) in ids else tensor)
        self._outputs: list[tuple[int, bool, torch.Size | None]] = []  # a shape unless it is that of the program
        self._shapes = attempt.shapes
        self._result = self._template(result, {id(made[0]): made for made in computed.outputs})

    def _template(self, tree: Any, made: dict[int, Any]) -> Any:
        """The result with numbers of outputs in place of tensors."""
        if id(tree) in made:
            tensor, position, on_edges = made[id(tree)]
            self._outputs.append((position, on_edges, tensor.shape if tensor.shape != self._shapes[position] else None))
            return _Output(len(self._outputs) - 1)
        if type(tree) in (tuple, list):
            return type(tree)([self._template(v, made) for v in tree])
        if type(tree) is dict:
            return {k: self._template(v, made) for k, v in tree.items()}
        if type(tree) not in SIMPLE:
            raise Unwatchable("its result is not what the program computes alone")
        return tree

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the tensors and graphs among the arguments of a call that is like the recorded one.

        None if it is not, or something else is not as it was then.
        """
        leaves = self.signature.leaves(args, kwargs)
        if leaves is None or not self.watch.unchanged() or self._overlap(leaves) != self._known:
            return None
        return leaves

    @property
    def tensors(self) -> list[Tensor]:
        """What the program reads besides the arguments."""
        return [a for a in self._arrays if a is not None]

    def again(self, *args: Any, **kwargs: Any) -> Any:
        """The result for the arguments of a call that is covered."""
        leaves = self.signature.leaves(args, kwargs)
        assert leaves is not None
        return self.run(leaves)

    def _overlap(self, leaves: Sequence[Any]) -> list[int]:
        """Which arguments are tensors that the layer, or a graph, holds as well."""
        ids = self.watch.ids
        return [i if i in ids else 0 for i in map(id, leaves)]

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result for other arguments."""
        arrays = self._arrays.copy()
        for slot, position in self._given:
            arrays[slot] = leaves[position]
        for slot in self._on_edges:
            arrays[slot] = self.graph.to_canonical(arrays[slot])
        found = self.compiled(self.graph, arrays)
        outputs: list[Tensor] = []
        for position, on_edges, shape in self._outputs:
            rows = found[position]
            rows = self.graph.from_canonical(rows) if on_edges else rows
            outputs.append(rows if shape is None else rows.view(shape))
        return _filled(self._result, outputs)


@dataclass(frozen=True)
class _Output:
    number: int


def _filled(tree: Any, outputs: Sequence[Tensor]) -> Any:
    if type(tree) is _Output:
        return outputs[tree.number]
    if type(tree) in (tuple, list):
        return type(tree)([_filled(v, outputs) for v in tree])
    return {k: _filled(v, outputs) for k, v in tree.items()} if type(tree) is dict else tree
