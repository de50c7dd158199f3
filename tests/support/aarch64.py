"""A target whose programs are compiled for ARM, and run by an emulator of its instructions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.standalone import Standalone
from dacergnn.library_nodes import register
from dacergnn.native.build import FLAGS, GCC_FLAGS
from dacergnn.target import TARGETS, find
from tests.support.compilers import needs

NAME = "aarch64"


class EmulatedARM(Standalone):
    """Runs programs on an emulated processor with NEON."""

    compiler = (
        "aarch64-linux-gnu-g++",
        *(flag for flag in (*FLAGS, *GCC_FLAGS) if flag != "-shared"),
        "-O1",
        "-static",
    )
    launcher = ("qemu-aarch64",)


@contextmanager
def emulated_arm() -> Iterator[str]:
    """Registers the target, and gives its name."""
    needs("aarch64-linux-gnu-g++")
    needs("qemu-aarch64")
    register(replace(find("cpu"), name=NAME, executable=f"{__name__}:EmulatedARM", tunes=False))
    try:
        yield NAME
    finally:
        del TARGETS[NAME]
