"""Loading through PyG and DGL, with stand-ins for their modules: nothing reaches the network."""

import types
from pathlib import Path

import numpy as np
import pytest
import torch

from dacergnn import datasets
from dacergnn.datasets import loaders
from dacergnn.errors import DatasetError


def libraries(monkeypatch: pytest.MonkeyPatch, **modules: object) -> None:
    """Only these modules can be imported by the loaders; nothing reaches the network."""

    def import_module(name: str) -> object:
        key = name.replace(".", "_")
        if key not in modules:
            raise ImportError(f"No module named {name!r}")
        return modules[key]

    monkeypatch.setattr(loaders.importlib, "import_module", import_module)


def test_unreachable_datasets_say_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def offline(*args: object, **kwargs: object) -> None:
        raise ConnectionError("no route to host")

    libraries(monkeypatch, torch_geometric_datasets=types.SimpleNamespace(Entities=offline))
    monkeypatch.setenv("DACERGNN_DATA", str(tmp_path))
    with pytest.raises(DatasetError) as caught:
        datasets.load("mutag")
    assert str(caught.value) == (
        f"Dataset 'mutag' could not be loaded: {tmp_path}/mutag.npz does not exist; dgl cannot be imported "
        "(ImportError: No module named 'dgl.data'); torch_geometric's loader failed (ConnectionError: no "
        "route to host). Set DACERGNN_DATA to a folder that holds mutag.npz, or install torch_geometric, "
        "dgl or ogb and allow network access for its download."
    )
    monkeypatch.delenv("DACERGNN_DATA")
    with pytest.raises(DatasetError, match="DACERGNN_DATA is not set; PyG and DGL have no loader for it"):
        datasets.load("mag_cut10")


def test_pyg_loaders(monkeypatch: pytest.MonkeyPatch):
    data_module = pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0, 1], [1, 2]])
    entities = data_module.Data(
        edge_index=edges, edge_type=torch.tensor([1, 0]), num_nodes=3, train_idx=torch.tensor([0]),
        train_y=torch.tensor([1]), test_idx=torch.tensor([2]), test_y=torch.tensor([0]),
    )  # fmt: skip
    planetoid = data_module.Data(
        x=torch.ones(3, 2),
        edge_index=edges,
        y=torch.tensor([2, 0, 1]),
        val_mask=torch.tensor([False, True, False]),
    )
    imdb = data_module.HeteroData()
    imdb["movie"].x = torch.ones(2, 3)
    imdb["actor"].x, imdb["actor"].y = torch.ones(1, 3), torch.tensor([4])
    imdb["actor"].train_mask = torch.tensor([True])
    imdb["actor", "in", "movie"].edge_index = torch.tensor([[0], [1]])
    module = types.SimpleNamespace(
        Entities=lambda root, name: [entities],
        Planetoid=lambda root, name: [planetoid],
        IMDB=lambda root: [imdb],
    )
    libraries(monkeypatch, torch_geometric_datasets=module)
    monkeypatch.delenv("DACERGNN_DATA", raising=False)

    loaded = datasets.load("mutag")
    assert loaded.label is not None
    assert loaded.label.tolist() == [1, -1, 0]
    assert loaded.graph.size("R") == 2
    loaded = datasets.load("cora")
    assert loaded.features["0"].shape == (3, 2)
    assert loaded.val_idx is not None
    assert loaded.val_idx.tolist() == [1]
    loaded = datasets.load("imdb")
    assert loaded.target_node_type == "actor"
    assert loaded.label is not None
    assert loaded.label.tolist() == [-1, -1, 4]
    assert loaded.train_idx is not None
    assert loaded.train_idx.tolist() == [2]


def test_dgl_loaders(monkeypatch: pytest.MonkeyPatch):
    dgl = pytest.importorskip("dgl")
    g = dgl.heterograph({("a", "r", "b"): ([0], [1]), ("b", "s", "a"): ([1], [0])})
    g.nodes["b"].data["label"] = torch.tensor([1, 0])
    g.nodes["b"].data["test_mask"] = torch.tensor([0, 1], dtype=torch.uint8)
    libraries(monkeypatch, dgl_data=types.SimpleNamespace(MUTAGDataset=lambda raw_dir, verbose: [g]))
    monkeypatch.delenv("DACERGNN_DATA", raising=False)
    loaded = datasets.load("mutag")
    assert loaded.target_node_type == "b"
    assert loaded.test_idx is not None
    assert loaded.test_idx.tolist() == [2]
    assert loaded.graph.size("R") == 2


def test_ogb_loaders(monkeypatch: pytest.MonkeyPatch):
    data_module = pytest.importorskip("torch_geometric.data")
    ends = np.array([[0, 1], [2, 0]])
    graphs = {
        "ogbl-biokg": {
            "edge_index_dict": {("drug", "treats", "disease"): ends},
            "edge_reltype": {("drug", "treats", "disease"): np.zeros((2, 1), np.int64)},
            "num_nodes_dict": {"disease": 3, "drug": 2},
        },
        "ogbl-wikikg2": {"edge_index": ends, "edge_reltype": np.array([[4], [1]]), "num_nodes": 3},
    }
    module = types.SimpleNamespace(LinkPropPredDataset=lambda name, root: [graphs[name]])
    libraries(monkeypatch, ogb_linkproppred=module, torch_geometric_data=data_module)
    monkeypatch.delenv("DACERGNN_DATA", raising=False)
    typed, plain = datasets.load("biokg").graph, datasets.load("wikikg2").graph
    assert (typed.size("E"), typed.size("NS"), typed.size("T")) == (2, 5, 2)
    assert (plain.size("E"), plain.size("NS"), plain.size("R")) == (2, 3, 5)


def test_saved_objects_of_pyg(tmp_path: Path):
    data_module = pytest.importorskip("torch_geometric.data")
    hetero = data_module.HeteroData()
    hetero["movie"].x, hetero["actor"].num_nodes = torch.ones(2, 3), 4
    hetero["actor", "in", "movie"].edge_index = torch.tensor([[3, 0], [1, 0]])
    torch.save(hetero, tmp_path / "films.pt")
    loaded = datasets.load(str(tmp_path / "films.pt"))
    assert (loaded.name, loaded.graph.size("NS"), loaded.features["movie"].shape) == ("films", 6, (2, 3))
    edges = torch.tensor([[0, 1], [1, 2]])
    torch.save(data_module.Data(edge_index=edges, y=torch.tensor([2, 0, 1]), num_nodes=3), tmp_path / "one.pt")
    assert datasets.load(str(tmp_path / "one.pt")).num_classes == 3


class Harmful:
    def __reduce__(self) -> object:
        return Path.touch, (Path("touched"),)


def test_saved_files_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch_geometric")
    monkeypatch.chdir(tmp_path)
    torch.save({"edge_index": torch.zeros(2, 1)}, "dictionary.pt")
    torch.save(Harmful(), "harmful.pt")
    for name, text in (
        ("none.npz", r"none\.npz does not exist; name a file"),
        ("dictionary.pt", "holds a dict; save a Data or HeteroData"),
        ("harmful.pt", r"harmful\.pt cannot be read .*save a Data or HeteroData"),
    ):  # fmt: skip
        with pytest.raises(DatasetError, match=text):
            datasets.load(name)
    assert not Path("touched").exists()
