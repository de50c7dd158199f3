"""Describes this machine's processor, on which compiled code depends."""

from __future__ import annotations

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


def native_flag(made_for: str) -> str | None:
    """Returns the option for this machine's processor, None where compilers have none.

    Args:
        made_for: The machine that the compiler makes code for; for another kind than this one, there is no option.
    """
    own = NATIVE_FLAGS.get(platform.machine())
    return own if NATIVE_FLAGS.get(made_for) == own else None


@cache
def features() -> str:
    """Returns the machine's name, and model and instructions of its processors: x86 and ARM name them differently."""
    if not _INFO.exists():
        return f"{platform.machine()}\n{platform.processor()}"
    known = (line for line in _INFO.read_text().splitlines() if line.partition(":")[0].strip() in _FACTS)
    return "\n".join([platform.machine(), *dict.fromkeys(known)])  # one line for all processors that are the same
