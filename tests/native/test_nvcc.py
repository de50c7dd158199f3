"""The CUDA compiler is found, refused where it will not do, and called for all architectures at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dacergnn.errors import BuildError
from dacergnn.native import nvcc


@pytest.fixture(autouse=True)
def forget_compiler() -> Iterator[None]:
    for function in (nvcc.compiler, nvcc.known):
        function.cache_clear()
    yield
    for function in (nvcc.compiler, nvcc.known):
        function.cache_clear()


def pretend(folder: Path, release: str, architectures: tuple[int, ...] = ()) -> Path:
    path = folder / "nvcc"
    listed = "\\n".join(f"compute_{a}" for a in architectures)
    version = f"Cuda compilation tools, release {release}, V{release}.48"
    path.write_text(f'#!/bin/sh\ncase $1 in --list-gpu-arch) printf "{listed}";; *) echo "{version}";; esac\n')
    path.chmod(0o755)
    return path


def test_one_library_for_all_architectures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", str(pretend(tmp_path, "13.0")))
    machines = [word for word in nvcc.command((90, 80)) if word.startswith("-gencode")]
    assert machines == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]


def test_the_toolkit_of_cuda_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    path = pretend(tmp_path / "bin", "12.4")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("NVCC", raising=False)
    assert nvcc.compiler() == (str(path), "12.4")


def test_no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(BuildError) as error:
        nvcc.compiler()
    assert str(error.value) == (
        f'The CUDA compiler "no-such-nvcc" is neither on PATH nor in {tmp_path}/bin; install the CUDA toolkit '
        "(12.0 or newer), or set NVCC or CUDA_HOME."
    )


def test_a_toolkit_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pretend(tmp_path, "11.8")
    monkeypatch.setenv("NVCC", str(path))
    with pytest.raises(BuildError) as error:
        nvcc.compiler()
    assert str(error.value) == (
        f"{path} is of CUDA 11.8, but generated code needs 12.0 or newer; install a newer CUDA toolkit, or set NVCC to "
        "the nvcc of one."
    )


def test_architectures_that_the_toolkit_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pretend(tmp_path, "12.2", (50, 80, 90))
    monkeypatch.setenv("NVCC", str(path))
    assert nvcc.command((80, 90))[0] == str(path)
    with pytest.raises(BuildError) as error:
        nvcc.command((80, 120))
    assert str(error.value) == (
        f"{path} of CUDA 12.2 does not know compute capability 12.0, only 5.0 to 9.0; install another CUDA toolkit, or "
        "name older ones in Config(cuda_arch=(90,)), whose code newer devices run as well."
    )
