"""Calls an exported model from Python with NumPy alone: neither torch nor dacergnn are imported.

    from exported_model import ExportedModel

    with ExportedModel("folder") as model:
        results = model({"x.paper": features, "edges.paper__cites__paper": edges})
        results["out.paper"]

The folder is the one that `dacergnn.export` has written to. Names that are identifiers may be passed as keywords, too.
Several threads may call one model at the same time.
"""

from __future__ import annotations

import ctypes
import json
import math
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TOO_SMALL = 5
"""The code of a call that has found too little memory for its results."""
Arrays = dict[str, np.ndarray]


class ModelError(Exception):
    """Tells why a model refuses a call: ``code`` is that of its header."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Input(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("sizes", ctypes.c_int64 * 4)]


class _Output(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("sizes", ctypes.c_int64 * 4)]


class ExportedModel:
    """Represents an exported model.

    Args:
        folder: The folder of the export.
        name: The name of the export.
        threads: The number of threads of each call; 0 for as many as there are processors.
    """

    def __init__(self, folder: str | Path, *, name: str = "model", threads: int = 0) -> None:
        self.threads = threads
        self._calls, self._idle = 0, threading.Condition()
        folder = Path(folder).resolve()
        self.manifest: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        """Describes the model: ``inputs`` and ``outputs`` with their names, types and shapes."""
        self._load(folder, name)

    def _load(self, folder: Path, name: str) -> None:
        library = ctypes.CDLL(str(folder / f"lib{name}.so"))
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        declared: dict[str, tuple[Any, list[Any]]] = {
            "create": (ctypes.c_int, [text, ctypes.POINTER(pointer)]),
            "run": (ctypes.c_int, [pointer, ctypes.POINTER(_Input), ctypes.POINTER(_Output), ctypes.c_int]),
            "message": (text, []), "fingerprint": (text, []),
            "destroy": (None, [pointer]),
        }  # fmt: skip
        self._functions: dict[str, Any] = {}
        for own, (result, arguments) in declared.items():
            function = self._functions[own] = getattr(library, f"{name}_{own}")
            function.restype, function.argtypes = result, arguments
        if self._functions["fingerprint"]().decode() != self.manifest["fingerprint"]:
            raise ValueError(
                f"{folder}: lib{name}.so and {name}.json are of different exports; export the model again."
            )
        file = self.manifest["weights"]["file"]
        weights = None if file is None else str(folder / file).encode()
        self._handle = ctypes.c_void_p()
        self._check(self._functions["create"](weights, ctypes.byref(self._handle)))
        self._free = weakref.finalize(self, self._functions["destroy"], self._handle)
        self._free.atexit = False  # a thread may still be in a call then

    def __call__(self, arrays: Mapping[str, np.ndarray] | None = None, /, **named: np.ndarray) -> Arrays:
        """Returns the results of a call, by name.

        Raises:
            TypeError: An array is missing or unknown, or has another type of elements than the model.
            ValueError: An array has another number of axes or gaps in memory, or the model is closed.
            ModelError: The model refuses the call: a size is wrong, or an index out of range.
        """
        given = {**(arrays or {}), **named}
        self._check_names(given)
        inputs = (_Input * len(given))()
        sizes: dict[str, int] = {}
        for own, described in zip(inputs, self.manifest["inputs"], strict=True):
            array = _checked(given[described["name"]], described)
            own.data = array.ctypes.data
            own.sizes[: array.ndim] = array.shape
            sizes |= {
                name: size for name, size in zip(described["shape"], array.shape, strict=True) if type(name) is str
            }
        self._enter()
        try:
            return self._run(inputs, [self._room(described, sizes) for described in self.manifest["outputs"]])
        finally:
            self._leave()

    def _check_names(self, given: Mapping[str, object]) -> None:
        wanted: set[str] = {described["name"] for described in self.manifest["inputs"]}
        parts = [("missing", wanted - given.keys()), ("unknown", given.keys() - wanted)]
        if any(names for _, names in parts):
            found = "; ".join(f"{', '.join(sorted(names))} {kind}" for kind, names in parts if names)
            raise TypeError(f"Arrays are wrong: {found}. The model takes {', '.join(sorted(wanted))}.")

    @staticmethod
    def _room(described: Mapping[str, Any], sizes: Mapping[str, int]) -> np.ndarray:
        """Returns memory for a result; none if the model has to tell its sizes first."""
        shape = [size if isinstance(size, int) else sizes.get(size, 0) for size in described["shape"]]
        return np.empty(shape, described["dtype"])

    def _run(self, inputs: ctypes.Array[_Input], results: list[np.ndarray]) -> Arrays:
        described: Sequence[Mapping[str, Any]] = self.manifest["outputs"]
        code, attempts = TOO_SMALL, 3  # sizes that follow from those of arguments, then from their numbers
        shapes: list[tuple[int, ...]] = []
        while code == TOO_SMALL and attempts > 0:
            if shapes:
                results = [np.empty(shape, own["dtype"]) for shape, own in zip(shapes, described, strict=True)]
            outputs = (_Output * len(results))()
            for own, result in zip(outputs, results, strict=True):
                own.data, own.bytes = result.ctypes.data, result.nbytes
                own.sizes[: result.ndim] = result.shape
            code, attempts = self._functions["run"](self._handle, inputs, outputs, self.threads), attempts - 1
            shapes = [tuple(own.sizes[: result.ndim]) for own, result in zip(outputs, results, strict=True)]
        self._check(code)
        filled = [_front(result, shape) for result, shape in zip(results, shapes, strict=True)]
        return {own["name"]: result for own, result in zip(described, filled, strict=True)}

    def _check(self, code: int) -> None:
        if code != 0:
            raise ModelError(code, self._functions["message"]().decode(errors="replace"))

    def _enter(self) -> None:
        with self._idle:
            if not self._free.alive:
                raise ValueError("The model is closed; make another one.")
            self._calls += 1

    def _leave(self) -> None:
        with self._idle:
            self._calls -= 1
            self._idle.notify_all()

    def close(self) -> None:
        """Frees the model once no call uses it."""
        with self._idle:
            self._idle.wait_for(lambda: self._calls == 0)
            self._free()

    def __enter__(self) -> ExportedModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _front(result: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the numbers of a result, which may be fewer than there was memory for."""
    return result if result.shape == shape else result.reshape(-1)[: math.prod(shape)].reshape(shape)


def _checked(array: np.ndarray, described: Mapping[str, Any]) -> np.ndarray:
    """Returns an array that the library can read."""
    name, dtype, axes = described["name"], np.dtype(described["dtype"]), len(described["shape"])
    if not isinstance(array, np.ndarray) or array.dtype != dtype:  # pyright: ignore[reportUnnecessaryIsInstance]
        found = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"{name} is {found}; pass np.asarray(..., dtype=np.{dtype}).")
    if array.ndim != axes:
        raise ValueError(f"{name} has {array.ndim} axes; the model takes {described['shape']}.")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(
            f"{name} has gaps in memory, or lies at an odd address; pass np.ascontiguousarray(...).copy()."
        )
    return array
