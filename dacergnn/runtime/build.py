"""The compilers: C++ or CUDA of a program to a shared library, through the build cache."""

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
from dacergnn.runtime import nvcc

# Buffers whose lifetimes do not overlap share memory, which `restrict` on the generated arguments would deny. Loops
# with conditions vectorize only where floating-point exceptions may be raised for lanes that a condition leaves out.
FLAGS = (
    "-std=c++20",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-shared",
    "-D__restrict__=",
    "-w",
)
# GCC merges loops over the columns of two rows, and then gathers what every lane of a row shares.
GCC_FLAGS = ("-fno-loop-unroll-and-jam",)
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
    own = FLAGS if "clang" in compiler()[1] else (*FLAGS, *GCC_FLAGS)
    return (*own, *os.environ.get("CXXFLAGS", "").split())


@cache
def _processor() -> str:
    """What code for this machine's processor depends on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return "".join(next((x for x in lines if x.startswith(k)), "") for k in ("model name", "flags"))


@cache
def _environment() -> str:
    """What every build depends on besides its code: compiler, kind of machine, versions, our headers."""
    digest = hashlib.sha256()
    for header in sorted(p for p in INCLUDE_FOLDER.rglob("*") if p.is_file()):
        digest.update(header.read_bytes())
    return "\n".join([*compiler(), platform.machine(), dace.__version__, digest.hexdigest()])


def build_all(programs: Sequence[tuple[str, str]], architectures: tuple[int, ...] = ()) -> list[Path]:
    """`build` for several (name, code), at the same time."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(programs), os.cpu_count() or 1))) as workers:
        return list(workers.map(lambda program: build(program[0], program[1], architectures), programs))


def build(name: str, code: str, architectures: tuple[int, ...] = ()) -> Path:
    """The shared library for ``code``, from the cache where it is there.

    Args:
        architectures: Of the CUDA devices that the code is for; none for C++ on this machine's processor.

    Raises:
        BuildError: No compiler, or it rejects the code.
        CacheError: The cache folder cannot be written.
    """
    if architectures:
        command, suffix, version = nvcc.command(architectures), ".cu", nvcc.compiler()[1]
    else:
        command, suffix, version = [compiler()[0], *_flags()], ".cpp", _processor()
    key = hashlib.sha256(f"{_environment()}\n{version}\n{command}\n{code}".encode()).hexdigest()[:20]
    found = build_cache.lookup(key, name)
    if found is not None:
        return found
    return build_cache.store(key, name, lambda folder: _compile(command, code, folder / f"program{suffix}"))


def _compile(command: list[str], code: str, source: Path) -> None:
    source.write_text(code)
    runtime = Path(dace.__file__).parent / "runtime" / "include"
    includes = [f"-I{p}" for p in (runtime, INCLUDE_FOLDER.parent, INCLUDE_FOLDER)]
    started = time.perf_counter()
    run = subprocess.run(
        [*command, *includes, str(source), "-o", str(source.with_name(build_cache.LIBRARY))],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        kept = build_cache.cache_folder() / f"failed{source.suffix}"
        kept.write_text(code)
        raise BuildError(f"{command[0]} rejected generated code (kept in {kept}):\n{run.stderr[:2000]}")
    log.info("compiled %s in %.1f s", source.parent.name, time.perf_counter() - started)
