"""Tells torch what to capture in place of a library's functions where a stand-in is among the arguments.

Outside of a capture nothing of the library is replaced. All who call such a function are served, however they have
imported it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch


def substitute(function: Any, kind: type, instead: Callable[..., Any]) -> None:
    """Has torch capture ``instead`` where the first argument of a function is of a kind."""
    own = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return instead(*args, **kwargs) if isinstance(args[0] if args else None, kind) else own(*args, **kwargs)

    replace(function, chosen)


def replace(function: Any, instead: Callable[..., Any]) -> None:
    """Has torch capture another function in place of one."""
    torch.compiler.substitute_in_graph(function, skip_signature_check=True)(instead)
