"""The build cache and the compiler behind it."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dacergnn.errors import BuildError, CacheError
from dacergnn.native import build as builder
from dacergnn.native import cache

CODE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, and no memory of compilers that other tests found."""
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    builder.compiler.cache_clear()
    builder._environment.cache_clear()


def answer(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).answer())


def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("the compiler ran")

    monkeypatch.setattr(builder, "_compile", refuse)


def test_second_build_is_a_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    first = builder.build("tiny", CODE)
    assert answer(first) == 42
    forbid_compiling(monkeypatch)
    assert builder.build("tiny", CODE) == first
    with pytest.raises(AssertionError, match="the compiler ran"):
        builder.build("tiny", CODE + "// other\n")


def test_flags_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    first = builder.build("tiny", CODE)
    monkeypatch.setenv("CXXFLAGS", "-DOTHER")
    assert builder.build("tiny", CODE) != first


def test_headers_are_part_of_the_key(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "number.h").write_text(f"constexpr int kNumber = {number};\n")
        code = '#include "number.h"\nextern "C" int answer() { return kNumber; }\n'
        assert answer(builder.build("tiny", code, headers=tmp_path)) == number


def truncate(entry: Path) -> None:
    (entry / cache.LIBRARY).write_bytes((entry / cache.LIBRARY).read_bytes()[:100])


def lose_library(entry: Path) -> None:
    (entry / cache.LIBRARY).unlink()


def lose_record(entry: Path) -> None:
    (entry / "entry.json").unlink()


def spoil_record(entry: Path) -> None:
    (entry / "entry.json").write_text("[")


def other_record(entry: Path) -> None:
    (entry / "entry.json").write_text("[1]")


@pytest.mark.parametrize("damage", [truncate, lose_library, lose_record, spoil_record, other_record])
def test_damaged_entry_is_built_again(damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture) -> None:
    library = builder.build("tiny", CODE)
    damage(library.parent)
    with caplog.at_level(logging.WARNING, "dacergnn"):
        again = builder.build("tiny", CODE)
    assert again == library
    assert answer(again) == 42
    assert caplog.messages == [f"cache entry {library.parent} is damaged; building it again"]


def test_entry_of_another_process_wins(folder: Path) -> None:
    """Both processes miss; the slower one finds the entry when it publishes its own."""

    def build_fast(target: Path) -> None:
        (target / cache.LIBRARY).write_bytes(b"fast")

    def build_slowly(target: Path) -> None:
        (target / cache.LIBRARY).write_bytes(b"slow")
        cache.store("k", "tiny", build_fast)

    library = cache.store("k", "tiny", build_slowly)
    assert library.read_bytes() == b"fast"
    assert [p.name for p in folder.iterdir()] == ["tiny_k"]


def test_processes_build_at_the_same_time(folder: Path) -> None:
    script = f"from dacergnn.native.build import build\nprint(build('tiny', {CODE!r}))"
    running = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    found = {process.communicate()[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(found) == 1
    assert answer(Path(found.pop())) == 42
    assert len(list(folder.iterdir())) == 1


def test_failed_build_leaves_no_entry(folder: Path) -> None:
    with pytest.raises(BuildError) as caught:
        builder.build("tiny", "this is no C++\n")
    kept = folder / "failed.cpp"
    first, *rest = str(caught.value).splitlines()
    assert first == f"{builder.compiler()[0]} rejected generated code (kept in {kept}):"
    assert rest
    assert kept.read_text() == "this is no C++\n"
    assert list(folder.iterdir()) == [kept]


def test_unwritable_folder(folder: Path) -> None:
    folder.write_text("a file in its place")
    with pytest.raises(CacheError) as caught:
        builder.build("tiny", CODE)
    assert str(caught.value) == (
        f"The build cache {folder} cannot be written (File exists); set DACERGNN_CACHE_DIR to a folder that can."
    )


def test_folder_without_permission(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("permissions do not bind this user")
    with pytest.raises(CacheError, match=r"cannot be written \(Permission denied\); set DACERGNN_CACHE_DIR"):
        builder.build("tiny", CODE)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder.compiler.cache_clear()
    builder._environment.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        builder.build("tiny", CODE)
    assert str(caught.value) == (
        'The C++ compiler "g++" is not on PATH; install g++ (11 or newer), or set CXX to a C++ compiler.'
    )


def test_entries_and_clear(folder: Path) -> None:
    assert cache.entries() == []
    assert cache.clear() == 0
    builder.build("with_underscore", CODE)
    (entry,) = cache.entries()
    assert entry.name == "with_underscore"
    assert entry.path.parent == folder
    assert entry.size > 1000
    assert cache.clear() == 1
    assert cache.entries() == []


def test_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DACERGNN_CACHE_DIR")
    assert cache.cache_folder().name == "dacergnn"
