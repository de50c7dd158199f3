"""Many requests to an exported model from several threads, good and bad ones, and what happens without memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dacergnn.deploy.library import write_sources
from dacergnn.deploy.linking import include_options
from dacergnn.native.build import compiler_command, own_flags
from tests.deploy.conftest import Deployed

FOLDER = Path(__file__).parent
REQUESTS = 100_000
ADDRESS, THREAD = "address,undefined", "thread"


@pytest.fixture(scope="module")
def sources(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_sources(deployed.model, tmp_path_factory.mktemp("sources"), example=deployed.example)


def sanitized(program: str, sources: list[Path], sanitizer: str, folder: Path) -> Path:
    """A program and C++ of a library, built with a sanitizer; that for races does not know the locks of OpenMP."""
    flags = [flag for flag in own_flags() if flag not in ("-O3", "-shared", "-fopenmp")]
    flags += ["-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread"]
    flags += ["-fopenmp"] if sanitizer == ADDRESS else []
    folders = [f"-I{FOLDER}", *[f"-I{file.parent}" for file in sources[:1]], *include_options()]
    made = folder / program
    objects: list[str] = []
    for source in [*sources, FOLDER / f"{program}.cpp"]:
        own = (source if source in sources else made).with_suffix(f".{sanitizer.partition(',')[0]}.o")
        if not own.exists():
            subprocess.run([*compiler_command(), *flags, *folders, "-c", str(source), "-o", str(own)], check=True)
        objects.append(str(own))
    subprocess.run([*compiler_command(), *flags, *objects, "-o", str(made)], check=True)
    return made


def output_of(*command: str | Path) -> str:
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, (run.returncode, run.stdout[-2000:], run.stderr[-4000:])
    return run.stdout


def test_requests_from_many_threads(deployed: Deployed, tmp_path: Path) -> None:
    command = [*compiler_command(), "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    program = tmp_path / "stress"
    subprocess.run([*command, str(FOLDER / "stress.cpp"), "-o", str(program), *deployed.link()], check=True)
    assert f"{REQUESTS} requests" in output_of(program, str(REQUESTS), "-1")


@pytest.mark.check
def test_addresses_and_undefined_behaviour(sources: list[Path], tmp_path: Path) -> None:
    output_of(sanitized("stress", sources, ADDRESS, tmp_path), str(REQUESTS // 5), "-1")


@pytest.mark.check
def test_races_between_requests(sources: list[Path], tmp_path: Path) -> None:
    (tmp_path / "empty.cpp").write_text("int main() {}\n")
    empty = [str(tmp_path / "empty.cpp"), "-o", str(tmp_path / "empty")]
    built = subprocess.run([*compiler_command(), "-fsanitize=thread", *empty], check=False).returncode == 0
    if not built or subprocess.run([tmp_path / "empty"], check=False).returncode != 0:
        pytest.skip("ThreadSanitizer does not work on this machine, perhaps as addresses are too random.")
    output_of(sanitized("stress", sources, THREAD, tmp_path), str(REQUESTS // 10), "1")


def test_every_allocation_that_fails_is_an_error(sources: list[Path], tmp_path: Path) -> None:
    assert "of calls" in output_of(sanitized("no_memory", sources, ADDRESS, tmp_path))


def test_sizes_that_nothing_can_have(tmp_path: Path) -> None:
    output_of(sanitized("limits", [], ADDRESS, tmp_path))
