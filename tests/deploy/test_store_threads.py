"""Readers of the online store see only what writes have finished, and its memory does not grow."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from dacergnn.native.build import compiler_command
from tests.deploy.online_store import build

HERE = Path(__file__).parent
SANITIZERS = {
    "none": ("-O2",),
    "addresses": ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "threads": ("-O1", "-g", "-fsanitize=thread"),
}


def run(program: Path, argument: int) -> str:
    # The sanitizer of threads cannot place its memory where the kernel randomizes addresses by many bits.
    done = subprocess.run(
        ["setarch", platform.machine(), "-R", str(program), str(argument)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_snapshots_hold_what_each_write_keeps(sanitizer: str, tmp_path: Path) -> None:
    options = SANITIZERS[sanitizer]
    empty = tmp_path / "empty.cpp"
    empty.write_text("int main() {}\n")
    command = [*compiler_command(), *options, str(empty), "-o", str(tmp_path / "empty")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"The compiler has no libraries for {options[-1]}; install those of its sanitizers.")
    run(build(HERE / "store_stress.cpp", tmp_path / "stress", *options), 3)


def test_memory_stays_the_same(tmp_path: Path) -> None:
    program = build(HERE / "store_memory.cpp", tmp_path / "memory", "-O2")
    resident, used, allocated = map(int, run(program, 1_000_000).split())
    assert resident < 2**20
    assert used < 2**16
    assert allocated == 0
