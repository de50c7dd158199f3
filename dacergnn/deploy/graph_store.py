"""Builds the library of the graph store, from which exported models take batches while the graph changes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dacergnn.deploy.linking import INCLUDE_FOLDER, link
from dacergnn.deploy.processors import SECTIONS, processors
from dacergnn.deploy.sources import Source
from dacergnn.errors import DacergnnError

_FOLDER = INCLUDE_FOLDER / "graph_store"
_SAMPLING = Path(__file__).parents[1] / "sampler" / "include"
"""The headers of the samplers; a store needs no PyG, for which the Python of the samplers asks."""


def export_store(folder: str | Path, *, target_cpu: str | Sequence[str] = "native") -> tuple[Path, Path]:
    """Writes ``libstore.so`` and its header ``store.h``, which need neither Python nor torch when they run.

    Args:
        folder: Where the files are written; it is made if it is missing.
        target_cpu: The kind of processor, as for `export`; one kind only.

    Returns:
        The paths of the library and of the header.

    Raises:
        UnsupportedMachineError: There is no compiler for the processor.
        DacergnnError: There is no such kind of processor, or there are several.
    """
    kinds = processors([target_cpu] if isinstance(target_cpu, str) else list(target_cpu))
    if len(kinds) > 1:
        raise DacergnnError(f"target_cpu={target_cpu!r}: a store is built for one kind of processor.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    library, header = target / "libstore.so", target / "store.h"
    with tempfile.TemporaryDirectory(dir=target) as work:
        path = Path(work) / "store_c.cpp"
        shutil.copy(_FOLDER / path.name, path)
        command = (*kinds[0].command, *SECTIONS, "-fvisibility=default", f"-I{_FOLDER}", f"-I{_SAMPLING}")
        link([Source(path, kinds[0], command)], kinds[0].link_command(library.name), Path(work) / library.name)
        (Path(work) / library.name).replace(library)
    shutil.copy(_FOLDER / "store_c.h", header)
    return library, header
