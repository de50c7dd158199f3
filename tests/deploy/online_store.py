"""The online store behind its C functions, for tests."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dacergnn
from dacergnn.native.build import compiler_command

PACKAGE = Path(dacergnn.__file__).parent
HEADERS = PACKAGE / "deploy" / "include"
FOLDERS = (HEADERS, PACKAGE / "sampler" / "include")
OPTIONS = ("-std=c++20", "-Wall", "-Wextra", "-Werror", "-pthread", *(f"-I{folder}" for folder in FOLDERS))
CODES = ("ok", "bad argument", "no node", "no edge", "no memory", "failed write", "in use", "unknown")
Ids = NDArray[np.int64]


def build(source: Path, target: Path, *options: str) -> Path:
    command = [*compiler_command(), *OPTIONS, *options, str(source), "-o", str(target)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return target


def build_library(folder: Path) -> ctypes.CDLL:
    source = HEADERS / "graph_store" / "store_c.cpp"
    library = ctypes.CDLL(str(build(source, folder / "libstore.so", "-O1", "-fPIC", "-shared")))
    library.store_message.restype = ctypes.c_char_p
    library.store_snapshot_release.restype = library.store_batch_destroy.restype = None
    return library


class StoreError(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def argument(value: Any) -> Any:
    """Returns an argument as C gets it: addresses of arrays, 64 bits of integers."""
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int64(value) if isinstance(value, int) else value


def as_ids(ids: Sequence[int] | Ids) -> Ids:
    return np.array(ids, dtype=np.int64)


@dataclass
class Batch:
    """Ids of nodes and features [nodes, width] by type, edges [2, E] by relation."""

    ids: list[Ids]
    features: list[NDArray[np.float32]]
    edges: list[Ids]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("sizes", ctypes.c_int64 * 4)]

    def array(self, kind: Any) -> NDArray[Any]:
        rows, columns = self.sizes[:2]
        assert self.data
        assert [*self.sizes[2:]] == [1, 1]
        data = ctypes.string_at(self.data, rows * columns * kind().itemsize)
        return np.frombuffer(data, dtype=kind).reshape(rows, columns)


class OnlineStore:
    def __init__(self, library: ctypes.CDLL, widths: Sequence[int], ends: Sequence[tuple[int, int]]) -> None:
        self.library, self.widths, self.relations = library, [*widths], len(ends)
        self.handle = ctypes.c_void_p()
        pairs = as_ids([end for pair in ends for end in pair])
        self.call("create", len(widths), as_ids(widths), len(ends), pairs, ctypes.byref(self.handle))
        self.batch = ctypes.c_void_p()
        self.call("batch_create", ctypes.byref(self.batch))

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, f"store_{name}")(*map(argument, arguments))
        if code:
            raise StoreError(CODES[code], self.library.store_message().decode())

    def close(self) -> None:
        self.call("destroy", self.handle)
        self.library.store_batch_destroy(self.batch)

    def add_nodes(self, node_type: int, features: Any) -> list[int]:
        rows = np.array(features, dtype=np.float32)
        ids = as_ids([-1] * len(features))
        self.call("add_nodes", self.handle, node_type, len(features), rows, ids)
        return ids.tolist()

    def set_features(self, node_type: int, ids: Sequence[int], features: Any) -> None:
        rows = np.array(features, dtype=np.float32)
        self.call("set_features", self.handle, node_type, len(ids), as_ids(ids), rows)

    def remove_nodes(self, node_type: int, ids: Sequence[int]) -> None:
        self.call("remove_nodes", self.handle, node_type, len(ids), as_ids(ids))

    def add_edges(self, relation: int, pairs: Sequence[tuple[int, int]]) -> None:
        self._edges("add_edges", relation, pairs)

    def remove_edges(self, relation: int, pairs: Sequence[tuple[int, int]]) -> None:
        self._edges("remove_edges", relation, pairs)

    def _edges(self, name: str, relation: int, pairs: Sequence[tuple[int, int]]) -> None:
        sources, destinations = as_ids([s for s, _ in pairs]), as_ids([d for _, d in pairs])
        self.call(name, self.handle, relation, len(pairs), sources, destinations)

    @contextmanager
    def write(self) -> Generator[None]:
        """Joins the changes of a block to one write."""
        self.call("begin", self.handle)
        try:
            yield
        except BaseException:
            self.call("abort", self.handle)
            raise
        self.call("commit", self.handle)

    def take(self) -> ctypes.c_void_p:
        snapshot = ctypes.c_void_p()
        self.call("snapshot_take", self.handle, ctypes.byref(snapshot))
        return snapshot

    def release(self, snapshot: ctypes.c_void_p) -> None:
        self.library.store_snapshot_release(snapshot)

    @contextmanager
    def snapshot(self) -> Generator[ctypes.c_void_p]:
        snapshot = self.take()
        try:
            yield snapshot
        finally:
            self.release(snapshot)

    def sizes(self, snapshot: ctypes.c_void_p) -> tuple[list[int], list[int]]:
        """The counts of nodes by type and of edges by relation."""
        nodes, edges = as_ids([-1] * len(self.widths)), as_ids([-1] * self.relations)
        self.call("snapshot_sizes", snapshot, nodes, edges)
        return nodes.tolist(), edges.tolist()

    def fill(
        self, snapshot: ctypes.c_void_p, node_type: int, seeds: Sequence[int], fanouts: Any, random_seed: int = 0
    ) -> None:
        """Fills the batch; ``fanouts`` has a row for each hop."""
        rows = as_ids(fanouts).reshape(-1, self.relations)
        seed = ctypes.c_uint64(random_seed)
        self.call("neighbourhood", snapshot, node_type, len(seeds), as_ids(seeds), len(rows), rows, seed, self.batch)

    def neighbourhood(self, *arguments: Any) -> Batch:
        self.fill(*arguments)
        return self.read()

    def read(self) -> Batch:
        inputs = (Tensor * (len(self.widths) + self.relations))()
        self.call("batch_inputs", self.batch, inputs)
        features = [tensor.array(np.float32) for tensor in inputs[: len(self.widths)]]
        edges = [tensor.array(np.int64) for tensor in inputs[len(self.widths) :]]
        return Batch([self._ids(node_type) for node_type in range(len(self.widths))], features, edges)

    def _ids(self, node_type: int) -> Ids:
        ids, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_int64()
        self.call("batch_ids", self.batch, node_type, ctypes.byref(ids), ctypes.byref(count))
        return as_ids(ids[: count.value])
