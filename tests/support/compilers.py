"""Compilers and other programs besides g++ that some tests need, and builds by another compiler."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dacergnn.native.build import compiler

_TOOLS = {
    "aarch64-linux-gnu-g++": "install g++-aarch64-linux-gnu",
    "qemu-aarch64": "install qemu-user",
    "qemu-x86_64": "install qemu-user",
    "clang++": "install clang and libomp-dev",
    "chromium": "install chromium",
}


def needs(tool: str) -> str:
    """The path of a tool. A test that has none is skipped, or fails if ``DACERGNN_REQUIRE_COMPILERS`` is set."""
    path = shutil.which(tool)
    if path is None:
        missing = f"{tool} is not on PATH; {_TOOLS[tool]}."
        if os.environ.get("DACERGNN_REQUIRE_COMPILERS"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


@contextmanager
def built_by(command: str) -> Iterator[None]:
    """Has programs compiled by another compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", needs(command))
        patch.setenv("CXXFLAGS", "-O1")
        compiler.cache_clear()
        try:
            yield
        finally:
            patch.undo()
            compiler.cache_clear()
