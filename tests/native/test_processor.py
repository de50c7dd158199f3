"""The processor that code is compiled for: in the keys of builds, and in the options of compilers."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from dacergnn.native import processor
from dacergnn.native.build import compiler, own_flags
from tests.support.compilers import needs

X86 = "processor\t: {n}\nmodel name\t: A\ncpu MHz\t\t: {n}000.0\nflags\t\t: fpu avx2\n\n"
ARM = (
    "processor\t: {n}\nBogoMIPS\t: {n}0.00\nFeatures\t: fp {features}\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: 0x{n}\nCPU part\t: {part}\n\n"
)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No memory of the processors of other tests."""
    processor.features.cache_clear()
    yield
    processor.features.cache_clear()
    compiler.cache_clear()


def features(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (folder / "cpuinfo").write_text(text)
    monkeypatch.setattr(processor, "_INFO", folder / "cpuinfo")
    processor.features.cache_clear()
    return processor.features()


def test_keys_know_the_instructions_of_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(text: str) -> str:
        return features(text, tmp_path, monkeypatch)

    one = of(ARM.format(n=1, part="0xd0c", features="asimd"))
    assert one != of(ARM.format(n=1, part="0xd0c", features="asimd sve"))
    assert one != of(ARM.format(n=1, part="0xd40", features="asimd"))
    assert of(X86.format(n=1)) != of(X86.format(n=1).replace("avx2", "avx2 avx512f"))


def test_keys_know_nothing_that_changes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert features(X86.format(n=1), tmp_path, monkeypatch) == features(X86.format(n=2), tmp_path, monkeypatch)
    both = features(X86.format(n=1) + X86.format(n=2), tmp_path, monkeypatch)
    assert both == features(X86.format(n=1), tmp_path, monkeypatch)


def test_machines_without_a_list_of_processors_have_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_INFO", tmp_path / "none")
    assert platform.machine() in processor.features()


def test_machines_that_hide_their_processors_have_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes do; their processors may still have other instructions than those of another machine."""
    (tmp_path / "cpuinfo").write_text("processor\t: 0\n\nprocessor\t: 1\n")
    for hidden in (tmp_path / "cpuinfo", tmp_path):  # a folder cannot be read
        monkeypatch.setattr(processor, "_INFO", hidden)
        keys: set[str] = set()
        for bits in ("1 2", "1 3"):
            monkeypatch.setattr(processor, "_capabilities", lambda bits=bits: bits)
            processor.features.cache_clear()
            keys.add(processor.features())
        assert len(keys) == 2


@pytest.mark.parametrize(
    ("machine", "made_for", "option"),
    [("x86_64", "x86_64", "-march=native"), ("AMD64", "x86_64", "-march=native"),
     ("aarch64", "aarch64", "-mcpu=native"), ("arm64", "arm64", "-mcpu=native"),
     ("x86_64", "aarch64", None), ("aarch64", "x86_64", None), ("riscv64", "riscv64", None), ("x86_64", "", None)],
)  # fmt: skip
def test_options_for_this_processor(
    machine: str, made_for: str, option: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert processor.native_flag(made_for) == option


def test_compilers_for_other_machines_get_no_such_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(processor.NATIVE_FLAGS.values()) & set(own_flags())
    monkeypatch.setenv("CXX", needs("aarch64-linux-gnu-g++"))
    compiler.cache_clear()
    assert not set(processor.NATIVE_FLAGS.values()) & set(own_flags())
