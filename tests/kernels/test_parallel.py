"""Memory of the threads of loops: calls fail without it, and take no more of it than rows with products need."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dacergnn.native.build import compiler_command, include_options, own_flags


def printed(folder: Path, source: str) -> str:
    """Returns what a program in C++ prints."""
    flags = [flag for flag in own_flags() if flag != "-shared"]
    command = [*compiler_command(), *flags, *include_options(), str(Path(__file__).parent / source)]
    subprocess.run([*command, "-o", str(folder / "program")], check=True)
    return subprocess.run([folder / "program"], capture_output=True, text=True, check=True).stdout


def test_a_thread_without_memory(tmp_path: Path) -> None:
    assert printed(tmp_path, "no_memory.cpp") == "no memory\n"


def test_sums_of_rows_take_little_scratch_memory(tmp_path: Path) -> None:
    """All sums of the two million rows would take 134 MB, and a block of them in each of two threads 34 MB."""
    few, many = map(int, printed(tmp_path, "scratch_of_rows.cpp").split())
    assert few < 100_000
    assert many < 10_000_000
