"""The places of operations in a model, for errors."""

from __future__ import annotations

import re
from typing import Any

from torch import fx

from dacergnn.errors import UnsupportedCallError

_OWN = re.compile(r"File \"(?P<file>[^\"]+)\", line (?P<line>\d+), in (?P<function>\w+)")


def label_of(node: fx.Node) -> str:
    """Returns the module that an operation belongs to, such as "convs.0 (HGTConv)"; "the model" outside of modules."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    named = [entry for entry in stack.values() if entry[0]]
    if not named:
        return "the model"
    path, kind = named[-1]
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"{_plain(path)} ({kind.rpartition('.')[2]})"


def _plain(path: str) -> str:
    return re.sub(r"slice\(None, None, None\)|L\['self'\]\.?", "", path).replace("_modules.", "") or "the model"


def refusal(node: fx.Node) -> UnsupportedCallError:
    """Returns the error for an operation that has no form in a C library."""
    trace: str = node.meta.get("stack_trace") or ""
    places = _OWN.findall(trace)
    where = f" at {places[-1][0]}:{places[-1][1]}" if places else ""
    return UnsupportedCallError(
        f"{label_of(node)}: {node.target} of {_shape(node)}{where} has no form in a C library. Use a layer of "
        "docs/deployment.md in its place, or export the program with torch.export."
    )


def _shape(node: fx.Node) -> str:
    values: list[Any] = [n.meta.get("val") for n in node.all_input_nodes]
    shapes = [str(tuple(value.shape)) for value in values if hasattr(value, "shape")]
    return ", ".join(shapes) or "no tensors"
