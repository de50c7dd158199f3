import os
from pathlib import Path

import numpy as np
import pytest
import torch

from dacergnn import datasets
from dacergnn.errors import DatasetError

COUNTS = {
    "aifb": (7_262, 48_810, 7, 104, 0.498),
    "mutag": (27_163, 148_100, 5, 50, 0.515),
    "cora": (2_708, 10_556, 1, 1, 0.257),
    "heco_dblp": (26_128, 239_566, 4, 6, 0.229),
    "shapes_knn20": (8_192, 163_840, 1, 1, 0.050),
}

real = pytest.mark.skipif(not os.environ.get("DACERGNN_DATA"), reason="DACERGNN_DATA is not set")


@real
@pytest.mark.parametrize("name", COUNTS)
def test_real_graphs(name: str):
    data = datasets.resolve(name)
    graph = data.graph
    nodes, edges, node_types, edge_types, compaction = COUNTS[name]
    assert tuple(graph.size(space) for space in ("NS", "E", "T", "R")) == (
        nodes,
        edges,
        node_types,
        edge_types,
    )
    assert data.compaction_ratio == pytest.approx(compaction, abs=1e-3)
    assert graph.edge_perm is None
    assert graph.node_ranges is not None
    for node_type, features in data.features.items():
        start, stop = graph.node_ranges[graph.node_type_names.index(node_type)]
        assert features.dtype == torch.float32
        assert len(features) == stop - start


@real
def test_real_labels_and_splits():
    data = datasets.load("aifb")
    assert data.target_node_type == "Personen"
    assert data.num_classes == len(data.class_names) == 4
    assert data.label is not None
    assert data.train_idx is not None
    assert data.test_idx is not None
    assert data.val_idx is None
    assert (len(data.train_idx), len(data.test_idx)) == (140, 36)
    assert (data.label[data.train_idx] >= 0).all()
    assert len(datasets.load("heco_dblp").extra["train_idx_40"]) == 160


def write(path: Path, **changes: object) -> None:
    arrays = {
        "num_nodes_per_type": np.array([2, 1]),
        "node_type_names": np.array(["a", "b"]),
        "edge_type_names": np.array(["a:r:b"]),
        "src": np.array([0, 1], dtype=np.int32),
        "dst": np.array([2, 2], dtype=np.int32),
        "etype": np.array([0, 0], dtype=np.int16),
        "feat_a_indptr": np.array([0, 1, 3]),
        "feat_a_indices": np.array([2, 0, 1], dtype=np.int16),
        "feat_a_shape": np.array([2, 3]),
        "feat_b": np.array([[0.5]], dtype=np.float32),
        "edge_split": np.array([0, 2], dtype=np.int8),
        "graph_id": np.array([0, 0, 1], dtype=np.int32),
        **changes,
    }
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})


def test_file_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "aifb.npz")
    monkeypatch.setenv("DACERGNN_DATA", str(tmp_path))
    data = datasets.load("aifb")
    assert data.features["a"].tolist() == [[0, 0, 1], [1, 1, 0]]
    assert data.features["b"].tolist() == [[0.5]]
    assert data.edge_split is not None
    assert data.edge_split.tolist() == [0, 2]
    assert data.graph_id is not None
    assert data.graph_id.tolist() == [0, 0, 1]
    assert data.num_classes == 0
    assert data.graph.node_ranges == ((0, 2), (2, 3))
    write(tmp_path / "cora.npz", feat_a_data=np.array([1.5, 2.5, 3.5]), label=np.array([1, -1, 0]))
    data = datasets.load("cora")
    assert data.features["a"].tolist() == [[0, 0, 1.5], [2.5, 3.5, 0]]
    assert data.num_classes == 2


def test_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACERGNN_DATA", str(tmp_path))
    path = tmp_path / "aifb.npz"
    write(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DatasetError, match=r"aifb.npz cannot be read \(.*\); replace the file"):
        datasets.load("aifb")
    path.write_bytes(b"no archive")
    with pytest.raises(DatasetError, match="cannot be read"):
        datasets.load("aifb")
    write(path, etype=None, dst=None)
    with pytest.raises(DatasetError, match=r"aifb\.npz lacks dst, etype; it is no graph file"):
        datasets.load("aifb")
    write(path, feat_a_shape=None)
    with pytest.raises(DatasetError, match="feat_a has feat_a_indptr, but no feat_a_indices or feat_a_shape"):
        datasets.load("aifb")


def test_unknown_names():
    with pytest.raises(DatasetError, match=r"There is no dataset 'reddit'; known are aifb, .*name~scale for aifb, am"):
        datasets.load("reddit")
    with pytest.raises(DatasetError, match="There is no synthetic dataset 'cora'; known are aifb, am"):
        datasets.resolve("cora~")
    for spec in ("am~fast", "am~-1", "am~0", "am~inf"):
        with pytest.raises(DatasetError, match="positive number"):
            datasets.resolve(spec)
