"""Graphs to run on: real ones by name, synthetic ones with the counts of published benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

from dacergnn.datasets.dataset import Dataset
from dacergnn.datasets.files import read_file
from dacergnn.datasets.loaders import load_from_libraries
from dacergnn.datasets.synthetic import SYNTHETIC_NAMES, synthetic
from dacergnn.errors import DatasetError

__all__ = ["NAMES", "SYNTHETIC_NAMES", "Dataset", "load", "resolve", "synthetic"]

NAMES = (
    *("aifb", "mutag", "fb15k237", "wn18rr", "mag_cut10", "heco_acm", "heco_dblp", "heco_freebase", "imdb"),
    *("cora", "citeseer", "pubmed", "shapes_knn20"),
)
"""Names that `load` knows."""


def load(name: str) -> Dataset:
    """A real dataset: from `<name>.npz` in the folder DACERGNN_DATA, else by PyG's or DGL's own loader.

    DatasetError if the name is unknown or no source works; it says what was tried and what helps.
    """
    if name not in NAMES:
        raise DatasetError(
            f"There is no dataset {name!r}; known are {', '.join(NAMES)}, and synthetic ones as "
            f"name~scale for {', '.join(SYNTHETIC_NAMES)}."
        )
    tried: list[str] = []
    folder = os.environ.get("DACERGNN_DATA")
    if folder:
        path = Path(folder) / f"{name}.npz"
        if path.is_file():
            return read_file(name, path)
        tried.append(f"{path} does not exist")
    else:
        tried.append("DACERGNN_DATA is not set")
    dataset = load_from_libraries(name, tried)
    if dataset is not None:
        return dataset
    raise DatasetError(
        f"Dataset {name!r} could not be loaded: {'; '.join(tried)}. Set DACERGNN_DATA to a folder that holds "
        f"{name}.npz, or install torch_geometric or dgl and allow network access for its download."
    )


def resolve(spec: str) -> Dataset:
    """Dataset of a name as on the command line: `aifb` is real, `am~0.1` synthetic at that scale, `am~` full.

    DatasetError if the name is unknown or the scale is no positive number.
    """
    name, tilde, scale = spec.partition("~")
    if not tilde:
        return load(name)
    try:
        return synthetic(name, float(scale) if scale else 1.0)
    except ValueError as error:
        raise DatasetError(f"{spec!r} has the scale {scale!r}; write a positive number, e.g. {name}~0.1.") from error
