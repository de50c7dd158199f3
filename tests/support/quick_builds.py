"""Flags for builds that are over soon: less optimized, with the headers of the kernels compiled once."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from dacergnn.native.build import INCLUDE_FOLDER, compiler, own_flags

FOLDER = Path(__file__).resolve().parent.parent.parent / ".cache" / "headers"


@cache
def quick(level: str = "-O0") -> str:
    """Value for CXXFLAGS. Values do not depend on how hard g++ tries; tests of kernels build them as users do."""
    headers = [h for h in sorted(INCLUDE_FOLDER.rglob("*.h")) if h.name != "plain.h"]  # which turns vectors off
    return f"{level} -include {precompiled(headers, [*own_flags(), level])}"


def precompiled(headers: Sequence[Path], flags: Sequence[str], *folders: Path) -> Path:
    """A header that includes others, compiled with these flags: what ``-include`` takes with the same ones.

    It is compiled anew when a header of the kernels, or in ``folders``, has changed.
    """
    path, version = compiler()
    read = sorted(file for folder in (INCLUDE_FOLDER, *folders) for file in folder.rglob("*") if file.is_file())
    contents = "\n".join([version, *flags, *map(str, headers), *(file.read_text() for file in read)])
    header = FOLDER / hashlib.sha256(contents.encode()).hexdigest()[:16] / "kernels.h"
    compiled = header.with_name("kernels.h.gch")
    if not compiled.exists():
        header.parent.mkdir(parents=True, exist_ok=True)
        # By the names that generated code has for them: others would be read again to see that they are the same.
        header.write_text("".join(f'#include "include/{h.relative_to(INCLUDE_FOLDER)}"\n' for h in headers))
        own = compiled.with_name(f"{os.getpid()}.gch")  # another process may be at it
        command = [path, *flags, f"-I{INCLUDE_FOLDER.parent}", "-x", "c++-header", str(header), "-o", str(own)]
        subprocess.run(command, check=True)
        own.replace(compiled)
    return header
