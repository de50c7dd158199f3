"""Compilers that users name, working ones and others, and what each of the latter is answered."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dacergnn.errors import BuildError, CacheError, DacergnnError
from dacergnn.native import build as builder
from dacergnn.native.build import INCLUDE_FOLDER

CODE = 'extern "C" int answer() { return 42; }\n'
SAYS_VERSION = 'case "$*" in *--version*) echo "g++ of this test"; exit 0;; esac\n'
FULL = "echo 'cc1plus: /tmp/x.s: No space left on device' >&2; exit 1"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, and no memory of compilers that other tests found."""
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXXFLAGS", "-O0")
    forget()
    yield tmp_path / "cache"
    forget()


def forget() -> None:
    builder.compiler.cache_clear()
    builder._environment.cache_clear()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("form", ["g++", " ", "g++ -DANSWER=1", "env A=b g++", "{folder}/with blanks/g++"])
def test_commands_of_several_words(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with blanks").mkdir()
    (tmp_path / "with blanks" / "g++").symlink_to(str(shutil.which("g++")))
    monkeypatch.setenv("CXX", form.format(folder=tmp_path))
    assert ctypes.CDLL(str(builder.build("tiny", CODE))).answer() == 42


def test_equal_compilers_share_builds_wherever_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "g++").symlink_to(str(shutil.which("g++")))
        monkeypatch.setenv("CXX", str(tmp_path / name / "g++"))
        forget()
        builds.append(builder.build("tiny", CODE))
    assert builds[0] == builds[1]
    monkeypatch.setenv("CXX", f"{tmp_path}/one/g++ -DOTHER")
    forget()
    assert builder.build("tiny", CODE) != builds[0]


def test_flags_with_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "'-DANSWER=(40 + 2)'")
    library = builder.build("tiny", 'extern "C" int answer() { return ANSWER; }\n')
    assert ctypes.CDLL(str(library)).answer() == 42


BAD: list[tuple[str, type[DacergnnError], str]] = [
    ("exit 0", BuildError, "{cxx} reported no error, but made no library; set CXX to a C++ compiler (NVCC for CUDA), "
     "as g++ is."),
    ("kill -9 $$", BuildError, "{cxx} was ended by signal 9 while it compiled tiny_{key}; if memory was short, close "
     "other programs and try again."),
    (FULL, CacheError, "{cxx} found no space left, in the build cache {cache} or for files of its own in {tmp}; make "
     "room there, or set DACERGNN_CACHE_DIR and TMPDIR to folders elsewhere."),
    (r"printf '\377' >&2; exit 1", BuildError, "{cxx} rejected generated code (kept in {cache}/failed.cpp):\n\ufffd"),
]  # fmt: skip


@pytest.mark.parametrize(("does", "kind", "message"), BAD, ids=["no library", "killed", "full disk", "no text"])
def test_compilers_that_fail(
    does: str, kind: type[DacergnnError], message: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cxx = script(tmp_path / "cxx", SAYS_VERSION + does)
    monkeypatch.setenv("CXX", cxx)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(kind) as caught:
        builder.build("tiny", CODE)
    start, _, end = message.format(cxx=cxx, cache=cache, tmp=tmp_path, key="*").partition("*")
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(end)
    assert not any(cache.glob("tiny*"))


@pytest.mark.parametrize(
    ("cxx", "message"),
    [
        ("{folder}/text", "The compiler {folder}/text cannot be run (Exec format error); set CXX to a C++ compiler"),
        ("'g++", 'CXX is "\'g++", which is no command (No closing quotation); close its quotes.'),
        ("no-such-launcher g++", 'The C++ compiler "no-such-launcher" is not on PATH; install g++ (11 or newer)'),
    ],
)
def test_commands_that_are_none(cxx: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    monkeypatch.setenv("CXX", cxx.format(folder=tmp_path))
    with pytest.raises(BuildError) as caught:
        builder.build("tiny", CODE)
    assert str(caught.value).startswith(message.format(folder=tmp_path))


TRANSPOSE = """
#include <cstdint>
#include <type_traits>
#include <utility>
#ifndef __clang__
#define __clang__ 1
#define __builtin_shuffle only_gcc_has_this
#endif
#include "dacergnn/transpose.h"
template <class T, int64_t K, int64_t M> bool right() {
    T from[K * M], to[M * K];
    for (int64_t i = 0; i < K * M; ++i) from[i] = T(i);
    dacergnn::transpose<T, K, M>(from, to);
    for (int64_t k = 0; k < K; ++k)
        for (int64_t m = 0; m < M; ++m)
            if (to[m * K + k] != from[k * M + m]) return false;
    return true;
}
int main() { return right<float, 16, 12>() && right<float, 7, 20>() && right<double, 8, 9>() ? 0 : 1; }
"""


@pytest.mark.check
def test_headers_for_clang(tmp_path: Path) -> None:
    """Also where clang is not installed: g++ stands in for it, without the function that clang lacks."""
    clang = next(
        (found for v in ("", *(f"-{n}" for n in range(14, 22))) if (found := shutil.which(f"clang++{v}"))), None
    )
    (tmp_path / "main.cpp").write_text(TRANSPOSE)
    for compiler in filter(None, ("g++", clang)):
        flags = ["-std=c++20", "-O1", "-march=native", f"-I{INCLUDE_FOLDER}", "-w"]
        subprocess.run([compiler, *flags, str(tmp_path / "main.cpp"), "-o", str(tmp_path / "main")], check=True)
        assert subprocess.run([tmp_path / "main"], check=False).returncode == 0, compiler


def test_the_environment_of_a_build_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the language, which errors are recognized by."""
    cxx = script(tmp_path / "cxx", f"{SAYS_VERSION}env > {tmp_path}/seen; exit 1")
    monkeypatch.setenv("CXX", cxx)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("OWN", "kept")
    with pytest.raises(BuildError):
        builder.build("tiny", CODE)
    seen = (tmp_path / "seen").read_text().splitlines()
    assert "OWN=kept" in seen
    assert "LC_ALL=C" in seen
    assert os.environ["LC_ALL"] == "de_DE.UTF-8"
