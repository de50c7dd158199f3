"""Places in source code, which statements carry from where they were written to errors and to viewers."""

from __future__ import annotations

import ast
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dace.dtypes import DebugInfo

from dacergnn.errors import DacergnnError


@dataclass(frozen=True)
class Place:
    """Describes a place in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Returns the place that `str` wrote; None for any other text."""
        *file, line, column = text.rsplit(":", 2) if text.count(":") > 1 else ("", "")
        return cls(file[0], int(line), int(column)) if line.isdecimal() and column.isdecimal() else None

    @classmethod
    def of(cls, node: ast.AST) -> Place | None:
        """Returns the place of a syntax node; None if it was not read from a file."""
        file = getattr(node, "file", "")
        return cls(file, getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1) if file else None

    @classmethod
    def of_debuginfo(cls, info: Any) -> Place | None:
        """Returns the place that an element of an SDFG has; None if it has none."""
        if info is None or not info.filename or not info.start_line:
            return None
        return cls(info.filename, info.start_line, info.start_column + 1)

    @property
    def debuginfo(self) -> DebugInfo:
        """Returns the place as elements of SDFGs hold it."""
        return DebugInfo(self.line, self.column - 1, self.line, self.column - 1, self.file)


@contextmanager
def at(place: Place | None) -> Generator[None]:
    """Puts a place in front of the messages of errors that name none."""
    try:
        yield
    except DacergnnError as error:
        error.locate("" if place is None else str(place))
        raise
