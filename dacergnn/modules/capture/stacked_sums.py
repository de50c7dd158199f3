"""Adds up what a forward stacks along a new first axis and reduces at once, as layers over relations do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from dacergnn.modules.capture.uses import erase_unused

_SUMS = (torch.sum, torch.mean, "sum", "mean")


def add_stacked(module: fx.GraphModule) -> None:
    """Has a captured graph add tensors in place of sums, and of means, over a stack of them that nobody else reads."""
    changed = False
    for stack in module.graph.find_nodes(op="call_function", target=torch.stack):
        parts, (reduced, *others) = _stacked(stack), [*stack.users, None]
        if parts is None or reduced is None or others != [None] or not _is_reduction(reduced):
            continue
        with module.graph.inserting_before(reduced):
            total = parts[0]
            for part in parts[1:]:
                total = _called(torch.add, (total, part), reduced)
            if reduced.target in (torch.mean, "mean"):
                total = _called(torch.div, (total, len(parts)), reduced)
        reduced.replace_all_uses_with(total)
        erase_unused(reduced)
        changed = True
    if changed:
        module.recompile()


def _called(function: Any, args: tuple[Any, ...], like: fx.Node) -> fx.Node:
    """Returns a new node, of the shape and at the place of another one."""
    node = like.graph.call_function(function, args)
    node.meta = dict(like.meta)
    return node


def _stacked(node: fx.Node) -> list[fx.Node] | None:
    """Returns the tensors of numbers that a node stacks along a new first axis; None for other stacks."""
    options = dict(zip(("tensors", "dim"), node.args, strict=False)) | node.kwargs
    parts: Any = options.pop("tensors", ())
    examples = [part.meta.get("example_value") if isinstance(part, fx.Node) else None for part in parts]
    dtypes = {e.dtype if isinstance(e, Tensor) else None for e in examples}
    alike = dtypes in ({torch.float32}, {torch.float64})  # torch adds shorter numbers up in longer ones
    return [*parts] if alike and options.pop("dim", 0) == 0 and not options else None


def _is_reduction(node: fx.Node) -> bool:
    """Returns whether a node adds up the parts of its first argument, and nothing within them."""
    options = dict(zip(("input", "dim"), node.args, strict=False)) | node.kwargs
    return node.target in _SUMS and options.pop("dim", None) in (0, (0,), [0]) and {*options} <= {"input"}
