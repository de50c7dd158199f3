"""Finds the lines of users' code that call torch while a call is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import torch

from dacergnn.library_nodes.place import Place

Caller = tuple[CodeType, int]
"""An instruction: code, and its position there."""
LIBRARIES = [
    f"{folder}/"
    for given in (Path(__file__).parents[2], Path(torch.__file__).parent)
    for folder in dict.fromkeys((given, given.resolve()))  # code has names as they were imported, perhaps by a link
]
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


def find_caller(until: int) -> Caller | None:
    """Returns what calls torch in the code of a layer; in that of a graph library only if nobody else called it.

    Args:
        until: The id of the frame that called the layer.
    """
    found: Caller | None = None
    for frame in frames(until):
        name = str(frame.f_globals.get("__name__"))
        if name.endswith(_GENERATED):
            continue
        if name.partition(".")[0] not in _GRAPH_LIBRARIES:
            return frame.f_code, frame.f_lasti
        found = found or (frame.f_code, frame.f_lasti)
    return found


def place_of(caller: Caller) -> Place:
    """Returns the place of an instruction in its source."""
    code, instruction = caller
    line, _, column, _ = next(islice(code.co_positions(), instruction // 2, None))
    return Place(code.co_filename, line or code.co_firstlineno, (column or 0) + 1)
