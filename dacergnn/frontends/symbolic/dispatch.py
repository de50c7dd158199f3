"""Where torch hands over a function that was called with a recorded value or an end point of edges."""

from __future__ import annotations

from typing import Any


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``func`` returns for arguments of which some are recorded."""
    from dacergnn.frontends.symbolic.record import record  # it needs the classes that call this

    return record(func, args, kwargs)
