"""Finds the lines of users' code that call torch while a call is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

import torch

from dacergnn.library_nodes.place import Place

LIBRARIES = [f"{Path(__file__).resolve().parents[2]}/", f"{Path(torch.__file__).resolve().parent}/"]
"""Folders with code of libraries, not of users."""
_GRAPH_LIBRARIES = ("torch_geometric", "dgl")
_GENERATED = ("_propagate", "_edge_updater")
"""Ends of the names of modules that PyG generates."""


def frames(until: int = 0) -> Iterator[FrameType]:
    """Yields the frames of code outside of `LIBRARIES`, from the innermost to the one whose id is ``until``."""
    frame, libraries = sys._getframe(1), tuple(LIBRARIES)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and id(frame) != until:
        if not frame.f_code.co_filename.startswith(libraries):
            yield frame
        frame = frame.f_back


def caller_text() -> str:
    """Returns file, line and function of the user's code that called torch."""
    for frame in frames():
        return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}, in {frame.f_code.co_name}"
    return "unknown place"


def caller_place(until: int) -> Place | None:
    """Returns the place in the code of a layer that called torch; in a graph library only if nobody else called it.

    Args:
        until: The id of the frame that called the layer.
    """
    found: FrameType | None = None
    for frame in frames(until):
        name = str(frame.f_globals.get("__name__"))
        if name.endswith(_GENERATED):
            continue
        found = found or frame
        if name.partition(".")[0] not in _GRAPH_LIBRARIES:
            found = frame
            break
    if found is None:
        return None
    line, _, column, _ = next(islice(found.f_code.co_positions(), found.f_lasti // 2, None))
    return Place(found.f_code.co_filename, line or found.f_lineno, (column or 0) + 1)
