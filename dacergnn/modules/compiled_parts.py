"""Lists everything in a model that runs compiled programs, for reports."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from torch import nn

from dacergnn.config import Config
from dacergnn.modules.base import RunsPrograms
from dacergnn.modules.core import Core
from dacergnn.modules.graph_forward import compiled_forwards, original_forward
from dacergnn.modules.graph_layer import GraphLayer
from dacergnn.modules.graphs import GraphCache
from dacergnn.modules.layer import CompiledLayer, core_of

UNTOUCHED: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Models that `optimize` was called for; what it returned is compiled, and these are as they were."""
ANOTHER = "this is the model that was passed to optimize, and stays as it is; take the one that optimize returned"


class CompiledPart(NamedTuple):
    """Describes a module that runs programs: its name, the object that knows its last call, and notes for reports."""

    name: str
    part: RunsPrograms
    notes: list[str | None]


def compiled_parts(model: nn.Module) -> list[CompiledPart]:
    """Returns the compiled layers, forwards and own layers of a model, in the order of its modules.

    Layers that have not run by themselves are left out where a forward that holds them runs as a whole.
    """
    parts: list[CompiledPart] = []
    whole: set[nn.Module] = set()
    for name, module in model.named_modules():
        forwards = [r for r in compiled_forwards(module) if r.was_captured]
        if any(runner.runs_whole for runner in forwards):
            whole.update(module.modules())
        if isinstance(module, CompiledLayer) and module in whole and core_of(module).last_call is None:
            continue
        if isinstance(module, GraphLayer):
            parts.append(CompiledPart(name, module, module.notes))
            continue
        runners = [core_of(module).runner] if isinstance(module, CompiledLayer) else forwards
        parts += [CompiledPart(name, runner.core, runner.notes) for runner in runners]
        if not compiled_forwards(module) and original_forward(module) is not None:  # it has not been called yet
            parts.append(CompiledPart(name, Core(module, Config(), GraphCache(), "warn"), []))
    return parts
