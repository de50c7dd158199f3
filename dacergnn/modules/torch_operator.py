"""Lets torch.compile trace layers: one torch.library operator holds a whole call (torch.export: `exported.py`).

Tracers do not look into a layer, since the graph of its edge tensors is known only when the operator runs. The
backward runs the eager call again with gradients, so nothing but the inputs is saved.
"""

from __future__ import annotations

import ast
import secrets
import weakref
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from dacergnn.config import Config
from dacergnn.errors import UnsupportedCallError
from dacergnn.graph import HeteroGraph
from dacergnn.modules.autocast import ResultTypes, autocast_type, with_types, without_autocast
from dacergnn.modules.beside import beside
from dacergnn.modules.elements import cast, with_parameters

_Function = TypeVar("_Function", bound=Any)


def skipped_by_dynamo(function: _Function) -> _Function:
    """Returns a function of ours, marked so that torch.compile calls it as it is and does not trace it.

    torch.compile would trace our compiler otherwise. `torch.compiler.disable` does the same, but slows every call.
    """
    torch_c: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    frames = torch_c._dynamo.eval_frame
    if hasattr(frames, "_FrameExecStrategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function


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


_LAYERS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


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
    return with_types(call_layer(tensors, parameters, layer.number, text, ",".join(names)), types)


def _result_types(number: int, text: str, *tensors: Tensor) -> list[torch.dtype | None]:
    """Returns the types of the results of a call under autocast, for which it runs the original while tracing."""
    args, kwargs = _arguments(text, list(tensors))
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


def _restore(node: ast.AST, tensors: list[Tensor]) -> Any:
    if isinstance(node, ast.Set | ast.List):
        (item,) = node.elts
        assert isinstance(item, ast.Constant) and isinstance(item.value, int)
        return tensors[item.value] if isinstance(node, ast.Set) else HeteroGraph.of_key(str(item.value))
    if isinstance(node, ast.Dict):
        return {ast.literal_eval(k): _restore(v, tensors) for k, v in zip(node.keys, node.values, strict=True) if k}
    if isinstance(node, ast.Tuple):
        return tuple(_restore(v, tensors) for v in node.elts)
    return ast.literal_eval(node)


def _rebuild(shape: Any, outputs: Iterator[Tensor]) -> Any:
    if isinstance(shape, dict):
        return {k: _rebuild(v, outputs) for k, v in shape.items()}
    return None if shape is None else next(outputs)


def _leaves(value: Any) -> list[Any]:
    """Returns the tensors of a result, or the shapes in the description of a result, in order."""
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    return [] if value is None else [value]


def _arguments(text: str, tensors: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _restore(ast.parse(text, mode="eval").body, tensors)


def _eager(number: int, text: str, tensors: list[Tensor], names: str, parameters: list[Tensor]) -> list[Tensor]:
    """Runs a call with the given tensors in place of the layer's own parameters."""
    layer = _find_layer(number)
    own = dict(zip(names.split(","), parameters, strict=True)) if names else {}
    args, kwargs = _arguments(text, tensors)
    with without_autocast():  # the tensors have the type that it asks for
        return _leaves(layer.run(with_parameters(layer.original, own), args, kwargs))


@torch.library.custom_op("dacergnn::layer", mutates_args=())
def call_layer(tensors: list[Tensor], parameters: list[Tensor], layer: int, call: str, names: str) -> list[Tensor]:
    """Runs one call of a compiled layer; ``call`` describes the arguments in terms of ``tensors``."""
    with torch.no_grad():
        return [t.clone() for t in _eager(layer, call, tensors, names, parameters)]


@call_layer.register_fake
def _(tensors: list[Tensor], parameters: list[Tensor], layer: int, call: str, names: str) -> list[Tensor]:
    args, kwargs = _arguments(call, tensors)
    like = parameters[0] if parameters else tensors[0]
    return [like.new_empty(shape) for shape in _leaves(_find_layer(layer).result(*args, **kwargs))]


@torch.library.custom_op("dacergnn::layer_backward", mutates_args=())
def layer_backward(
    gradients: list[Tensor],
    tensors: list[Tensor],
    parameters: list[Tensor],
    layer: int,
    call: str,
    names: str,
    wanted: list[int],
) -> list[Tensor]:
    """Returns the gradients at the positions ``wanted`` among the tensors, followed by the parameters."""
    originals = [*tensors, *parameters]

    def differentiate() -> list[Tensor]:
        inputs = [t.detach().requires_grad_() if i in wanted else t for i, t in enumerate(originals)]
        outputs = _eager(layer, call, inputs[: len(tensors)], names, inputs[len(tensors) :])
        results: Any = torch.autograd.grad(outputs, [inputs[i] for i in wanted], gradients, allow_unused=True)
        return [
            torch.zeros_like(originals[i]) if r is None else r.clone() for i, r in zip(wanted, results, strict=True)
        ]

    return beside(differentiate, gradients[0].device)


@layer_backward.register_fake
def _(
    gradients: list[Tensor],
    tensors: list[Tensor],
    parameters: list[Tensor],
    layer: int,
    call: str,
    names: str,
    wanted: list[int],
) -> list[Tensor]:
    originals = [*tensors, *parameters]
    return [torch.empty_like(originals[i]) for i in wanted]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, parameters, ctx.layer, ctx.call, ctx.names = inputs
    ctx.count = len(tensors)
    ctx.total = len(tensors) + len(parameters)
    ctx.wanted = [i for i, t in enumerate([*tensors, *parameters]) if t.requires_grad]
    ctx.save_for_backward(*tensors, *parameters)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    tensors, parameters = saved[: ctx.count], saved[ctx.count :]
    input_gradients = layer_backward(list(gradients), tensors, parameters, ctx.layer, ctx.call, ctx.names, ctx.wanted)
    results: list[Tensor | None] = [None] * ctx.total
    for position, gradient in zip(ctx.wanted, input_gradients, strict=True):
        results[position] = gradient
    return results[: ctx.count], results[ctx.count :], None, None, None


call_layer.register_autograd(_backward, setup_context=_setup_context)
