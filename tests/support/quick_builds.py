"""Flags for builds that are over soon: less optimized, with the headers of the kernels compiled once."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from dacergnn.library_nodes.cpu import INCLUDE_FOLDER
from dacergnn.runtime.build import FLAGS, compiler

FOLDER = Path(__file__).resolve().parent.parent.parent / ".cache" / "headers"


@cache
def quick(level: str = "-O0") -> str:
    """Value for CXXFLAGS. Values do not depend on how hard g++ tries; tests of kernels build them as users do."""
    path, version = compiler()
    headers = sorted(INCLUDE_FOLDER.rglob("*.h"))
    contents = "".join([version, level, *(h.read_text() for h in headers)])
    header = FOLDER / hashlib.sha256(contents.encode()).hexdigest()[:16] / "kernels.h"
    compiled = header.with_name("kernels.h.gch")
    if not compiled.exists():
        header.parent.mkdir(parents=True, exist_ok=True)
        # By the names that generated code has for them: others would be read again to see that they are the same.
        header.write_text("".join(f'#include "include/{h.relative_to(INCLUDE_FOLDER)}"\n' for h in headers))
        own = compiled.with_name(f"{os.getpid()}.gch")  # another process may be at it
        include = f"-I{INCLUDE_FOLDER.parent}"
        subprocess.run([path, *FLAGS, level, include, "-x", "c++-header", str(header), "-o", str(own)], check=True)
        own.replace(compiled)
    return f"{level} -include {header}"
