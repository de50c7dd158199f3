"""Kinds of processors that C libraries are made for: options of the compiler, and checks when a library is loaded."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from dacergnn.errors import BuildError, DacergnnError, UnsupportedMachineError
from dacergnn.native.build import FLAGS, GCC_FLAGS, compiler, compiler_command, own_flags

_LOCAL = "-fno-gnu-unique"
"""Statics of templates are ordinary symbols, which can be made local to one kind of processor."""

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
"""Levels of x86-64 processors; each has all instructions of those before."""
KINDS = ("native", *LEVELS, "aarch64")
SECTIONS = ("-fvisibility=hidden", "-fvisibility-inlines-hidden", "-ffunction-sections", "-fdata-sections")
"""Options of compilers for libraries that hold and show only what they have to."""
LINK_OPTIONS = ("-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-Wl,-s")
"""Options of linkers for them."""
_CHECKED = (
    "avx", "avx2", "fma", "bmi", "bmi2", "f16c", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl",
    "avx512vnni", "avx512bf16", "avx512fp16", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512ifma",
    "avx512vpopcntdq", "avxvnni", "gfni", "vaes", "vpclmulqdq", "sse4a",
)  # fmt: skip
_UNKNOWN_TO_GCC = ("avx512fp16", "avxvnni")


@dataclass(frozen=True)
class Processor:
    """Describes a kind of processor.

    Args:
        command: The command of its compiler.
        condition: Whether a processor is of this kind, in C++.
        user: Options of the user (``CXXFLAGS``) for the kernels.
    """

    name: str
    command: tuple[str, ...]
    condition: str
    user: tuple[str, ...] = ()

    @property
    def plain(self) -> tuple[str, ...]:
        """Returns options for code that runs on every processor of the machine, such as the choice of kernels."""
        is_x86 = self.name in LEVELS or (self.name == "native" and platform.machine() in ("x86_64", "AMD64"))
        return ("-march=x86-64", "-mtune=generic") if is_x86 else ()

    def link_command(self, library: str) -> list[str]:
        """Returns the command that joins objects to a library of this name."""
        return [self.command[0], "-shared", "-fopenmp", *LINK_OPTIONS, f"-Wl,-soname,{library}"]

    @property
    def suffix(self) -> str:
        """Returns the name as a part of names in C++."""
        return re.sub(r"\W", "_", self.name)

    @property
    def tools(self) -> str:
        """Returns the prefix of the tools beside the compiler."""
        return "aarch64-linux-gnu-" if "aarch64" in self.command[0] else ""


def processor(name: str) -> Processor:
    """Returns a kind of processor by its name.

    Raises:
        DacergnnError: There is no such kind.
        UnsupportedMachineError: There is no compiler for it.
    """
    if name not in KINDS:
        raise DacergnnError(f"target_cpu={name!r} is not one of {', '.join(KINDS)}.")
    user = tuple(shlex.split(os.environ.get("CXXFLAGS", "")))
    if name == "aarch64":
        return Processor(name, (*_cross_compiler(), *FLAGS, *GCC_FLAGS, _LOCAL), "true")
    is_clang = "clang" in compiler()[1]
    own = () if is_clang else (_LOCAL,)
    if name == "native":
        command = (*compiler_command(), *own_flags(), *own)
        return Processor(name, command, _condition((*command, *user)), user)
    gcc = () if is_clang else GCC_FLAGS
    command = (*compiler_command(), *FLAGS, f"-march={name}", "-mtune=generic", *gcc, *own)
    return Processor(name, command, f'__builtin_cpu_supports("{name}")')


def processors(names: Sequence[str]) -> list[Processor]:
    """Returns kinds of processors, the one with the most instructions first.

    Raises:
        DacergnnError: They do not go together in one library.
    """
    if not names or len(set(names)) != len(names):
        raise DacergnnError(f"target_cpu={names!r}: name each kind of processor once.")
    if len(names) > 1 and not set(names) <= set(LEVELS):
        raise DacergnnError(f"target_cpu={names!r}: one library holds kernels for several of {', '.join(LEVELS)}.")
    return sorted(map(processor, names), key=lambda kind: KINDS.index(kind.name), reverse=True)


def run_tool(command: Sequence[str]) -> None:
    """Runs a compiler or a linker; raises BuildError with what it says if it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run ({error.strerror}); install g++ and binutils.") from error
    if run.returncode != 0:
        raise BuildError(f"{command[0]} failed on the code of an exported model:\n{run.stderr[:2000]}")


def _cross_compiler() -> tuple[str, ...]:
    name = "aarch64-linux-gnu-g++"
    path = shutil.which(name)
    if path is None:
        raise UnsupportedMachineError(f"{name} is not on PATH; install the package g++-aarch64-linux-gnu.")
    return (path,)


def _condition(command: Sequence[str]) -> str:
    """Returns whether a processor has all instructions that a compiler uses with these options, in C++."""
    run = subprocess.run(
        [*command, "-dM", "-E", "-x", "c++", "-"], input="", capture_output=True, text=True, check=False
    )
    macros = set(re.findall(r"#define __(\w+)__ 1\b", run.stdout))
    used = [name for name in _CHECKED if name.upper() in macros and name not in _UNKNOWN_TO_GCC]
    return " && ".join(f'__builtin_cpu_supports("{name}")' for name in used) or "true"
