"""Layers whose CUDA programs run in emulation: graphs and tensors stay on the processor, and so does all else."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dacergnn import Config
from dacergnn.native import nvcc
from dacergnn.native.build import compiler
from dacergnn.runtime import cuda_executable
from tests.support.emulated import COMPILE_FLAGS, EMULATION, LINK_FLAGS, library_flags

EMULATED = Config(implementation="cuda", cuda_arch=(80,))
"""Compiles layers for an emulated device."""
STREAM = SimpleNamespace(cuda_stream=0)


def _quiet(flags: Iterable[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("-W")]


_QUIET = _quiet(library_flags(COMPILE_FLAGS))  # the frame around kernels is DaCe's
_HOST_FLAGS = ("-std=c++20", "-fPIC", "-fno-gnu-unique", "-DDACERGNN_EMULATE_CUDA", f"-I{EMULATION}")


@pytest.fixture
def emulated_device(monkeypatch: pytest.MonkeyPatch) -> Config:
    """While it lasts, programs for CUDA are built for, and run by, the emulation."""

    def command(architectures: tuple[int, ...]) -> list[str]:
        return [compiler()[0], *_QUIET]

    def stream(device: torch.device) -> Any:
        return nullcontext(STREAM)

    launch = cuda_executable.CUDAExecutable._launch  # pyright: ignore[reportPrivateUsage]
    one_at_a_time = threading.Lock()

    def launched(self: cuda_executable.CUDAExecutable, arguments: array[int]) -> bytes | None:
        with one_at_a_time:  # the emulations in several libraries share the handlers of signals
            return launch(self, arguments)

    monkeypatch.setattr(cuda_executable.CUDAExecutable, "_launch", launched)
    monkeypatch.setattr(nvcc, "command", command)
    monkeypatch.setattr(nvcc, "compiler", lambda: ("g++", "emulation"))
    monkeypatch.setattr(cuda_executable, "current_stream", stream)
    monkeypatch.setattr(cuda_executable, "multiprocessors", lambda device: 4)
    monkeypatch.setattr(cuda_executable, "check_built_for", lambda device, built: None)
    monkeypatch.setattr(cuda_executable, "finish", lambda device: None)
    monkeypatch.setattr(cuda_executable.CUDAExecutable, "_device", "cpu")
    return EMULATED


@contextmanager
def emulated_builds() -> Generator[None]:
    """While it lasts, exported libraries for CUDA are built to run in emulation."""
    gxx = compiler()[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvcc, "command", lambda architectures: [gxx, *_quiet(COMPILE_FLAGS)])
        patch.setattr(nvcc, "for_host", lambda options: [])
        patch.setattr(nvcc, "host_command", lambda: [gxx, *_HOST_FLAGS])
        patch.setattr(nvcc, "link_command", lambda: [gxx, *_quiet(LINK_FLAGS)])
        yield
