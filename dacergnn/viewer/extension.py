"""Writes SDFGs as DaCe's extension for VS Code reads them, and as DaCe reads them, too.

The extension is older than DaCe 2. It knows a file by the name in each node, where DaCe 2 has a table of names at the
root. It takes a size such as ``16*NS`` as an expression of the symbols of the SDFG, where DaCe 2 adds their types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dace

_FORMAT = "2.0.0a3"
"""The last version of DaCe whose files write sizes without types; by it, DaCe knows how to read them."""
_TYPED = re.compile(r"symbol\(\$(\w+), [^()]*\)")


def write_sdfg(sdfg: dace.SDFG, path: Path) -> None:
    """Writes an SDFG; when DaCe has read it and writes it again, types come from the SDFG's own table of symbols."""
    content: dict[str, Any] = sdfg.to_json(hash=True)
    files = [str(Path(name).absolute()) for name in content.pop("source_files")]
    converted = {**_converted(content, files), "dace_version": _FORMAT}
    path.write_text(dace.serialize.dumps(converted), encoding="utf-8")


def _converted(value: Any, files: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _TYPED.sub(r"\1", value)
    if isinstance(value, list):
        return [_converted(item, files) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "DebugInfo":
        return _place(value, files)
    return {key: _converted(item, files) for key, item in value.items()}


def _place(info: dict[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Returns a place with all fields, since the extension has no defaults for them."""
    if "file_index" not in info:
        return info
    own = {key: value for key, value in info.items() if key != "file_index"}
    defaults = {"start_column": 0, "end_line": info["start_line"], "end_column": 0}
    return {**defaults, **own, "filename": files[info["file_index"]]}
