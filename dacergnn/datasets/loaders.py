"""Loads datasets through PyG, DGL and OGB, which download them; all are imported only when needed."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from platformdirs import user_cache_path
from torch import Tensor

from dacergnn.datasets.dataset import Dataset
from dacergnn.errors import DatasetError
from dacergnn.graph import HeteroGraph

Loader = Callable[[ModuleType, str], Any]


def _dgl(name: str, **options: Any) -> tuple[str, Loader]:
    return "dgl.data", lambda module, root: getattr(module, name)(raw_dir=root, verbose=False, **options)[0]


def _pyg(name: str, *args: str) -> tuple[str, Loader]:
    return "torch_geometric.datasets", lambda module, root: getattr(module, name)(root, *args)[0]


def _ogb(name: str) -> tuple[str, Loader]:
    return "ogb.linkproppred", lambda module, root: module.LinkPropPredDataset(name, root)[0]


LOADERS: Mapping[str, tuple[tuple[str, Loader], ...]] = {
    # DGL's RDF graphs come first: they are the ones that benchmarks of relational systems use.
    "mutag": (_dgl("MUTAGDataset"), _pyg("Entities", "MUTAG")),
    "bgs": (_dgl("BGSDataset"), _pyg("Entities", "BGS")),
    "am": (_dgl("AMDataset"), _pyg("Entities", "AM")),
    "mag": (_pyg("OGB_MAG"),),
    "biokg": (_ogb("ogbl-biokg"),),
    "wikikg2": (_ogb("ogbl-wikikg2"),),
    "fb15k": (_dgl("FB15kDataset"),),
    "fb15k237": (_dgl("FB15k237Dataset"), _pyg("RelLinkPredDataset", "FB15k-237")),
    "wn18rr": (_pyg("WordNet18RR"),),
    "imdb": (_pyg("IMDB"),),
    "cora": (_pyg("Planetoid", "Cora"), _dgl("CoraGraphDataset")),
    "citeseer": (_pyg("Planetoid", "CiteSeer"), _dgl("CiteseerGraphDataset")),
    "pubmed": (_pyg("Planetoid", "PubMed"), _dgl("PubmedGraphDataset")),
}
"""Pairs (module, function that returns its graph), in the order to try."""


DOWNLOADED = tuple(LOADERS)
"""Names of graphs that PyG or DGL can download."""


def load_from_libraries(name: str, tried: list[str]) -> Dataset | None:
    """Returns the dataset of the first loader that works; None if all fail, with the reasons added to `tried`."""
    if name not in LOADERS:
        tried.append("PyG and DGL have no loader for it")
    for module_name, loader in LOADERS.get(name, ()):
        library = module_name.partition(".")[0]
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            # A library that does not fit the installed torch fails with anything from ImportError to OSError.
            tried.append(f"{library} cannot be imported ({_short(error)})")
            continue
        try:
            # They report their downloads on standard output, where a command's result belongs.
            with contextlib.redirect_stdout(sys.stderr):
                data = loader(module, str(_download_folder() / library / name))
        except Exception as error:
            tried.append(f"{library}'s loader failed ({_short(error)})")
            continue
        return {"dgl": _of_dgl, "ogb": _of_ogb}.get(library, _of_pyg)(name, data)
    return None


def read_saved(path: Path) -> Dataset:
    """Returns the dataset of a ``Data`` or ``HeteroData`` that torch.save wrote.

    Raises:
        DatasetError: PyG is not installed, or the file holds something else. Code in the file is not run.
    """
    try:
        pyg = importlib.import_module("torch_geometric.data")
    except ImportError as error:
        raise DatasetError(f"{path} is read by PyG, which cannot be imported ({_short(error)}).") from error
    remedy = "save a Data or HeteroData of PyG by torch.save"
    parts = [value for module in (pyg.data, pyg.storage) for value in vars(module).values() if isinstance(value, type)]
    own: list[Any] = [part for part in parts if part.__module__.startswith("torch_geometric.")]
    try:
        with torch.serialization.safe_globals(own):
            saved = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises many kinds for files that are none of its own
        raise DatasetError(f"{path} cannot be read ({_short(error)}); {remedy}.") from error
    if not isinstance(saved, pyg.Data | pyg.HeteroData):
        raise DatasetError(f"{path} holds a {type(saved).__name__}; {remedy}.")
    return _of_pyg(path.stem, saved)


def was_downloaded(name: str) -> bool:
    """Tells whether a library has fetched the dataset before."""
    return any(
        any(path.is_file() for path in (_download_folder() / library / name).rglob("*"))
        for library in ("dgl", "torch_geometric", "ogb")
    )


def _download_folder() -> Path:
    return user_cache_path("dacergnn") / "datasets"


def _short(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    needed = isinstance(error, ModuleNotFoundError) and error.name in _READERS
    return f"{text}; pip install 'dacergnn[data]'" if needed else text


_READERS = ("pandas", "rdflib")
"""Packages that the libraries' loaders of RDF graphs need."""


def _of_dgl(name: str, g: Any) -> Dataset:
    graph = HeteroGraph.from_dgl(g)
    by_type: dict[str, Mapping[str, Tensor]] = {str(t): g.nodes[t].data for t in g.ntypes}
    return _labelled(name, graph, by_type, feature_key="feat", label_keys=("label", "labels"))


def _of_ogb(name: str, data: Any) -> Dataset:
    """Returns a graph whose nodes have types, or whose edges are of one array with a type each."""
    if "edge_index_dict" in data:
        typed: Any = importlib.import_module("torch_geometric.data").HeteroData()
        for node_type, count in data["num_nodes_dict"].items():
            typed[node_type].num_nodes = int(count)
        for edge_type, ends in data["edge_index_dict"].items():
            typed[edge_type].edge_index = torch.as_tensor(ends)
        return Dataset(name, HeteroGraph.from_pyg(typed))
    kinds = torch.as_tensor(data["edge_reltype"]).flatten()
    edges, nodes = torch.as_tensor(data["edge_index"]), int(data["num_nodes"])
    return Dataset(name, HeteroGraph.from_arrays(edges, kinds, num_nodes=nodes))


def _of_pyg(name: str, data: Any) -> Dataset:
    graph = HeteroGraph.from_pyg(data)
    types = list(data.node_types) if hasattr(data, "edge_types") else ["0"]
    by_type = {str(t): dict((data[t] if hasattr(data, "edge_types") else data).items()) for t in types}
    dataset = _labelled(name, graph, by_type, feature_key="x", label_keys=("y",))
    if "train_idx" not in by_type[types[0]]:
        return dataset
    # Entities has labels of its training and test nodes only.
    store = by_type[types[0]]
    label = torch.full((graph.size("NS"),), -1)
    label[store["train_idx"]], label[store["test_idx"]] = store["train_y"], store["test_y"]
    return Dataset(name, graph, dataset.features, label, store["train_idx"], None, store["test_idx"], types[0])


def _labelled(
    name: str,
    graph: HeteroGraph,
    by_type: Mapping[str, Mapping[str, Any]],
    feature_key: str,
    label_keys: tuple[str, ...],
) -> Dataset:
    """Makes a dataset of node data by type: features, and labels and masks of the one type that has them."""
    features = {t: data[feature_key].float() for t, data in by_type.items() if feature_key in data}
    ranges = graph.node_ranges or ()
    for (node_type, data), (start, stop) in zip(by_type.items(), ranges, strict=False):
        label_key = next((key for key in label_keys if key in data), None)
        if label_key is None:
            continue
        label = torch.full((graph.size("NS"),), -1)
        label[start:stop] = data[label_key].long()
        indices = {
            part: data[f"{part}_mask"].nonzero().flatten() + start
            for part in ("train", "val", "test")
            if f"{part}_mask" in data
        }
        train, val, test = (indices.get(part) for part in ("train", "val", "test"))
        return Dataset(name, graph, features, label, train, val, test, node_type)
    return Dataset(name, graph, features)
