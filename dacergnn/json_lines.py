"""Reads and writes records: files of JSON lines, to which a run appends what it has measured."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dacergnn.errors import DacergnnError

Row = dict[str, Any]
_COMPRESSED = ".xz"


def load(path: Path) -> list[Row]:
    """Returns the rows of a file, which xz may have compressed; an incomplete last row is left out.

    Raises:
        DacergnnError: There is no such file, or one of its lines is no row.
    """
    try:
        raw = lzma.decompress(path.read_bytes()) if path.suffix == _COMPRESSED else path.read_bytes()
    except (OSError, lzma.LZMAError) as error:
        raise DacergnnError(f"{path}: {error}; name a file of records.") from error
    whole, _, _ = raw.decode(errors="replace").rpartition("\n")
    rows: list[Row] = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise DacergnnError(f"{path}, line {number} is no record; remove it.")
        rows.append(row)  # pyright: ignore[reportUnknownArgumentType]
    return rows


class Writer:
    """Appends rows to a file that is not compressed; an incomplete last line is removed first."""

    def __init__(self, path: Path) -> None:
        if path.suffix == _COMPRESSED:
            raise DacergnnError(f"{path}: nothing can be appended to a compressed file; decompress it with xz -d.")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        self._path = path

    def write(self, rows: Iterable[Row]) -> None:
        """Appends all rows at once."""
        with self._path.open("a") as file:
            file.write("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())
