"""Finds the lines of users' code that call torch while a call is recorded."""

from __future__ import annotations

import linecache
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch

from dacergnn.frontends.frontend import GRAPH_LIBRARIES
from dacergnn.library_nodes.place import Place

Caller = str
"""The frames that led to an instruction, as torch has noted them as text."""


def _names(folder: Path) -> list[str]:
    """Returns how names of files in a folder begin: code has them as they were imported, perhaps by a link."""
    return [f"{given}/" for given in dict.fromkeys((folder, folder.resolve()))]


_PACKAGE = _names(Path(__file__).parents[2])
LIBRARIES = [*_PACKAGE, *_names(Path(torch.__file__).parent)]
"""Folders with code of libraries, not of users."""
_GENERATED = ("_propagate", "_edge_updater")
"""Ends of the names of modules that PyG generates."""
_ENTRY = re.compile(r'File "(.+)", line (\d+), in (.+)\n(?: +(?!File ")\S.*\n)?( +[\^~]+)?')
"""A frame in a text of frames: file, line, function, and marks below the line."""


_INDENT = 4
"""The spaces before lines of source in such a text."""


class _Read(threading.local):
    frames: str | None = None


_read = _Read()


def reads(frames: str | None) -> None:
    """Notes that this thread runs what torch has captured of code; None if it runs code itself.

    Args:
        frames: The frames that led to the instruction, as torch has noted them.
    """
    _read.frames = frames


def _entry(frames: str) -> tuple[str, int, str, str]:
    """Returns file, line, function and marks of the innermost frame of a text that is of users."""
    entries = [(file, int(line), name, marks) for file, line, name, marks in _ENTRY.findall(frames)]
    made = tuple([f"{ending}_" for ending in _GENERATED])
    own = [e for e in entries if not e[0].startswith(tuple(LIBRARIES)) and not any(m in Path(e[0]).name for m in made)]
    users = [e for e in own if not any(f"/{name}/" in e[0] for name in GRAPH_LIBRARIES)]
    return (users or own or [("unknown place", 0, "", "")])[-1]


def _frames() -> Iterator[FrameType]:
    """Yields the frames of code outside of `LIBRARIES`, from the innermost."""
    frame, libraries = sys._getframe(1), tuple(LIBRARIES)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if not frame.f_code.co_filename.startswith(libraries):
            yield frame
        frame = frame.f_back


def caller_text() -> str:
    """Returns file, line and function of the user's code that called torch."""
    if _read.frames is not None:
        return text_of(_read.frames)
    for frame in _frames():
        return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}, in {frame.f_code.co_name}"
    return "unknown place"


def text_of(frames: str) -> str:
    """Returns file, line and function of the innermost frame of a text that is of users."""
    file, line, name, _ = _entry(frames)
    return f"{Path(file).name}, line {line}, in {name}"


def find_caller() -> Caller | None:
    """Returns what calls torch in the code of a layer, if torch has noted it."""
    return _read.frames


def place_of(caller: Caller) -> Place:
    """Returns the place of an instruction in its source."""
    file, number, _, marks = _entry(caller)
    source = linecache.getline(file, number)
    before = len(source) - len(source.lstrip()) + len(marks) - len(marks.lstrip()) - _INDENT
    return Place(file, number, before + 1 if marks else 1)


def failing_line(error: BaseException) -> str:
    """Returns the line of the user's code that an error comes from: file, number, function and source."""
    entries = [e for e in traceback.extract_tb(error.__traceback__) if not e.filename.startswith(tuple(LIBRARIES))]
    own = [e for e in entries if not any(f"/{name}/" in e.filename for name in GRAPH_LIBRARIES)] or entries
    if not own:
        return "the call"
    last = own[-1]
    return f"{Path(last.filename).name}, line {last.lineno}, in {last.name}: `{last.line}`"
