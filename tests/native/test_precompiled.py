"""Headers of kernels that are compiled once, and builds that read them."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dacergnn.native import build as builder
from dacergnn.native import cache, precompiled

CODE = f'#include "{precompiled.KERNELS}"\nextern "C" long answer() {{ return dacergnn::sensible(42); }}\n'
COMPILED = "kernels.h.gch"


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds compiled headers alone."""
    folder = tmp_path_factory.mktemp("headers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DACERGNN_CACHE_DIR", str(folder))
        patch.setenv("CXXFLAGS", "-O0")
        shutil.rmtree(builder.build("tiny", CODE).parent)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, and no memory of headers that other tests compiled."""
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXXFLAGS", "-O0")
    precompiled._known.clear()
    yield tmp_path / "cache"
    precompiled._known.clear()


@pytest.fixture
def made(headers: Path, folder: Path) -> Path:
    """The compiled headers in the cache of a test."""
    shutil.copytree(headers, folder, dirs_exist_ok=True)
    (file,) = compiled(folder)
    return file


def build(number: int = 0) -> int:
    library = builder.build("tiny", f"{CODE}// {number}\n")
    return int(ctypes.CDLL(str(library)).answer())


def compiled(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*/{COMPILED}"))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of the compiler, as they are run."""
    seen: list[list[str]] = []
    run = builder._run

    def noted(command: list[str]) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        return run(command)

    monkeypatch.setattr(builder, "_run", noted)
    return seen


def test_builds_share_headers_that_are_compiled_once(folder: Path, commands: list[list[str]]) -> None:
    assert build(0) == build(1) == 42
    (made,) = compiled(folder)
    assert sum("c++-header" in command for command in commands) == 1
    reading = [command[command.index("-include") + 1] for command in commands if "-include" in command]
    assert reading == [str(made.with_suffix(""))] * 2
    precompiled._known.clear()  # as in another process
    assert build(2) == 42
    assert sum("c++-header" in command for command in commands) == 1


def test_the_compiler_reads_them(made: Path, tmp_path: Path, commands: list[list[str]]) -> None:
    build()
    reading = next(command for command in commands if "-include" in command)
    source = tmp_path / "source.cpp"
    source.write_text(CODE)
    options = [option for option in reading[:-3] if option != "-shared"]
    said = subprocess.run([*options, "-H", "-fsyntax-only", source], capture_output=True, text=True, check=True).stderr
    assert said.startswith(f"! {made}")  # one that is read in compiled form


def test_other_flags_have_other_headers(made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O0 -DOTHER")
    assert build() == 42
    assert len(compiled(folder)) == 2
    assert made in compiled(folder)


def test_the_latest_are_kept(made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "_KEPT", 1)
    build()
    monkeypatch.setenv("CXXFLAGS", "-O0 -DOTHER")
    build()
    (second,) = compiled(folder)
    assert second != made
    assert len(list(folder.glob("tiny_*"))) == 2


@pytest.mark.usefixtures("made")
def test_no_build_depends_on_where_they_lie(headers: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = builder.build("tiny", CODE)
    other = folder.with_name("other")
    shutil.copytree(headers, other)
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(other))
    second = builder.build("tiny", CODE)
    assert second != first
    assert second.parent.name == first.parent.name


def test_damaged_headers_are_compiled_again(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    made.write_bytes(made.read_bytes()[:10000])
    with caplog.at_level(logging.WARNING, "dacergnn"):
        assert build(1) == 42
    assert caplog.messages == [f"cache entry {made.parent} is damaged; building it again"]
    assert made.stat().st_size > 1e6


def test_headers_that_the_compiler_refuses(made: Path, commands: list[list[str]]) -> None:
    """This process has found them intact, and something has happened to them since."""
    build()
    made.write_bytes(made.read_bytes()[:10000])
    assert build(1) == build(2) == 42
    assert ["-include" in command for command in commands if "c++-header" not in command] == [True, True, False, False]


@pytest.mark.usefixtures("made")
def test_headers_that_are_gone_are_compiled_again(folder: Path) -> None:
    build()
    cache.clear()
    assert build(1) == 42
    assert len(compiled(folder)) == 1


def test_headers_that_cannot_be_compiled(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]
) -> None:
    script = tmp_path / "cxx"
    script.write_text('#!/bin/sh\ncase "$*" in *c++-header*) exit 1;; esac\nexec g++ "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    builder.compiler.cache_clear()
    try:
        assert build(0) == build(1) == 42
    finally:
        monkeypatch.delenv("CXX")
        builder.compiler.cache_clear()
    assert compiled(folder) == []
    assert sum("c++-header" in command for command in commands) == 1


def test_flags_that_include_a_header_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled headers have to be the first."""
    (tmp_path / "own.h").write_text("inline long own() { return 42; }\n")
    monkeypatch.setenv("CXXFLAGS", f"-O0 -include {tmp_path / 'own.h'}")
    assert build() == 42


def test_only_kernels_read_them(folder: Path) -> None:
    builder.build("tiny", 'extern "C" int answer() { return 42; }\n')
    plain = f'#include "include/dacergnn/plain.h"\n{CODE}'  # says what the headers are to be like
    assert ctypes.CDLL(str(builder.build("tiny", plain))).answer() == 42
    assert compiled(folder) == []


def test_processes_compile_them_at_the_same_time(folder: Path) -> None:
    script = f"from dacergnn.native.build import build\nprint(build('tiny', {CODE!r}))"
    running = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert len({process.communicate()[0] for process in running}) == 1
    assert [process.returncode for process in running] == [0, 0]
    assert len(compiled(folder)) == 1
    assert len(list(folder.iterdir())) == 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_does_not_wait_for_threads_of_its_parent(folder: Path) -> None:
    """Another thread of the parent compiles headers at the moment of the fork."""
    with precompiled._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that waits
            os._exit(0 if build() == 42 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(compiled(folder)) == 1
