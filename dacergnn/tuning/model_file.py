"""Finds the file of the performance model that decides: the user's, else that of this machine, else the shipped one."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import torch

from dacergnn.errors import DacergnnError
from dacergnn.native.cache import cache_folder
from dacergnn.native.processor import features

SHIPPED = Path(__file__).with_name("model.npz")
"""File of the model that comes with the package; `python -m benchmarks model train --out` made it."""


def own_file(threads: int | None = None) -> Path:
    """Returns where `dacergnn tune calibrate` puts the model of this machine's processor and a number of threads."""
    text = features()
    name = next((line.partition(":")[2] for line in text.splitlines() if line.startswith("model name")), "")
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "processor"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return cache_folder() / "models" / f"model-{words}-{digest}-{threads or torch.get_num_threads()}.npz"


def model_file(chosen: str | None) -> Path:
    """Returns the file of the model: the ``chosen`` one, else that of this machine, else the shipped one.

    Raises:
        DacergnnError: The chosen file does not exist.
    """
    if chosen is not None:
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise DacergnnError(f"model={chosen!r} does not exist; name a file of `dacergnn tune calibrate`.")
        return path
    own = own_file()
    return own if own.is_file() else SHIPPED


def model_digest(chosen: str | None) -> str:
    """Returns a hash of the model that decides; "" for the shipped one."""
    path = model_file(chosen)
    return "" if path == SHIPPED else _digest(path, path.stat().st_mtime_ns)


@cache
def _digest(path: Path, changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:20]
