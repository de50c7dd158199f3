"""Describes this machine's processor, on which compiled code depends."""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from pathlib import Path

NATIVE_FLAGS = {
    "x86_64": "-march=native",
    "AMD64": "-march=native",
    "aarch64": "-mcpu=native",
    "arm64": "-mcpu=native",
}
"""The option by which a compiler uses all instructions of the processor that it runs on, by `platform.machine`."""
_INFO = Path("/proc/cpuinfo")
_FACTS = ("model name", "flags", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features", "isa")
_CAPABILITIES = (16, 26)  # AT_HWCAP, AT_HWCAP2


def native_flag(made_for: str) -> str | None:
    """Returns the option for this machine's processor, None where compilers have none.

    Args:
        made_for: The machine that the compiler makes code for; for another kind than this one, there is no option.
    """
    own = NATIVE_FLAGS.get(platform.machine())
    return own if NATIVE_FLAGS.get(made_for) == own else None


@cache
def features() -> str:
    """Returns the machine's name, and model and instructions of its processors: x86 and ARM name them differently.

    Sandboxes may hide them, or leave some out; so the instructions that the kernel tells every process are in it, too.
    """
    known = (line for line in info(_INFO) if line.partition(":")[0].strip() in _FACTS)
    # One line for all processors that are the same.
    return "\n".join([platform.machine(), _capabilities(), *dict.fromkeys(known)])


def info(path: Path) -> list[str]:
    """Returns the lines in which the kernel describes processors; nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _capabilities() -> str:
    """Returns the bits by which the kernel tells instructions to a process; "" where it does not."""
    tell = getattr(ctypes.CDLL(None), "getauxval", None)
    if tell is None:
        return ""
    tell.argtypes, tell.restype = [ctypes.c_ulong], ctypes.c_ulong
    return " ".join(f"{tell(kind):x}" for kind in _CAPABILITIES)
