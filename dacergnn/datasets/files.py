"""Datasets of a folder of `.npz` files.

A file holds `num_nodes_per_type`, `node_type_names`, `edge_type_names` ("src:rel:dst"), `src`, `dst`, `etype`
sorted by (etype, dst, src), and optionally features (`feat_<type>`, or CSR in `feat_<type>_indptr`,
`_indices`, `_shape`, `_data`), `label`, splits, `target_node_type`, `class_names`, `edge_split`, `graph_id`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dacergnn.datasets.dataset import Dataset
from dacergnn.errors import DatasetError
from dacergnn.graph import HeteroGraph

Arrays = dict[str, npt.NDArray[Any]]
GRAPH_KEYS = ("num_nodes_per_type", "node_type_names", "edge_type_names", "src", "dst", "etype")
CSR_PARTS = ("_indptr", "_indices", "_shape", "_data")


def read_file(name: str, path: Path) -> Dataset:
    """Dataset of one `.npz` file; DatasetError if it is damaged or lacks the arrays of a graph."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays: Arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DatasetError(f"{path} cannot be read ({error}); replace the file.") from error
    missing = [key for key in GRAPH_KEYS if key not in arrays]
    if missing:
        raise DatasetError(f"{path} lacks {', '.join(missing)}; it is no graph file, replace it.")
    return _dataset(name, arrays)


def _dataset(name: str, arrays: Arrays) -> Dataset:
    counts = arrays.pop("num_nodes_per_type")
    node_names = [str(n) for n in arrays.pop("node_type_names")]
    edge_names = [str(n) for n in arrays.pop("edge_type_names")]
    graph = HeteroGraph.from_arrays(
        (_integers(arrays.pop("src")), _integers(arrays.pop("dst"))),
        _integers(arrays.pop("etype")),
        num_nodes=int(counts.sum()),
        num_edge_types=len(edge_names),
        node_type=np.repeat(np.arange(len(counts)), counts),
        num_node_types=len(node_names),
        edge_type_names=edge_names,
        node_type_names=node_names,
    )
    features: dict[str, Tensor] = {}
    for node_type in node_names:
        found = _features(arrays, f"feat_{node_type}")
        if found is not None:
            features[node_type] = found
    target = arrays.pop("target_node_type", None)
    class_names = arrays.pop("class_names", np.zeros(0, dtype=np.str_))
    rest = {key: _integers(values) for key, values in arrays.items() if values.dtype.kind in "iu"}
    edge_split = rest.pop("edge_split", None)
    return Dataset(
        name=name,
        graph=graph,
        features=features,
        label=rest.pop("label", None),
        train_idx=rest.pop("train_idx", None),
        val_idx=rest.pop("val_idx", None),
        test_idx=rest.pop("test_idx", None),
        target_node_type=None if target is None else str(target),
        class_names=tuple(str(c) for c in class_names),
        edge_split=None if edge_split is None else graph.to_canonical(edge_split),
        graph_id=rest.pop("graph_id", None),
        extra=rest,
    )


def _integers(values: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))


def _features(arrays: Arrays, key: str) -> Tensor | None:
    """Dense float32 features of one node type; takes them out of `arrays`."""
    if key in arrays:
        return torch.from_numpy(arrays.pop(key).astype(np.float32))
    if key + "_indptr" not in arrays:
        return None
    starts, columns, shape, values = (arrays.pop(key + part, None) for part in CSR_PARTS)
    assert starts is not None
    if columns is None or shape is None:
        raise DatasetError(f"{key} has {key}_indptr, but no {key}_indices or {key}_shape; replace the file.")
    dense = np.zeros(tuple(int(n) for n in shape), dtype=np.float32)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    dense[rows, columns.astype(np.int64)] = 1.0 if values is None else values
    return torch.from_numpy(dense)
