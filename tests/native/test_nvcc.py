"""The CUDA compiler is found, refused where it will not do, and called for all architectures at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dacergnn.errors import BuildError
from dacergnn.native import nvcc
from dacergnn.runtime import cuda_device


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


@pytest.mark.parametrize(
    ("architectures", "kib"), [((80, 90), 160), ((90, 100), 160), ((80, 86), 99), ((89,), 99), ((90, 120), 99)]
)
def test_kernels_use_the_shared_memory_that_all_devices_have(
    architectures: tuple[int, ...], kib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", str(pretend(tmp_path, "13.0")))
    assert f"-DDACERGNN_SHARED_BYTES={kib * 1024}" in nvcc.command(architectures)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders with an nvcc each, by the way in which it is found."""
    folders = {name: tmp_path / name for name in ("CUDA_HOME", "CUDA_PATH", "PATH", "package")}
    made = {
        "CUDA_HOME": folders["CUDA_HOME"] / "bin", "CUDA_PATH": folders["CUDA_PATH"] / "bin", "PATH": folders["PATH"],
        "package": folders["package"] / "nvidia" / "cu13" / "bin",
    }  # fmt: skip
    for folder in made.values():
        folder.mkdir(parents=True)
    for name in ("CUDA_HOME", "CUDA_PATH", "PATH"):
        monkeypatch.setenv(name, str(folders[name]))
    monkeypatch.delenv("NVCC", raising=False)
    monkeypatch.syspath_prepend(str(folders["package"]))
    return {name: pretend(folder, f"13.{number}") for number, (name, folder) in enumerate(made.items())}


def test_toolkits_are_found_in_order(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables come before PATH, as in torch, and pip's packages come last."""
    monkeypatch.setattr(nvcc, "SYSTEM", "/no/such/nvcc")
    for number, path in enumerate(places.values()):
        nvcc.compiler.cache_clear()
        assert nvcc.compiler() == (str(path), f"13.{number}")
        path.unlink()
    nvcc.compiler.cache_clear()
    with pytest.raises(BuildError) as error:
        nvcc.compiler()
    assert str(error.value) == (
        "The CUDA compiler nvcc was found nowhere; pip install 'dacergnn[cuda]', or install the CUDA toolkit (12.0 or "
        "newer) and set CUDA_HOME or NVCC."
    )


def test_no_other_toolkit_stands_in_for_one_that_is_named(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    with pytest.raises(BuildError) as error:
        nvcc.compiler()
    assert str(error.value) == (
        "The CUDA compiler \"no-such-nvcc\", which NVCC names, is not there; pip install 'dacergnn[cuda]', or install "
        "the CUDA toolkit (12.0 or newer) and set CUDA_HOME or NVCC."
    )


def test_devices_newer_than_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They compile the code of the newest architecture that it knows."""
    monkeypatch.setenv("NVCC", str(pretend(tmp_path, "12.2", (50, 80, 90))))
    devices = [(8, 0), (8, 9), (12, 0), (10, 3)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: devices[device.index])
    cuda_device.capability.cache_clear()
    try:
        built = cuda_device.architectures(None)
        assert built == (80, 90)
        for number in range(len(devices)):
            cuda_device.check_built_for(torch.device("cuda", number), built)
    finally:
        cuda_device.capability.cache_clear()
    assert nvcc.command(built)[-1] == "-gencode=arch=compute_90,code=compute_90"


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
