"""Compiles C++ or CUDA of a program to a shared library, through the build cache."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

import dace

from dacergnn.errors import BuildError, CacheError, UnsupportedMachineError
from dacergnn.native import cache as build_cache
from dacergnn.native import nvcc, precompiled
from dacergnn.native.processor import features, native_flag

# Buffers whose lifetimes do not overlap share memory, so `restrict` on the generated arguments would be wrong. Loops
# with conditions only vectorize if lanes without work may raise floating-point exceptions.
FLAGS = (
    "-std=c++20",
    "-O3",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-shared",
    "-D__restrict__=",
)
# Otherwise GCC merges loops over the columns of two rows, and then gathers values that all lanes of a row share. The
# cost model is that of -O3, for helpers, too.
GCC_FLAGS = ("-fno-loop-unroll-and-jam", "-fvect-cost-model=dynamic")
HELPER_FLAGS = ("-O2", "-ftree-vectorize")
"""Flags for code that all programs share, and whose first build on a machine a user waits for; clang has them, too."""
_MESSAGES = "messages.txt"
_FULL = "No space left on device"
INCLUDE_FOLDER = Path(__file__).parent.parent / "library_nodes" / "include"
"""The folder of the headers of generated code, beside the library nodes that generate it."""
log = logging.getLogger("dacergnn.build")


@cache
def compiler() -> tuple[str, str]:
    """Returns the command and the version line of the C++ compiler (``CXX``, else g++).

    Raises:
        UnsupportedMachineError: There is none, or the system is Windows.
        BuildError: It does not run.
    """
    if sys.platform == "win32":
        raise UnsupportedMachineError(
            "Kernels are not built on Windows; use Linux, or the Windows Subsystem for Linux (WSL 2)."
        )
    command = _find_compiler()
    version = _run([*command, "--version"]).stdout
    name = shlex.join(command)
    return name, version.splitlines()[0] if version else name


def check_compiler(architectures: tuple[int, ...] = ()) -> None:
    """Raises UnsupportedMachineError unless there is a compiler: nvcc, if code is for ``architectures`` of devices."""
    if architectures:
        nvcc.compiler()
    else:
        compiler()


@cache
def _made_for(command: str) -> str:
    """Returns the machine for which a compiler makes code, such as x86_64; "" if it does not tell."""
    return _run([*shlex.split(command), "-dumpmachine"]).stdout.partition("-")[0]


def compiler_command() -> list[str]:
    """Returns the command of `compiler` as a list of words."""
    return shlex.split(compiler()[0])


def _find_compiler() -> list[str]:
    """Returns the words of ``CXX``, perhaps with options or a prefix ("ccache g++").

    Raises:
        UnsupportedMachineError: There is no such compiler.
    """
    command = os.environ.get("CXX", "").strip() or "g++"
    words = [command] if shutil.which(command) else _words("CXX", command)  # a path may hold blanks
    path = shutil.which(words[0])
    if path is None:
        raise UnsupportedMachineError(
            f'The C++ compiler "{words[0]}" is not on PATH; install g++ (11 or newer), or set CXX to a C++ compiler.'
        )
    return [path, *words[1:]]


def _words(variable: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BuildError(f"{variable} is {text!r}, which is no command ({error}); close its quotes.") from None


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a compiler with English messages in any encoding; raises BuildError if it cannot be started."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise BuildError(
            f"The compiler {command[0]} cannot be run ({error.strerror}); set CXX to a C++ compiler, g++ 11 or newer."
        ) from error


def own_flags() -> tuple[str, ...]:
    """Returns our flags for the compiler and this machine's processor."""
    command, version = compiler()
    native = native_flag(_made_for(command))
    return (*FLAGS, *([native] if native else []), *([] if "clang" in version else GCC_FLAGS))


def _flags(options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns our flags, further ``options``, then those of ``CXXFLAGS``."""
    return (*own_flags(), *options, *_words("CXXFLAGS", os.environ.get("CXXFLAGS", "")))


def include_options() -> list[str]:
    """Returns the options that name the folders of the headers of generated code."""
    runtime = Path(dace.__file__).parent / "runtime" / "include"
    return [f"-I{folder}" for folder in (runtime, INCLUDE_FOLDER.parent, INCLUDE_FOLDER)]


@cache
def vectors() -> str:
    """Returns the width of the vectors that C++ kernels use on this processor, as the compiler reads ``vector.h``.

    Raises:
        BuildError: There is no compiler.
    """
    headers = INCLUDE_FOLDER / "dacergnn"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "vector.cpp"  # a copy, in case that CXXFLAGS include the header already
        source.write_text((headers / "vector.h").read_text())
        text = _run(
            [*compiler_command(), *_flags(), *include_options(), "-E", "-dD", f"-I{headers}", str(source)]
        ).stdout
    width = re.search(r"kVectorBytes = (\d+)", text)
    if width is None:
        return "unknown vectors"
    pairs = ", pairs of bfloat16" if re.search(r"^#define DACERGNN_PAIRS", text, re.MULTILINE) else ""
    return f"vectors of {width[1]} bytes{pairs}"


@cache
def _environment() -> str:
    """Returns what every build depends on besides its code: versions, not where compilers lie, and our headers."""
    return "\n".join([compiler()[1], dace.__version__, digest(INCLUDE_FOLDER)])


def digest(folder: Path) -> str:
    """Returns a hash of the contents of all files in a folder."""
    contents = hashlib.sha256()
    for header in sorted(p for p in folder.rglob("*") if p.is_file()):
        contents.update(header.read_bytes())
    return contents.hexdigest()


def build_all(programs: Sequence[tuple[str, str]], architectures: tuple[int, ...] = ()) -> list[Path]:
    """Runs `build` for several (name, code) at the same time."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(programs), os.cpu_count() or 1))) as workers:
        return list(workers.map(lambda program: build(program[0], program[1], architectures), programs))


def build(
    name: str,
    code: str,
    architectures: tuple[int, ...] = (),
    headers: Path | None = None,
    options: tuple[str, ...] = (),
) -> Path:
    """Returns the shared library for ``code``, from the cache if it is there; `messages` are those of the compiler.

    Args:
        architectures: Compute capabilities of the CUDA devices; none for C++ on this machine's processor.
        headers: A folder of headers besides those of the kernels.
        options: Further options of the compiler.

    Raises:
        BuildError: There is no compiler, or it rejects the code.
        CacheError: The cache folder cannot be written, its disk is full, or others may write to it.
    """
    if architectures:
        command, suffix, version = [*nvcc.command(architectures), *options], ".cu", nvcc.compiler()[1]
    else:
        command, suffix, version = [*compiler_command(), *_flags(options)], ".cpp", features()
    facts = [_environment(), version, repr(command[1:])]
    headers_key = _hash(facts)
    facts.append(code)
    if headers is not None:
        command = [*command, f"-I{headers}"]
        facts.append(digest(headers))
    key = _hash(facts)
    library = build_cache.lookup(key, name)
    if library is not None:
        return library
    if suffix == ".cpp" and precompiled.reads_kernels(code) and "clang" not in compiler()[1]:
        return build_cache.store(key, name, lambda folder: _compile_quickly(command, code, folder, headers_key))
    return build_cache.store(key, name, lambda folder: _compile(command, code, folder / f"program{suffix}"))


def _hash(facts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:20]


def messages(library: Path) -> str:
    """Returns what the compiler said of a library of `build`, for options that make it say something."""
    return library.with_name(_MESSAGES).read_text()


def _compile_quickly(command: list[str], code: str, folder: Path, headers_key: str) -> None:
    """Does the same as `_compile` with headers that are compiled already; without them where that fails."""
    header = INCLUDE_FOLDER.parent / precompiled.KERNELS

    def compile_header(made: Path) -> bool:
        language = ("-c", "-x", "c++-header", "-w")  # g++ warns of `#pragma once` in what it compiles ahead
        return _run([*command, *include_options(), *language, str(header), "-o", str(made)]).returncode == 0

    source = folder / "program.cpp"
    options = precompiled.options(headers_key, compile_header)
    if options:
        with suppress(BuildError):
            _compile([*command, *options], code, source)
            return
    _compile(command, code, source)
    if options:  # the headers were at fault, not the code
        precompiled.refuse(headers_key)


def _compile(command: list[str], code: str, source: Path) -> None:
    source.write_text(code)
    started = time.perf_counter()
    library = source.with_name(build_cache.LIBRARY)
    run = _run([*command, *include_options(), str(source), "-o", str(library)])
    name = compiler()[0] if source.suffix == ".cpp" else command[0]
    program = source.parent.name.partition(".")[0]
    if _FULL in run.stderr:
        raise CacheError(
            f"{name} found no space left, in the build cache {build_cache.cache_folder()} or for files of its own in "
            f"{tempfile.gettempdir()}; make room there, or set DACERGNN_CACHE_DIR and TMPDIR to folders elsewhere."
        )
    if run.returncode < 0:
        raise BuildError(
            f"{name} was ended by signal {-run.returncode} while it compiled {program}; if memory was short,"
            " close other programs and try again."
        )
    if run.returncode != 0:
        kept = build_cache.keep_file(f"failed{source.suffix}", code, f"the code of {program}")
        where = f"kept in {kept}" if kept is not None else "which could not be kept"
        errors = "\n".join(line for line in run.stderr.splitlines() if not line.startswith("ptxas info"))
        raise BuildError(f"{name} rejected generated code ({where}):\n{errors[:2000]}")
    if not library.is_file():
        raise BuildError(
            f"{name} reported no error, but made no library; set CXX to a C++ compiler (NVCC for CUDA), as g++ is."
        )
    if run.stderr:
        source.with_name(_MESSAGES).write_text(run.stderr)
    log.info("compiled %s in %.1f s", program, time.perf_counter() - started)
