"""Readers of the online store see only what writes have finished. Its memory does not grow, and may run short."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from dacergnn.native.build import compiler_command
from tests.deploy.online_store import build

HERE = Path(__file__).parent
SANITIZERS = {
    "addresses": ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "threads": ("-O1", "-g1", "-fsanitize=thread"),
}


def run(program: Path, argument: int) -> str:
    # The sanitizer of threads cannot place its memory where the kernel randomizes addresses by many bits.
    done = subprocess.run(
        ["setarch", platform.machine(), "-R", str(program), str(argument)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,  # a reader of freed memory may go round in circles
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sanitized(sanitizer: str, folder: Path) -> tuple[str, ...]:
    """The options for a sanitizer. A test is skipped if the compiler has none."""
    options = SANITIZERS[sanitizer]
    empty = folder / "empty.cpp"
    empty.write_text("int main() {}\n")
    command = [*compiler_command(), *options, str(empty), "-o", str(folder / "empty")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"The compiler has no libraries for the options {options}; install those of its sanitizers.")
    return options


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_snapshots_hold_what_each_write_keeps(sanitizer: str, tmp_path: Path) -> None:
    """Takes a quarter of a minute, as g++ is slow with sanitizers; so does the next one."""
    run(build(HERE / "store_stress.cpp", tmp_path / "stress", *sanitized(sanitizer, tmp_path)), 2)


def test_writes_without_memory_leave_the_graph_as_it_is(tmp_path: Path) -> None:
    options = (*sanitized("addresses", tmp_path), "-Wl,--wrap=malloc", "-Wno-mismatched-new-delete")
    finished, failed = map(int, run(build(HERE / "store_faults.cpp", tmp_path / "faults", *options), 1800).split())
    assert finished > 500
    assert failed > 500


def test_memory_stays_the_same(tmp_path: Path) -> None:
    program = build(HERE / "store_memory.cpp", tmp_path / "memory", "-O1")
    resident, used, allocated = map(int, run(program, 100_000).split())
    assert resident < 2**20
    assert used < 2**16
    assert allocated == 0
