"""Keeps a graph in a folder: its sorted edges and its encodings, as `.npy` files that later processes map.

The folder has ``graph.json``, with a version, sizes and the checksum of each file, and a file for each vector. A mapped
vector is read from the disk where kernels touch it, and is in memory only as long as the system has room for it.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dacergnn.errors import GraphError
from dacergnn.graph.counts import Counts
from dacergnn.graph.edge_list import EdgeList
from dacergnn.graph.names import NumberNames

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
INDEX = "graph.json"
_NUMBERS = ("num_src", "num_dst", "num_edge_types", "num_node_types", "bipartite")
_NAMES = ("edge_type_names", "node_type_names")
_CHUNK = 1 << 24
_NONE = torch.empty(0, dtype=torch.int64)


def write(vectors: Mapping[str, Tensor], rest: Any, folder: Path) -> None:
    """Writes the state of a graph (`HeteroGraph.state`) to a folder, which gets its index last.

    Raises:
        GraphError: The folder cannot be written to.
    """
    edges, counts, check = rest
    names = {n: None if isinstance(own := getattr(edges, n), NumberNames) else list(own) for n in _NAMES}
    written: dict[tuple[int, int], str] = {}
    files: dict[str, str] = {}
    sums: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        for name, vector in vectors.items():
            place = vector.data_ptr(), vector.numel()
            file = files[name] = written.setdefault(place, f"{len(written)}.npy")
            if file not in sums:
                array = vector.cpu().numpy()
                with (folder / f"{file}.partial").open("wb") as new:
                    np.save(new, array)
                (folder / f"{file}.partial").replace(folder / file)  # the old one stays as it is where it is mapped
                sums[file] = _checksum(array)
        about = {
            "version": VERSION,
            "numbers": {n: getattr(edges, n) for n in _NUMBERS},
            "names": names,
            "counts": None if counts is None else {k: dict(v) for k, v in vars(counts).items()},
            "check": check,
            "files": files,
            "checksums": sums,
        }
        partial = folder / f"{INDEX}.partial"
        partial.write_text(json.dumps({**about, "digest": _digest(about)}) + "\n")
        partial.replace(folder / INDEX)
        for old in folder.glob("*.npy"):
            if old.name not in sums:
                old.unlink()
    except OSError as error:
        raise GraphError(f"{folder}: the graph cannot be written there: {error.strerror}.") from None


def read(folder: Path, *, checked: bool) -> tuple[dict[str, Tensor], Any]:
    """Returns the state of the graph that a folder holds, with vectors that are mapped from its files.

    Args:
        checked: Whether to read all files once and to compare their checksums.

    Raises:
        GraphError: The folder holds no graph, one of another version, or one that is damaged.
    """
    try:
        about = json.loads((folder / INDEX).read_text())
        version = about["version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise GraphError(f"{folder} holds no graph; name a folder that HeteroGraph.save has written.") from None
    if version != VERSION:
        raise GraphError(f"{folder} has version {version!r}, but this is for {VERSION}; save the graph again.")
    try:
        if about.pop("digest") != _digest(about):
            raise ValueError(f"the digest of {INDEX} differs")
        mapped = {file: _mapped(folder / file, own if checked else None) for file, own in about["checksums"].items()}
        vectors = {name: mapped[file] for name, file in about["files"].items()}
        numbers, counts = about["numbers"], about["counts"]
        names = {
            n: NumberNames(numbers[f"num_{n.removesuffix('_names')}s"]) if own is None else tuple(own)
            for n, own in about["names"].items()
        }
        options: dict[str, Any] = numbers | names
        edges = EdgeList(_NONE, _NONE, _NONE, src_type=None, dst_type=None, in_order=True, **options)
        return vectors, (edges, None if counts is None else Counts(**counts), about["check"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise GraphError(f"{folder} is damaged ({error}); save the graph again.") from None


def _mapped(path: Path, checksum: int | None) -> Tensor:
    # Copies on write belong to this process, so the tensor may be writable although the file never changes.
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    if array.ndim != 1 or array.dtype not in (np.int32, np.int64):
        raise ValueError(f"{path.name} holds no vector of indices")
    if checksum is not None and _checksum(array) != checksum:
        raise ValueError(f"the checksum of {path.name} differs")
    return torch.from_numpy(np.asarray(array))


def _digest(about: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(about, sort_keys=True).encode())


def _checksum(array: np.ndarray[Any, Any]) -> int:
    total, flat = 0, array.view(np.uint8)
    for start in range(0, len(flat), _CHUNK):
        total = zlib.crc32(flat[start : start + _CHUNK].tobytes(), total)
    return total
