"""Datasets: real graphs by name, and synthetic graphs with the counts of published benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

from dacergnn.datasets.dataset import Dataset
from dacergnn.datasets.files import read_file
from dacergnn.datasets.loaders import DOWNLOADED, load_from_libraries, read_saved, was_downloaded
from dacergnn.datasets.synthetic import SYNTHETIC_NAMES, synthetic
from dacergnn.errors import DatasetError

__all__ = [
    "DOWNLOADED",
    "NAMES",
    "SYNTHETIC_NAMES",
    "Dataset",
    "load",
    "on_this_machine",
    "resolve",
    "synthetic",
    "twin",
]

NAMES = (
    *("aifb", "mutag", "fb15k237", "wn18rr", "mag_cut10", "heco_acm", "heco_dblp", "heco_freebase", "imdb"),
    *("cora", "citeseer", "pubmed", "shapes_knn20", "bgs", "am", "mag", "biokg", "wikikg2", "fb15k"),
)
"""Names of known real datasets; DACERGNN_DATA may hold others."""
PACKAGED = Path(__file__).with_name("graphs")
"""Folder of the real graphs that come with this package, each with a text on its source and licence."""


def load(name: str) -> Dataset:
    """Loads a dataset by its name, as on the command line.

    Args:
        name: ``aifb`` is a real one: ``aifb.npz`` in the folder DACERGNN_DATA, which may hold any file, else the file
            that comes with this package. Other real ones can also be from a loader of PyG, DGL or OGB. ``am~0.1`` is a
            synthetic one at that scale, ``am~`` one at full scale. A path that ends in ``.npz`` or ``.pt`` is a file of
            one's own: arrays as `datasets.files` describes them, or a ``Data`` or ``HeteroData`` of PyG that
            torch.save wrote.

    Raises:
        DatasetError: The name is unknown, the scale is not a positive number, or no source works; the error lists the
            attempts and a remedy.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DatasetError(f"name is a {type(name).__name__}; pass a name such as 'aifb' or 'am~0.1'.")
    if name.endswith((".npz", ".pt")):
        return _own_file(Path(name))
    family, tilde, scale = name.partition("~")
    if tilde:
        return synthetic(family, _scale(name, scale))
    path = _known_file(name)
    if path is not None:
        return read_file(name, path)
    if name not in NAMES:
        raise DatasetError(
            f"There is no dataset {name!r}; known are {', '.join(NAMES)}, and synthetic ones as "
            f"name~scale for {', '.join(SYNTHETIC_NAMES)}."
        )
    folder = data_folder()
    tried = ["DACERGNN_DATA is not set" if folder is None else f"{folder / name}.npz does not exist"]
    dataset = load_from_libraries(name, tried)
    if dataset is not None:
        return dataset
    raise DatasetError(
        f"Dataset {name!r} could not be loaded: {'; '.join(tried)}. Set DACERGNN_DATA to a folder that holds "
        f"{name}.npz, or install torch_geometric, dgl or ogb and allow network access for its download."
    )


def _own_file(path: Path) -> Dataset:
    """Returns the dataset of a file by its path; its name is that of the file."""
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise DatasetError(f"{path}: {error}; name a file.") from None
    if not path.is_file():
        raise DatasetError(f"{path} does not exist; name a file that ends in .npz or .pt.")
    return read_file(path.stem, path) if path.suffix == ".npz" else read_saved(path)


def on_this_machine(name: str) -> bool:
    """Tells whether a real graph can be loaded without a download: from a file, or from what a library fetched."""
    return _known_file(name) is not None or was_downloaded(name)


def _known_file(name: str) -> Path | None:
    """Returns the file of a real graph in DACERGNN_DATA, else in this package; None if neither holds it."""
    for folder in (data_folder(), PACKAGED):
        path = None if folder is None else folder / f"{name}.npz"
        # The name must be a plain file name, not a path to another folder.
        if path is not None and path.parent == folder and path.is_file():
            return path
    return None


def twin(name: str) -> str:
    """Returns the name of the synthetic graph with the counts of the real graph `name`."""
    return _TWINS.get(name, f"{name}~")


_TWINS = {"fb15k237": "fb15k~", "mag_cut10": "mag~0.02"}
"""Synthetic graphs whose names are not those of the real ones."""

resolve = load
"""Another name of `load`, from the command line."""


def data_folder() -> Path | None:
    """Returns the folder of dataset files, DACERGNN_DATA; None if that is not set.

    Raises DatasetError if it starts with the home of an unknown user.
    """
    configured = os.environ.get("DACERGNN_DATA")
    try:
        return Path(configured).expanduser() if configured else None
    except RuntimeError as error:
        raise DatasetError(f"DACERGNN_DATA is {configured!r}, but {error}; set it to a folder.") from None


def _scale(name: str, scale: str) -> float:
    try:
        return float(scale) if scale else 1.0
    except ValueError:
        example = f"{name.partition('~')[0]}~0.1"
        raise DatasetError(f"{name!r} has the scale {scale!r}; write a positive number, e.g. {example}.") from None
