"""Hands functions of torch that are called with recorded values or end points of edges to the recording function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_record: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = []


def records(function: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """Makes ``function`` the one that records; its module imports the classes that dispatch to it."""
    _record[:] = [function]
    return function


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the result of ``func`` for arguments of which some are recorded."""
    return _record[0](func, args, kwargs)
