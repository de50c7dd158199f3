"""Calls exported libraries through their C interface."""

from __future__ import annotations

import ctypes
import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.deploy.library import ExportedLibrary


class _Input(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("sizes", ctypes.c_int64 * 4))


class _Output(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("sizes", ctypes.c_int64 * 4))


def export(model: nn.Module, folder: Path, *, example: tuple[Any, ...], **options: Any) -> ExportedLibrary:
    """Exports a model with kernels that are less optimized, so that g++ is done sooner."""
    with torch.no_grad():
        model(*example)  # builds programs for this process with the usual flags
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXXFLAGS", "-O0")
        return dacergnn.export(model, folder, example=example, **options)


class Refused(Exception):
    """Is the answer of a call that failed: its code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Library:
    """Runs an exported model; its arguments are tensors in the order of the header."""

    def __init__(self, made: ExportedLibrary, *, weights: Path | None = None) -> None:
        self.manifest: dict[str, Any] = json.loads(made.manifest.read_text())
        self.name: str = self.manifest["name"]
        self._library = ctypes.CDLL(str(made.library))
        for function in ("message", "processor", "fingerprint"):
            self.function(function).restype = ctypes.c_char_p
        self.model = ctypes.c_void_p()
        path = weights or made.weights
        self._check(self.function("create")(None if path is None else str(path).encode(), ctypes.byref(self.model)))

    def function(self, name: str) -> Any:
        """Returns a function of the C interface."""
        return getattr(self._library, f"{self.name}_{name}")

    @property
    def processor(self) -> str:
        """Returns the kind of processor whose kernels run."""
        return self.function("processor")(self.model).decode()

    @property
    def fingerprint(self) -> str:
        """Returns what tells the model from others."""
        return self.function("fingerprint")().decode()

    def _check(self, code: int) -> None:
        if code:
            raise Refused(code, self.function("message")().decode())

    def inputs(self, tensors: list[Tensor]) -> Any:
        """Returns the arguments of a call as structures of C."""
        made = (_Input * max(len(tensors), 1))()
        for own, tensor in zip(made, tensors, strict=False):
            assert tensor.is_contiguous()
            own.data = tensor.data_ptr()
            own.sizes[: tensor.dim()] = list(tensor.shape)
        return made

    def run(self, inputs: Any, outputs: Any, threads: int | None = 1) -> None:
        """Runs a call; raises Refused if it fails."""
        self._check(self.function("run")(self.model, inputs, outputs, threads))

    def outputs(self, capacity: int) -> tuple[Any, list[Any]]:
        """Returns memory for the results of a call."""
        described = self.manifest["outputs"]
        made = (_Output * len(described))()
        memory = [np.zeros(max(capacity, 1), np.uint8) for _ in described]
        for own, buffer in zip(made, memory, strict=True):
            own.data, own.bytes = buffer.ctypes.data, capacity
        return made, memory

    def __call__(self, *tensors: Tensor, threads: int = 1, capacity: int = 1 << 20) -> list[Tensor]:
        outputs, memory = self.outputs(capacity)
        self.run(self.inputs(list(tensors)), outputs, threads)
        results: list[Tensor] = []
        for own, buffer, described in zip(outputs, memory, self.manifest["outputs"], strict=True):
            shape = list(own.sizes)[: len(described["shape"])]
            dtype = np.dtype(described["dtype"])
            numbers = buffer[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            results.append(torch.from_numpy(numbers.copy()))
        return results
