"""Defines `warmup`, which makes all builds of a model before its first step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dacergnn.errors import DacergnnError
from dacergnn.modules.compiled_parts import ANOTHER, UNTOUCHED, compiled_parts
from dacergnn.modules.contents import contents_kept
from dacergnn.modules.early_builds import ahead
from dacergnn.modules.graph_forward import compiled_forwards


def warmup(model: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Compiles all that calls like ``model(*args, **kwargs)`` need, several layers at a time.

    The Python of the model runs, with zeros in place of the results of layers that are not compiled yet: as the model
    stands, with gradients of what requires them, and once for inference (``eval()`` and ``torch.no_grad()``). Buffers,
    attributes, random states and modes of training are as before afterwards; no gradient is computed.

    Args:
        model: A module that `optimize` returned, one that holds layers of `dacergnn.modules`, or a function that
            `compile` made, or a method of such a module.
        args: Arguments of a call, with the shapes, types and devices of those to come; graphs may be others then.

    Raises:
        DacergnnError: The model is no module and no method of one, or is the one that was passed to `optimize`, or a
            layer refuses the arguments.
        BuildError: The compiler failed.
    """
    module = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    if not isinstance(module, nn.Module):  # whose buffers would be lost, and whose calls be remembered
        raise DacergnnError(f"model is a {type(model).__name__}; pass a module that optimize returned, or its method.")
    if module in UNTOUCHED and not compiled_parts(module):
        raise DacergnnError(f"{type(module).__name__}: {ANOTHER}.")
    inputs = (*tree_leaves((args, kwargs)), *module.parameters())
    devices = {t.device.index for t in inputs if isinstance(t, Tensor) and t.is_cuda}
    try:
        with torch.random.fork_rng([*devices]), contents_kept(module), ahead():
            model(*args, **kwargs)
            with _evaluating(module), torch.no_grad():
                model(*args, **kwargs)
    finally:
        for part in compiled_parts(module):  # what was seen of their calls are zeros
            part.part.forget_calls()
        for inner in module.modules():
            for runner in compiled_forwards(inner):
                runner.forget_calls()


@contextmanager
def _evaluating(module: nn.Module) -> Generator[None]:
    modes = [(part, part.training) for part in module.modules()]
    for part, _ in modes:  # not by eval(), which some classes override to change parameters
        part.training = False
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
