"""Where torch hands over a function that was called with a recorded value or an end point of edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_record: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = []


def records(function: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """Make ``function`` the one that records; it needs the classes that dispatch to it."""
    _record[:] = [function]
    return function


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns what ``func`` returns for arguments of which some are recorded."""
    return _record[0](func, args, kwargs)
