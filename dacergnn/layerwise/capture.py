"""Has torch capture a whole model, without running it and without reading features."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.pyg.message_passing import is_message_passing, message_hooks
from dacergnn.layerwise.arrays import Array, element_type
from dacergnn.modules.capture.captured_forward import CAPTURE_OPTIONS

GRAPH, FEATURES = "graph", "x"
"""The names of the first two arguments of a model."""


class Uncaptured(Exception):
    """Signals that torch does not capture a model whole."""


@dataclass(frozen=True)
class Captured:
    """Describes what torch has captured of a model.

    Args:
        module: The graph.
        arguments: The inputs that are arguments of the inference, by their names there.
        given: The other inputs, such as parameters and sizes, with their values.
        result: The node of the result.
    """

    module: fx.GraphModule
    arguments: dict[fx.Node, str]
    given: dict[fx.Node, Any]
    result: fx.Node


class _Reached(Exception):
    """Ends a call before what was captured of it runs, so that the model is left as it was."""


def captured(
    model: Callable[..., Any],
    parts: Sequence[Any],
    arguments: Mapping[str, Array],
    device: torch.device,
    who: str,
) -> Captured:
    """Returns what torch captures of ``model(x, graph, **others)``.

    Arguments are described by tensors of their shapes that take no memory.

    Args:
        parts: The modules of the model.
        device: The device that the model runs on.
        who: The name of the model in messages.

    Raises:
        Uncaptured: torch does not capture the model whole.
        UnsupportedLayerError: It returns something else than one tensor with a row for each node.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes as long to import as all of torch

    found: list[fx.GraphModule] = []
    reached: list[Any] = []
    types: list[str] = []

    def note(kind: str) -> None:
        types.append(kind)

    note.__dict__["_dynamo_marked_constant"] = True  # so that torch calls it while it captures

    def keep(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        hooks = next((h for m in parts if is_message_passing(m) and (h := message_hooks(m))), None)
        if hooks is not None:
            raise UnsupportedCallError(f"{hooks} do not run where torch captures a layer")
        found.append(module)

        def run(*args: Any) -> Any:
            reached.extend(args)
            raise _Reached

        return run

    def forward(x: Tensor, graph: Tensor, others: dict[str, Tensor]) -> Any:
        used = torch.clone(x), torch.clone(graph)  # so that they are inputs in any case
        result = model(x, graph, **others)
        note("Tensor" if isinstance(result, Tensor) else type(result).__name__)
        return used, torch.clone(result) if isinstance(result, Tensor) else None

    stands = {name: _stand_in(array, 1 if name == GRAPH else 0, device) for name, array in arguments.items()}
    others = {name: stand for name, stand in stands.items() if name not in (FEATURES, GRAPH)}
    # torch keeps what it has captured with the code object
    own = FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)
    try:
        with CAPTURE_OPTIONS, _symbols(), torch.no_grad():
            torch.compile(own, backend=keep, fullgraph=True)(stands[FEATURES], stands[GRAPH], others)
    except _Reached:
        pass
    except TorchDynamoException as error:
        cause = getattr(error, "inner_exception", None) or error
        raise Uncaptured(str(cause).partition("\n")[0]) from error
    (module,) = found
    if types[-1] != "Tensor":
        raise UnsupportedLayerError("result", types[-1], "give steps that return one tensor", who)
    if any(node.target is torch.ops.dacergnn.layer.default for node in module.graph.nodes):
        raise Uncaptured("a compiled layer in it runs as one operation")
    names = {id(stand): name for name, stand in stands.items()}
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    values = dict(zip(inputs, reached, strict=True))
    result = [node for node in module.graph.nodes if node.target is torch.clone][-1]
    return Captured(
        module,
        {node: names[id(value)] for node, value in values.items() if id(value) in names},
        {node: value for node, value in values.items() if id(value) not in names},
        result,
    )


@contextmanager
def _symbols() -> Generator[None]:
    """Has torch use a symbol of its own for each size that may be another, and for no other size."""
    shapes: Any = torch.fx.experimental._config  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    sizes: Any = torch._dynamo.config  # pyright: ignore[reportPrivateUsage]
    with shapes.patch(use_duck_shape=False), sizes.patch(automatic_dynamic_shapes=False):
        yield


def _stand_in(array: Array, axis: int, device: torch.device) -> Tensor:
    """Returns a tensor of the shape of an array, whose size along an axis may be any other."""
    stand = torch.zeros((), dtype=element_type(array), device=device).expand(array.shape)
    dynamo: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage]
    dynamo.maybe_mark_dynamic(stand, axis)
    return stand
