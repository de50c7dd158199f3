import os
from pathlib import Path
from zipfile import ZipFile

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


@pytest.mark.parametrize("folder", [None, "empty"])
def test_aifb_comes_with_the_package(folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DACERGNN_DATA", raising=False)
    if folder is not None:
        monkeypatch.setenv("DACERGNN_DATA", str(tmp_path))
    assert datasets.on_this_machine("aifb")
    data = datasets.load("aifb")
    assert (data.graph.size("NS"), data.graph.size("E"), data.num_classes) == (7262, 48810, 4)
    assert data.target_node_type == "Personen"
    for path in datasets.PACKAGED.glob("*.npz"):
        assert path.stat().st_size <= 200_000
        assert "licence" in path.with_suffix(".txt").read_text()


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


def with_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DACERGNN_DATA", str(folder))


NUMBERS = "it must hold integers in one dimension"
BAD: list[tuple[dict[str, object], str]] = [
    # The graph
    ({"src": np.array([0.7, 1.2])}, f"src has dtype float64 and shape [2]; {NUMBERS}"),
    ({"src": np.array(["0", "1"])}, f"src has dtype <U1 and shape [2]; {NUMBERS}"),
    ({"src": np.array([0, -1])}, "src holds -1; it must hold no less than 0"),
    ({"src": np.array([[0, 1]])}, f"src has dtype int64 and shape [1, 2]; {NUMBERS}"),
    ({"dst": np.array([2, 3])}, "dst holds 3, but there are 3 nodes"),
    ({"dst": np.array([2])}, "dst has 1 entries; it must have 2 (nodes)"),
    ({"etype": np.array([0, 1])}, "etype holds 1, but there are 1 edge types"),
    ({"etype": np.array([0, 2**63], dtype=np.uint64)}, f"etype holds {2**63}, but there are 1 edge types"),
    ({"num_nodes_per_type": np.array([2.0, 1.0])}, f"num_nodes_per_type has dtype float64 and shape [2]; {NUMBERS}"),
    ({"num_nodes_per_type": np.array([2, -1])}, "num_nodes_per_type holds -1; it must hold no less than 0"),
    ({"num_nodes_per_type": np.array([3])},
     "num_nodes_per_type has 1 entries; it must have 2 (one for each of node_type_names)"),
    ({"num_nodes_per_type": np.array(3)}, f"num_nodes_per_type has dtype int64 and shape []; {NUMBERS}"),
    ({"num_nodes_per_type": np.array([2, 10**15])},
     "num_nodes_per_type asks for 7,450,581 GiB, more than half of the memory of this machine"),
    ({"node_type_names": np.array("ab")},
     "node_type_names has dtype <U2 and shape []; it must hold strings in one dimension"),
    ({"node_type_names": np.array(["a", "a"])}, "node_type_names holds 'a' twice"),
    ({"edge_type_names": np.array([1])},
     "edge_type_names has dtype int64 and shape [1]; it must hold strings in one dimension"),
    # Features
    ({"feat_b": np.zeros((9, 1))}, "feat_b has 9 rows; it must have 1, one for each node of the type"),
    ({"feat_b": np.array([["x"]])},
     "feat_b has dtype <U1 and shape [1, 1]; it must hold real numbers in two dimensions"),
    ({"feat_b": np.array([0.5])},
     "feat_b has dtype float64 and shape [1]; it must hold real numbers in two dimensions"),
    ({"feat_c": np.zeros((3, 1))}, "feat_c belongs to no node type; there are a, b"),
    ({"feat_a_indptr": None}, "feat_a_indices belongs to no node type; there are a, b"),
    ({"feat_a_indices": np.array([2, 0, 3])}, "feat_a_indices holds 3, but there are 3 columns"),
    ({"feat_a_indices": np.array([2, 0, -1])}, "feat_a_indices holds -1; it must hold no less than 0"),
    ({"feat_a_indptr": np.array([0, 1, 4])},
     "feat_a_indptr does not ascend from 0 to the number of feat_a_indices, 3"),
    ({"feat_a_indptr": np.array([0, 5, 3])},
     "feat_a_indptr does not ascend from 0 to the number of feat_a_indices, 3"),
    ({"feat_a_indptr": np.array([0, 3])},
     "feat_a_indptr has 2 entries; it must have 3 (one for each row, and the end)"),
    ({"feat_a_shape": np.array([9, 3])}, "feat_a_shape is for 9 rows; it must be for 2, one for each node of the type"),
    ({"feat_a_shape": np.array([2, 2**61])},
     "feat_a_shape asks for 17,179,869,184 GiB, more than half of the memory of this machine"),
    ({"feat_a_shape": np.array([2, -3])}, "feat_a_shape holds -3; it must hold no less than 0"),
    ({"feat_a_data": np.array([1.0])}, "feat_a_data has 1 entries; it must have 3, one for each index"),
    ({"feat_a_data": np.array(["x", "y", "z"])},
     "feat_a_data has dtype <U1 and shape [3]; it must hold real numbers in one dimension"),
    # What belongs to nodes and edges
    ({"label": np.array([0, 1])}, "label has 2 entries; it must have 3 (one for each node)"),
    ({"label": np.array([0.0, 1.0, 0.0])}, f"label has dtype float64 and shape [3]; {NUMBERS}"),
    ({"label": np.array([0, 2, -1]), "class_names": np.array(["x", "y"])}, "label holds 2, but there are 2 classes"),
    ({"train_idx": np.array([0, 3])}, "train_idx holds 3, but there are 3 nodes"),
    ({"edge_split": np.array([0])}, "edge_split has 1 entries; it must have 2 (one for each edge)"),
    ({"graph_id": np.array([0, 0])}, "graph_id has 2 entries; it must have 3 (one for each node)"),
    ({"target_node_type": np.array("c")}, "target_node_type is 'c'; node types are a, b"),
    ({"target_node_type": np.array(["a"])}, "target_node_type has dtype <U1 and shape [1]; it must hold a string"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "problem"), BAD, ids=[row[1][:60] for row in BAD])
def test_files_that_describe_no_graph(
    changes: dict[str, object], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with_folder(tmp_path, monkeypatch)
    write(tmp_path / "aifb.npz", **changes)
    with pytest.raises(DatasetError) as caught:
        datasets.load("aifb")
    assert str(caught.value) == f"{tmp_path / 'aifb.npz'}: {problem}; correct or replace the file."


def flip(content: bytes) -> bytes:
    """The file with the deflated bytes of its first member changed."""
    place = content.index(b"num_nodes_per_type.npy") + 60
    return content[:place] + bytes(255 - b for b in content[place : place + 20]) + content[place + 20 :]


def test_damaged_in_other_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_folder(tmp_path, monkeypatch)
    path = tmp_path / "aifb.npz"
    np.savez_compressed(path, num_nodes_per_type=np.arange(1000))
    path.write_bytes(flip(path.read_bytes()))
    with pytest.raises(DatasetError, match=r"aifb.npz cannot be read"):
        datasets.load("aifb")
    with path.open("wb") as stream:
        np.save(stream, np.arange(3))
    with pytest.raises(DatasetError, match=r"aifb.npz cannot be read \(it is a lone array, no archive"):
        datasets.load("aifb")
    np.savez(path, src=np.array([{}], dtype=object))
    with pytest.raises(DatasetError, match=r"aifb.npz cannot be read"):
        datasets.load("aifb")


def test_other_files_in_an_archive_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_folder(tmp_path, monkeypatch)
    write(tmp_path / "aifb.npz")
    with ZipFile(tmp_path / "aifb.npz", "a") as archive:
        archive.writestr("README.md", "what this is")
    assert datasets.load("aifb").graph.size("E") == 2


def test_any_file_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("DACERGNN_DATA", "~/own")
    write(tmp_path / "own" / "my.graph.npz")
    assert datasets.load("my.graph").name == "my.graph"
    write(tmp_path / "outside.npz")
    assert datasets.load(str(tmp_path / "outside.npz")).name == "outside"
    for name in ("../outside", str(tmp_path / "outside"), "other"):
        with pytest.raises(DatasetError, match="There is no dataset"):
            datasets.load(name)
    monkeypatch.setenv("DACERGNN_DATA", "~nobody-of-this-name/data")
    with pytest.raises(DatasetError, match="DACERGNN_DATA is '~nobody-of-this-name/data', but Could not determine"):
        datasets.load("aifb")


def test_synthetic_graphs_by_name():
    assert datasets.load("aifb~0.1").name == "aifb~0.1"
    assert datasets.load("clouds~0.03125").graph.size("NS") == 1024


def test_unknown_names():
    with pytest.raises(DatasetError, match=r"There is no dataset 'reddit'; known are aifb, .*name~scale for aifb, am"):
        datasets.load("reddit")
    with pytest.raises(DatasetError, match="There is no synthetic dataset 'imdb'; known are aifb, am"):
        datasets.resolve("imdb~")
    for spec in ("am~fast", "am~-1", "am~0", "am~inf", "am~nan", "am~0.1~2"):
        with pytest.raises(DatasetError, match="positive number"):
            datasets.load(spec)
    for name in ("am", "clouds"):
        with pytest.raises(DatasetError, match=f"scale is 1e\\+300, at which {name} has .* edges, more than half"):
            datasets.load(f"{name}~1e300")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: datasets.load(5), "name is a int; pass a name such as 'aifb' or 'am~0.1'."),
        (lambda: datasets.load(None), "name is a NoneType; pass a name such as 'aifb' or 'am~0.1'."),
        (lambda: datasets.synthetic("am", "0.1"), "scale is '0.1'; it must be a positive number."),
        (lambda: datasets.synthetic("am", True), "scale is True; it must be a positive number."),
        (lambda: datasets.synthetic("am", 0.1, seed=-1), "seed is -1; it must be an integer from 0 on."),
        (lambda: datasets.synthetic("am", 0.1, seed=0.5), "seed is 0.5; it must be an integer from 0 on."),
    ],
)
def test_arguments_of_the_wrong_kind(call, message: str):
    with pytest.raises(DatasetError) as caught:
        call()
    assert str(caught.value) == message
