"""Threads of loops that find no memory make the call fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dacergnn.native.build import compiler_command, include_options, own_flags


def test_a_thread_without_memory(tmp_path: Path) -> None:
    program = tmp_path / "no_memory"
    flags = [flag for flag in own_flags() if flag != "-shared"]
    source = Path(__file__).parent / "no_memory.cpp"
    subprocess.run([*compiler_command(), *flags, *include_options(), str(source), "-o", str(program)], check=True)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "no memory\n"
