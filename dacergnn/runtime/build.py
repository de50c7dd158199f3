"""The compiler: C++ of a program to a shared library, through the build cache."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import dace

from dacergnn.errors import BuildError
from dacergnn.library_nodes.cpu import INCLUDE_FOLDER
from dacergnn.runtime import cache as build_cache

# Buffers whose lifetimes do not overlap share memory, which `restrict` on the generated arguments would deny.
FLAGS = (
    "-std=c++20",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-D__restrict__=",
    "-w",
)
log = logging.getLogger("dacergnn.build")


@cache
def compiler() -> tuple[str, str]:
    """Path and version line of the C++ compiler (``CXX``, else g++).

    Raises:
        BuildError: There is none.
    """
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise BuildError(
            f'The C++ compiler "{name}" is not on PATH; install g++ (11 or newer), or set CXX to a C++ compiler.'
        )
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return path, version.splitlines()[0] if version else path


def _flags() -> tuple[str, ...]:
    """Our flags, then what ``CXXFLAGS`` adds."""
    return (*FLAGS, *os.environ.get("CXXFLAGS", "").split())


@cache
def _environment() -> str:
    """What a build depends on besides its code: compiler, flags, processor, versions, our headers."""
    processor = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        processor += "".join(next((x for x in lines if x.startswith(k)), "") for k in ("model name", "flags"))
    digest = hashlib.sha256()
    for header in sorted(INCLUDE_FOLDER.rglob("*.h")):
        digest.update(header.read_bytes())
    return "\n".join([*compiler(), processor, dace.__version__, digest.hexdigest()])


def build_all(programs: Sequence[tuple[str, str]]) -> list[Path]:
    """`build` for several (name, code), at the same time."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(programs), os.cpu_count() or 1))) as workers:
        return list(workers.map(lambda program: build(*program), programs))


def build(name: str, code: str) -> Path:
    """The shared library for ``code``, from the cache where it is there.

    Raises:
        BuildError: No compiler, or it rejects the code.
        CacheError: The cache folder cannot be written.
    """
    key = hashlib.sha256(f"{_environment()}\n{_flags()}\n{code}".encode()).hexdigest()[:20]
    found = build_cache.lookup(key, name)
    return found if found is not None else build_cache.store(key, name, lambda folder: _compile(code, folder))


def _compile(code: str, folder: Path) -> None:
    source, library = folder / "program.cpp", folder / build_cache.LIBRARY
    source.write_text(code)
    runtime = Path(dace.__file__).parent / "runtime" / "include"
    includes = [f"-I{p}" for p in (runtime, INCLUDE_FOLDER.parent, INCLUDE_FOLDER)]
    path, _ = compiler()
    started = time.perf_counter()
    run = subprocess.run(
        [path, *_flags(), *includes, str(source), "-o", str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        kept = build_cache.cache_folder() / "failed.cpp"
        kept.write_text(code)
        raise BuildError(f"{path} rejected generated code (kept in {kept}):\n{run.stderr[:2000]}")
    log.info("compiled %s in %.1f s", folder.name, time.perf_counter() - started)
