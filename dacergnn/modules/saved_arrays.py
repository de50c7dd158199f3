"""Tells whether the arrays that a forward has saved are needed again after a backward."""

from __future__ import annotations

from typing import Any

import torch

RUN_AGAIN = (
    "Trying to backward through the graph a second time, which the saved arrays of a compiled layer do not outlive. "
    "Specify retain_graph=True if you need to backward through the graph again."
)

_autograd: Any = getattr(torch._C, "_autograd", None)  # pyright: ignore[reportPrivateUsage]
_keeps_graph = getattr(_autograd, "_get_current_graph_task_keep_graph", None)


def is_retained() -> bool:
    """Returns whether the running backward may run again: with ``retain_graph=True``, or if torch does not tell."""
    return _keeps_graph is None or bool(_keeps_graph())
