"""A call that is recorded so that calls like it can do what it did at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dacergnn.frontends import Program
from dacergnn.frontends.symbolic.edges import EdgeForm, EdgeIndex, EndIndex, plain
from dacergnn.frontends.symbolic.record import ABOUT, COUNTS
from dacergnn.frontends.symbolic.sizes import Guard, Size
from dacergnn.frontends.symbolic.tape import (
    Extent,
    Own,
    ProgramRun,
    Step,
    Tape,
    TorchCall,
    Unrepeatable,
    filled,
    hold,
)
from dacergnn.frontends.symbolic.trace import data_of_graph
from dacergnn.frontends.symbolic.value import Value
from dacergnn.graph import HeteroGraph
from dacergnn.modules.replay.reach import Unwatchable
from dacergnn.modules.replay.watch import Watch
from dacergnn.modules.signature import SIMPLE, CallSignature
from dacergnn.runtime.cuda_device import random_state

_FORM = frozenset(("shape", "dtype", "device", "layout", "requires_grad", "ndim", "is_cpu", "is_cuda", "is_sparse",
                   "is_sparse_csr", "is_quantized", "is_nested", "is_meta", "is_mkldnn", "_version"))  # fmt: skip
_RANDOM = ("dropout", "rand", "bernoulli", "multinomial", "normal", "exponential", "uniform")
"""How the names of functions begin or end that draw numbers."""


class Runner(Protocol):
    """Runs programs."""

    def graph_of(self, form: EdgeForm, given: set[int]) -> HeteroGraph:
        """The graph of some edges; ``given`` holds the ids of tensors that others keep."""
        ...

    def run_program(self, program: Program, graph: HeteroGraph, arrays: Sequence[Tensor]) -> Sequence[Tensor]:
        """The outputs of a program for arrays in the order of its parameters."""
        ...


class Looks(TorchFunctionMode):
    """While it is active, notes on a tape what is done with tensors that are not recorded."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        tape, options = self._tape, kwargs or {}
        if _about_form(func):
            return self._form(func, args, options)
        before = len(tape.steps)
        result = func(*args, **options)
        if not _recorded(result) and not tape.made_since(before, result):
            tape.called(func, plain(args), plain(options), result)
        return result

    def _form(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What is asked about the form of a tensor, with sizes that are noted."""
        tensor = args[0] if args else None
        result = func(*args, **options)
        if type(tensor) is not Tensor:
            return result
        if type(result) is torch.Size:
            return self._tape.shape(tensor)
        if func is Tensor.size:
            return self._tape.shape(tensor)[result_axis(tensor, args, options)]
        if func in COUNTS:
            for size in self._tape.shape(tensor):
                if type(size) is Size:
                    size.is_known()
        return result


def result_axis(tensor: Tensor, args: tuple[Any, ...], options: dict[str, Any]) -> int:
    """The axis that `Tensor.size` is asked for."""
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
    """A call that is recorded with an eye on what it does besides, so that it can be run again without recording.

    Args:
        signature: That of the call.
        leaves: The tensors and graphs among its arguments.
        watch: What else it can reach.
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
        """What repeats the call; ``forget`` is called when a graph is gone.

        Raises:
            Unwatchable: The call did more than the tape says, or its result is more than what was made.
        """
        tape = self.tape
        if tape.problem is not None:
            raise Unwatchable(tape.problem)
        *versions, random = self._state()
        draws = any(isinstance(s, TorchCall) and _draws(s.function) for s in tape.steps)
        if not self.watch.unchanged() or versions != [*self._before[:2]] or (random != self._before[2] and not draws):
            raise Unwatchable("it changes attributes or tensors, or draws random numbers")
        if any(isinstance(s, ProgramRun) and isinstance(s.edges, HeteroGraph) for s in tape.steps):
            guarded = {id(v) for v in (*self.signature.same, *self.watch.integers)}
            if not guarded.issuperset(map(id, self.edges)):
                raise Unwatchable("its edges are made during the call")
        return Recording(self, result, forget)


def _draws(function: Any) -> bool:
    name = function.__name__.strip("_")
    return name.startswith(_RANDOM) or name.endswith(_RANDOM)


class Recording:
    """How to do what a call did for others that are like it."""

    def __init__(self, attempt: Attempt, result: Any, forget: Callable[[object], None]) -> None:
        self.signature, self.watch = attempt.signature, attempt.watch
        self.signature.when_gone(forget)
        self._known = self._overlap(attempt.leaves)
        self.draws = any(isinstance(s, TorchCall) and _draws(s.function) for s in attempt.tape.steps)
        """Whether it draws random numbers."""
        tape = attempt.tape
        self.steps: tuple[Step, ...] = tuple(tape.steps)
        self.sizes = tape.sizes
        """Sizes that the call was about."""
        self._slots = tape.slots
        self._result = _template(result, tape)
        count = len(attempt.leaves)
        self._first: list[Guard] = []
        """Guards about the arguments alone."""
        self._later: list[Guard] = []
        for guard in tape.guards:
            places = [guard[1][0], guard[2][0] if isinstance(guard[2], tuple) else 0]
            (self._first if max(places) < count else self._later).append(guard)
        self._fix(frozenset(self.sizes))

    def _fix(self, roles: frozenset[Any]) -> None:
        """Let the recording be about calls alone that have the same sizes of these."""
        self._fixed = [(role, self.sizes[role]) for role in roles if role[0] < len(self.signature.axes)]

    def widen(self, other: Recording) -> bool:
        """Cover calls of other sizes, those that differ from ``other``, if both calls have done the same.

        What Python does with a size is noticed for the most part. That two calls of different sizes have done the same
        tells that it did nothing unnoticed.
        """
        same = self.steps == other.steps and self._result == other._result and self.sizes.keys() == other.sizes.keys()
        if same:
            free = {role for role, _ in self._fixed} - {role for role, _ in other._fixed}
            roles = {role for role, size in self.sizes.items() if other.sizes[role] == size}
            self._fix(frozenset(roles - free))
        return same

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the tensors and graphs among the arguments of a call that is like the recorded one.

        None if it is not, or something else is not as it was then.
        """
        leaves = self.signature.leaves(args, kwargs)
        if leaves is None or not self.watch.unchanged() or self._overlap(leaves) != self._known:
            return None
        if any(leaves[slot].shape[axis] != size for (slot, axis), size in self._fixed):
            return None
        return leaves if hold(self._first, leaves) else None

    def device(self, leaves: Sequence[Any]) -> torch.device:
        """Where a call is, whose leaves these are."""
        return next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), torch.device("cpu"))

    @property
    def tensors(self) -> list[Tensor]:
        """What programs read besides the arguments."""
        inputs = [i.tensor for s in self.steps if isinstance(s, ProgramRun) for i in s.inputs]
        return [own.tensor for own in inputs if isinstance(own, Own)]

    def _overlap(self, leaves: Sequence[Any]) -> list[int]:
        """Which arguments are tensors that the layer, or a graph, holds as well."""
        ids = self.watch.ids
        return [i if i in ids else 0 for i in map(id, leaves)]

    def run(self, runner: Runner, leaves: Sequence[Any]) -> Any:
        """The result for other arguments.

        Raises:
            Differs: A size that is found on the way is not as it was.
        """
        tensors: list[Any] = [*leaves, *[None] * (self._slots - len(leaves))]
        given = {*map(id, leaves), *self.watch.ids}
        grad = torch.is_grad_enabled()
        for step in self.steps:
            if step.grad is grad:
                _run(step, runner, tensors, given)
            else:
                with torch.set_grad_enabled(step.grad):
                    _run(step, runner, tensors, given)
        if self._later and not hold(self._later, tensors):
            raise Differs
        return filled(self._result, tensors)


class Differs(Exception):
    """A size is not as it was when a call was recorded."""


def _run(step: Step, runner: Runner, tensors: list[Any], given: set[int]) -> None:
    if isinstance(step, TorchCall):
        found = step.function(*filled(step.args, tensors), **filled(step.kwargs, tensors))
        made = () if found is None else (found,) if isinstance(found, Tensor) else found
        for slot, tensor in zip(step.results, made, strict=True):
            tensors[slot] = tensor
        return
    graph = step.edges if isinstance(step.edges, HeteroGraph) else runner.graph_of(filled(step.edges, tensors), given)
    arrays: list[Tensor] = []
    for source in step.inputs:
        if source.tensor is None:
            arrays.append(data_of_graph(graph, *source.data))
        else:
            array = filled(source.tensor, tensors)
            arrays.append(graph.to_canonical(array) if source.on_edges else array)
    found = runner.run_program(step.program, graph, arrays)
    for output in step.outputs:
        rows = found[output.position]
        rows = tensors[output.slot] = graph.from_canonical(rows) if output.on_edges else rows
        for slot, row in output.views:
            tensors[slot] = rows if row is None else rows.view(rows.size(0), *row)


def _template(tree: Any, tape: Tape) -> Any:
    """The result with `Slot` and the like in place of tensors.

    Raises:
        Unwatchable: It is more than tensors and simple values.
    """
    if isinstance(tree, Tensor):
        try:
            return tape.reference(tree)
        except Unrepeatable:
            raise Unwatchable("its result is not what the call has made") from None
    if type(tree) in (tuple, list):
        return type(tree)([_template(v, tape) for v in tree])
    if type(tree) is dict:
        return {k: _template(v, tape) for k, v in tree.items()}
    if type(tree) is Size:
        return Extent(tree.role)
    if type(tree) not in SIMPLE:
        raise Unwatchable("its result is not what the call has made")
    return tree
