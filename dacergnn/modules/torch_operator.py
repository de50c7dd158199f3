"""Lets torch.compile trace layers: one torch.library operator holds a whole call (torch.export: `exported.py`).

Tracers do not look into a layer, since the graph of its edge tensors is known only when the operator runs. It runs the
eager call, which autograd records in this process (`recorded_runs.py`). Where the record is gone, the backward runs the
call again: it has been used, torch has copied its token, or it belongs to another process.
"""

from __future__ import annotations

import ast
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Protocol

import torch
from torch import Tensor

from dacergnn.config import Config
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.parameters import Parameters
from dacergnn.graph import HeteroGraph
from dacergnn.modules.autocast import ResultTypes, autocast_type, with_types, without_autocast
from dacergnn.modules.elements import cast, with_parameters
from dacergnn.modules.recorded_runs import RecordedRun, owned, recording, take_run, token_of


class Layer(Protocol):
    """Describes what an operator needs of the layer whose calls it runs."""

    config: Config
    number: int
    """Tells the layer from others, as `register_layer` has returned it."""

    @property
    def original(self) -> Any:
        """Returns the module that holds the parameters; it may be the layer itself."""
        ...

    def result(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the shapes of a call's results, for tracers."""
        ...

    def run(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call of the layer with the parameters of ``module``."""
        ...


class _Inlined:
    """Tells whether torch captures calls for us, and looks into layers whose own Python becomes programs as good."""

    def __init__(self) -> None:
        self.on = False
        self._calls, self._lock = 0, threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1
            self.on = True

    def __exit__(self, *problem: object) -> None:
        with self._lock:
            self._calls -= 1
            self.on = self._calls > 0


INLINED = _Inlined()


_LAYERS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


_READERS: weakref.WeakKeyDictionary[Any, tuple[str, Parameters]] = weakref.WeakKeyDictionary()


def register_layer(layer: Layer) -> int:
    """Returns a number by which traced calls find ``layer``; no other layer has it, in this process or another."""
    number = secrets.randbits(62)
    _LAYERS[number] = layer
    return number


def _find_layer(number: int) -> Layer:
    layer = _LAYERS.get(number)
    if layer is None:
        raise UnsupportedCallError(
            "This program calls a compiled layer that is gone, or belongs to another process: a program that torch has "
            "compiled holds no layers. Keep the model while the program is used."
        )
    return layer


def operator_call(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the result of a call, in the structure that the layer's front end describes."""
    outputs = operator_outputs(layer, args, kwargs)
    return _rebuild(layer.result(*args, **kwargs), iter(outputs))


def operator_outputs(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Returns the outputs of a call that tracers see as tensors, and a text that tells how these make the arguments."""
    tensors: list[Tensor] = []
    text = _describe((args, kwargs), tensors)
    named = [*layer.original.named_parameters(remove_duplicate=False)]  # each use has a gradient, which torch adds up
    names, parameters = [n for n, _ in named], [p for _, p in named]
    floating = [t for t in [*parameters, *tensors] if t.is_floating_point()]  # torch 2.8 does not trace next(..., None)
    dtype = autocast_type(floating[0].device, layer.config, floating[0].dtype) if floating else None
    types = [] if dtype is None or layer.original is layer else _result_types(layer.number, text, *tensors)
    if dtype is not None:  # the operator computes in the type of its inputs
        tensors, parameters = [cast(t, dtype) for t in tensors], [p.to(dtype) for p in parameters]
    inputs = [*tensors, *parameters]
    wanted = [i for i, t in enumerate(inputs) if t.requires_grad] if torch.is_grad_enabled() else []
    # torch would take an empty list for one of tensors.
    results = call_layer(tensors, parameters, layer.number, text, ",".join(names), wanted or None)
    return with_types(results[:-1] if wanted else results, types)


def _result_types(number: int, text: str, *tensors: Tensor) -> list[torch.dtype | None]:
    """Returns the types of the results of a call under autocast, for which it runs the original while tracing."""
    args, kwargs = _arguments(text, tensors)
    return ResultTypes(_find_layer(number).original).of(args, kwargs)


# As `torch.compiler.assume_constant_result` does, whose import takes longer than all of this package.
_result_types.__dict__["_dynamo_marked_constant"] = True


def _describe(value: Any, tensors: list[Tensor]) -> str:
    """Returns a Python literal in which ``{n}`` stands for the n-th tensor, ``[n]`` for the graph with that key."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return "{" + str(len(tensors) - 1) + "}"
    if isinstance(value, HeteroGraph):
        return "[" + value.key + "]"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{k!r}: {_describe(v, tensors)}" for k, v in value.items()]) + "}"
    if isinstance(value, tuple):
        return "(" + "".join([_describe(v, tensors) + ", " for v in value]) + ")"
    return repr(value)


def _restorer(node: ast.AST) -> Callable[[Sequence[Tensor]], Any]:
    """Returns a function that makes a value of tensors, as a part of a description says."""
    if isinstance(node, ast.Set):
        (item,) = node.elts
        return itemgetter(ast.literal_eval(item))
    if isinstance(node, ast.List):
        (item,) = node.elts
        key = str(ast.literal_eval(item))
        return lambda _: HeteroGraph.of_key(key)
    if isinstance(node, ast.Dict):
        entries = [(ast.literal_eval(k), _restorer(v)) for k, v in zip(node.keys, node.values, strict=True) if k]
        return lambda tensors: {key: value(tensors) for key, value in entries}
    if isinstance(node, ast.Tuple):
        parts = [*map(_restorer, node.elts)]
        return lambda tensors: tuple([part(tensors) for part in parts])
    constant = ast.literal_eval(node)
    return lambda _: constant


def _rebuild(shape: Any, outputs: Iterator[Tensor]) -> Any:
    if isinstance(shape, dict):
        return {k: _rebuild(v, outputs) for k, v in shape.items()}
    return None if shape is None else next(outputs)


def _leaves(value: Any) -> list[Any]:
    """Returns the tensors of a result, or the shapes in the description of a result, in order."""
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    return [] if value is None else [value]


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Callable[[Sequence[Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]:
    return _restorer(ast.parse(text, mode="eval").body)


def _arguments(text: str, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _parsed(text)(tensors)


def _run(number: int, text: str, names: str, tensors: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Runs a call; with the layer's own parameters, it is like any eager call, which costs the least."""
    layer = _find_layer(number)
    module = layer.original
    if [*map(id, parameters)] != [*map(id, _own_parameters(layer, names))]:
        module = with_parameters(module, dict(zip(names.split(","), parameters, strict=True)) if names else {})
    args, kwargs = _arguments(text, tensors)
    with without_autocast():  # the tensors have the type that it asks for
        return _leaves(layer.run(module, args, kwargs))


def _record(
    number: int, text: str, names: str, tensors: Sequence[Tensor], parameters: Sequence[Tensor], wanted: Sequence[int]
) -> tuple[RecordedRun, list[Tensor]]:
    """Runs a call that autograd records; returns the record, and the results."""
    own = _own_parameters(_find_layer(number), names)
    # Each use of a shared parameter has a gradient of its own here, and hooks wait until torch has added these up.
    apart = len({*map(id, own)}) == len(own) and not any(p._backward_hooks for p in own)
    themselves = {id(p) for p in own if p.requires_grad} if apart else set[int]()
    given, leaves = [*tensors, *parameters], dict[int, Tensor]()
    for i in wanted:
        is_own = i >= len(tensors) and id(given[i]) in themselves
        leaves[i] = given[i] if is_own else given[i].detach().requires_grad_()
    inputs = [leaves[i] if i in leaves else t.detach() if t.requires_grad else t for i, t in enumerate(given)]
    with recording():
        results = _run(number, text, names, inputs[: len(tensors)], inputs[len(tensors) :])
        return RecordedRun(given, leaves, results), [t.data for t in results]


def _own_parameters(layer: Layer, names: str) -> list[Tensor]:
    """Returns the parameters of a layer by their names, none if it has others by now."""
    reader = _READERS.get(layer)
    if reader is None or reader[0] != names or reader[1].module is not layer.original:
        paths = [tuple(name.split(".")) for name in names.split(",") if name]
        try:
            reader = _READERS[layer] = names, Parameters(layer.original, paths)
        except KeyError:
            return []
    try:
        return reader[1].read(layer.original)
    except (AttributeError, KeyError):
        return []


def run_layer(
    tensors: list[Tensor], parameters: list[Tensor], layer: int, call: str, names: str, wanted: list[int] | None
) -> list[Tensor]:
    """Does what the operator does, for callers that autograd sees: it records the call as any other one."""
    return _run(layer, call, names, tensors, parameters)


@torch.library.custom_op("dacergnn::layer", mutates_args=())
def call_layer(
    tensors: list[Tensor], parameters: list[Tensor], layer: int, call: str, names: str, wanted: list[int] | None
) -> list[Tensor]:
    """Runs one call of a compiled layer.

    Args:
        tensors: The tensors among the arguments.
        parameters: What the call uses in place of the layer's own parameters ``names``.
        layer: The number of the layer.
        call: Describes the arguments in terms of ``tensors``.
        wanted: Positions among the tensors, followed by the parameters, of what may get gradients; None if nothing
            may. Otherwise, the last of the results is a token by which `layer_backward` finds the recorded run.
    """
    if not wanted:
        with torch.no_grad():
            return owned([t.data for t in _run(layer, call, names, tensors, parameters)])
    run, results = _record(layer, call, names, tensors, parameters, wanted)
    return [*owned(results), token_of(run)]


@call_layer.register_fake
def _(
    tensors: list[Tensor], parameters: list[Tensor], layer: int, call: str, names: str, wanted: list[int] | None
) -> list[Tensor]:
    args, kwargs = _arguments(call, tensors)
    like = parameters[0] if parameters else tensors[0]
    results = [like.new_empty(shape) for shape in _leaves(_find_layer(layer).result(*args, **kwargs))]
    return [*results, torch.empty(1, dtype=torch.int64, device="cpu")] if wanted else results


@torch.library.custom_op("dacergnn::layer_backward", mutates_args=())
def layer_backward(
    gradients: list[Tensor],
    tensors: list[Tensor],
    parameters: list[Tensor],
    layer: int,
    call: str,
    names: str,
    wanted: list[int],
    token: Tensor | None,
) -> list[Tensor]:
    """Returns the gradients at the positions ``wanted`` among the tensors, followed by the parameters."""
    run = None if token is None else take_run(token)
    if run is None or not run.covers([*tensors, *parameters], wanted):
        run, _ = _record(layer, call, names, tensors, parameters, wanted)
    return run.gradients(wanted, gradients)


@layer_backward.register_fake
def _(
    gradients: list[Tensor],
    tensors: list[Tensor],
    parameters: list[Tensor],
    layer: int,
    call: str,
    names: str,
    wanted: list[int],
    token: Tensor | None,
) -> list[Tensor]:
    originals = [*tensors, *parameters]
    return [originals[i].new_empty(originals[i].shape) for i in wanted]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, parameters, ctx.layer, ctx.call, ctx.names, recorded = inputs
    ctx.count = len(tensors)
    ctx.total = len(tensors) + len(parameters)
    ctx.wanted = [i for i, t in enumerate([*tensors, *parameters]) if t.requires_grad]
    ctx.results = len(output) - bool(recorded)
    ctx.save_for_backward(*tensors, *parameters, *output[ctx.results :])


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    tensors, parameters, tokens = saved[: ctx.count], saved[ctx.count : ctx.total], saved[ctx.total :]
    call = tensors, parameters, ctx.layer, ctx.call, ctx.names, ctx.wanted, tokens[0] if tokens else None
    input_gradients = layer_backward(list(gradients[: ctx.results]), *call)
    results: list[Tensor | None] = [None] * ctx.total
    for position, gradient in zip(ctx.wanted, input_gradients, strict=True):
        results[position] = gradient
    return results[: ctx.count], results[ctx.count :], None, None, None, None


call_layer.register_autograd(_backward, setup_context=_setup_context)
