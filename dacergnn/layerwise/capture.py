"""Has torch capture a whole model, without running it and without reading features."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.pyg.message_passing import is_message_passing, message_hooks
from dacergnn.layerwise.arguments import FEATURES, GRAPH, Argument
from dacergnn.layerwise.arrays import element_type
from dacergnn.layerwise.parts import run_part
from dacergnn.modules.capture.options import CAPTURE_OPTIONS


class Uncaptured(Exception):
    """Signals that torch does not capture a model whole."""


@dataclass(frozen=True)
class Captured:
    """Describes what torch has captured of a model.

    Args:
        module: The graph.
        arguments: The inputs that are arguments of the inference.
        given: The other inputs, such as parameters and sizes, with their values.
        results: The nodes of the results by their keys; one without a key if the model returns a tensor.
    """

    module: fx.GraphModule
    arguments: dict[fx.Node, Argument]
    given: dict[fx.Node, Any]
    results: dict[Any, fx.Node]


class _Reached(Exception):
    """Ends a call before what was captured of it runs, so that the model is left as it was."""


def captured(
    model: Callable[..., Any],
    inside: Iterable[nn.Module],
    arguments: Sequence[Argument],
    device: torch.device,
    who: str,
) -> Captured:
    """Returns what torch captures of ``model(x, graph, **others)``.

    Arguments are described by tensors of their shapes that take no memory.

    Args:
        inside: The modules that torch looks into.
        device: The device that the model runs on.
        who: The name of the model in messages.

    Raises:
        Uncaptured: torch does not capture the model whole.
        UnsupportedLayerError: It returns something else than a tensor, or tensors by keys.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes as long to import as all of torch

    found: list[fx.GraphModule] = []
    reached: list[Any] = []
    noted: list[tuple[tuple[Any, ...], tuple[str, ...]]] = []

    def note(keys: tuple[Any, ...], types: tuple[str, ...]) -> None:
        noted.append((keys, types))  # again if torch starts again

    note.__dict__["_dynamo_marked_constant"] = True  # so that torch calls it while it captures

    def keep(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        hooks = next((h for m in inside if is_message_passing(m) and (h := message_hooks(m))), None)
        if hooks is not None:
            raise UnsupportedCallError(f"{hooks} do not run where torch captures a layer")
        found.append(module)

        def run(*args: Any) -> Any:
            reached.extend(args)
            raise _Reached

        return run

    groups = [*dict.fromkeys(argument.group for argument in arguments)]
    names = [f"{i} of {groups.index(argument.group)}" for i, argument in enumerate(arguments)]
    places = [(name, a.name, a.group, a.typed) for name, a in zip(names, arguments, strict=True)]

    def forward(given: dict[str, Tensor]) -> Any:
        used = [torch.clone(tensor) for tensor in given.values()]  # so that they are inputs in any case
        args: dict[str, Any] = {}
        for name, argument, group, typed in places:
            if typed:
                args.setdefault(argument, {})[group] = given[name]
            else:
                args[argument] = given[name]
        x, graph = args.pop(FEATURES), args.pop(GRAPH)
        result = model(x, graph, **args)
        if isinstance(result, dict):
            results = {key: rows for key, rows in result.items() if rows is not None}
        else:
            results = {None: result}
        rows = [torch.clone(value) if isinstance(value, Tensor) else None for value in results.values()]
        note((*results,), (*["Tensor" if isinstance(v, Tensor) else type(v).__name__ for v in results.values()],))
        return used, rows

    stands = {name: _stand_in(argument, device) for name, argument in zip(names, arguments, strict=True)}
    # torch keeps what it has captured with the code object
    own = FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)
    dynamo: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage]
    dynamo.allow_in_graph(run_part)
    try:
        with CAPTURE_OPTIONS, _symbols(), torch.no_grad():
            torch.compile(own, backend=keep, fullgraph=True)(stands)
    except _Reached:
        pass
    except TorchDynamoException as error:
        cause = getattr(error, "inner_exception", None) or error
        raise Uncaptured(str(cause).partition("\n")[0]) from error
    (module,) = found
    keys, types = noted[-1]
    wrong = [name for name in types if name != "Tensor"]
    if wrong:
        remedy = "give steps that return one tensor, or a dictionary of tensors"
        raise UnsupportedLayerError("result", wrong[0], remedy, who)
    if any(node.target is torch.ops.dacergnn.layer.default for node in module.graph.nodes):
        raise Uncaptured("a compiled layer in it runs as one operation")
    known = {id(stands[name]): argument for name, argument in zip(names, arguments, strict=True)}
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    values = dict(zip(inputs, reached, strict=True))
    clones = [node for node in module.graph.nodes if node.target is torch.clone]
    return Captured(
        module,
        {node: known[id(value)] for node, value in values.items() if id(value) in known},
        {node: value for node, value in values.items() if id(value) not in known},
        dict(zip(keys, clones[len(clones) - len(keys) :], strict=True)),
    )


@contextmanager
def _symbols() -> Generator[None]:
    """Has torch use a symbol of its own for each size that may be another, and for no other size."""
    shapes: Any = torch.fx.experimental._config  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    sizes: Any = torch._dynamo.config  # pyright: ignore[reportPrivateUsage]
    with shapes.patch(use_duck_shape=False), sizes.patch(automatic_dynamic_shapes=False):
        yield


def _stand_in(argument: Argument, device: torch.device) -> Tensor:
    """Returns a tensor of the shape of an argument, whose number of rows may be any other, unless it is zero.

    A single row is described by two, since torch captures such a size as a constant.
    """
    shape = [*argument.array.shape]
    shape[argument.axis] = 2 if shape[argument.axis] == 1 else shape[argument.axis]
    stand = torch.zeros((), dtype=element_type(argument.array), device=device).expand(shape)
    dynamo: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage]
    dynamo.maybe_mark_dynamic(stand, argument.axis)
    return stand
