"""Reads datasets from `.npz` files.

A file holds `num_nodes_per_type`, `node_type_names`, `edge_type_names` ("src:rel:dst"), `src`, `dst`, `etype`
sorted by (etype, dst, src), and optionally features (`feat_<type>`, or CSR in `feat_<type>_indptr`,
`_indices`, `_shape`, `_data`), `label`, splits, `target_node_type`, `class_names`, `edge_split`, `graph_id`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dacergnn.datasets.archive import Archive
from dacergnn.datasets.dataset import Dataset
from dacergnn.errors import DatasetError
from dacergnn.graph import HeteroGraph

GRAPH_KEYS = ("num_nodes_per_type", "node_type_names", "edge_type_names", "src", "dst", "etype")
SPLITS = ("train_idx", "val_idx", "test_idx")


def read_file(name: str, path: Path) -> Dataset:
    """Reads the dataset of one `.npz` file; raises DatasetError if it is damaged or does not describe a graph."""
    archive = Archive(path)
    missing = [key for key in GRAPH_KEYS if key not in archive]
    if missing:
        raise DatasetError(f"{path} lacks {', '.join(missing)}; it is no graph file, replace it.")
    return _dataset(name, archive)


def _dataset(name: str, archive: Archive) -> Dataset:
    node_names, edge_names = archive.names("node_type_names"), archive.names("edge_type_names")
    counts: list[int] = archive.integers(
        "num_nodes_per_type", length=len(node_names), what="one for each of node_type_names"
    ).tolist()
    nodes = sum(counts)
    archive.check_room("num_nodes_per_type", nodes, 8)
    src = archive.integers("src", limit=nodes, what="nodes")
    edges = len(src)
    graph = HeteroGraph.from_arrays(
        (src, archive.integers("dst", length=edges, limit=nodes, what="nodes")),
        archive.integers("etype", length=edges, limit=len(edge_names), what="edge types"),
        num_nodes=nodes,
        num_edge_types=len(edge_names),
        node_type=np.repeat(np.arange(len(counts)), counts),
        num_node_types=len(node_names),
        edge_type_names=edge_names,
        node_type_names=node_names,
    )
    features = {
        node_type: matrix
        for node_type, count in zip(node_names, counts, strict=True)
        if (matrix := _features(archive, f"feat_{node_type}", count)) is not None
    }
    stray = next((key for key in archive.left if key.startswith("feat_")), None)
    if stray is not None:
        archive.fail(stray, f"belongs to no node type; there are {', '.join(node_names)}")
    target = archive.string("target_node_type") if "target_node_type" in archive else None
    if target is not None and target not in node_names:
        archive.fail("target_node_type", f"is {target!r}; node types are {', '.join(node_names)}")
    classes = archive.names("class_names") if "class_names" in archive else []

    def optional(key: str, length: int | None, what: str, limit: int | None = None, least: int = 0) -> Tensor | None:
        if key not in archive:
            return None
        return archive.integers(key, length=length, what=what, limit=limit, least=least)

    label = optional("label", nodes, "classes" if classes else "one for each node", len(classes) or None, least=-1)
    train, val, test = (optional(key, None, "nodes", limit=nodes) for key in SPLITS)
    edge_split = optional("edge_split", edges, "one for each edge")
    return Dataset(
        name=name,
        graph=graph,
        features=features,
        label=label,
        train_idx=train,
        val_idx=val,
        test_idx=test,
        target_node_type=target,
        class_names=tuple(classes),
        edge_split=None if edge_split is None else graph.to_canonical(edge_split),
        graph_id=optional("graph_id", nodes, "one for each node"),
        extra=archive.other_integers(),
    )


def _features(archive: Archive, key: str, nodes: int) -> Tensor | None:
    """Returns dense float32 features of a node type, taken out of the archive; None if it has none."""
    if key in archive:
        dense = archive.numbers(key, 2)
        if len(dense) != nodes:
            archive.fail(key, f"has {len(dense)} rows; it must have {nodes}, one for each node of the type")
        return torch.from_numpy(dense)
    return _compressed(archive, key, nodes) if f"{key}_indptr" in archive else None


def _compressed(archive: Archive, key: str, nodes: int) -> Tensor:
    """Returns dense features that are stored as a CSR matrix, perhaps without values, which are all 1 then."""
    if f"{key}_indices" not in archive or f"{key}_shape" not in archive:
        raise DatasetError(
            f"{archive.path}: {key} has {key}_indptr, but no {key}_indices or {key}_shape; replace the file."
        )
    rows, width = archive.integers(f"{key}_shape", length=2, what="rows and columns").tolist()
    if rows != nodes:
        archive.fail(f"{key}_shape", f"is for {rows} rows; it must be for {nodes}, one for each node of the type")
    archive.check_room(f"{key}_shape", rows * width, 4)
    columns = archive.integers(f"{key}_indices", limit=width, what="columns")
    starts = archive.integers(f"{key}_indptr", length=rows + 1, what="one for each row, and the end")
    counts = starts.diff()
    if int(starts[0]) != 0 or int(starts[-1]) != len(columns) or bool((counts < 0).any()):
        archive.fail(f"{key}_indptr", f"does not ascend from 0 to the number of {key}_indices, {len(columns)}")
    values = torch.ones(len(columns))
    if f"{key}_data" in archive:
        values = torch.from_numpy(archive.numbers(f"{key}_data", 1))
        if len(values) != len(columns):
            archive.fail(f"{key}_data", f"has {len(values)} entries; it must have {len(columns)}, one for each index")
    dense = torch.zeros(rows, width)
    dense[torch.arange(rows).repeat_interleave(counts), columns] = values
    return dense
