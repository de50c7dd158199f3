"""Exports a model as one C library that needs neither Python nor torch."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn
from torch.export import ExportedProgram

from dacergnn.config import Config
from dacergnn.deploy.capture import capture
from dacergnn.deploy.device_sources import DeviceSources, device_config
from dacergnn.deploy.interface import manifest
from dacergnn.deploy.linking import link
from dacergnn.deploy.network import Network
from dacergnn.deploy.processors import processors
from dacergnn.deploy.reader import Reader
from dacergnn.deploy.sources import WEIGHTS, LibrarySources
from dacergnn.errors import DacergnnError
from dacergnn.native.build import compiler_command
from dacergnn.progress import working


@dataclass(frozen=True)
class ExportedLibrary:
    """Describes the files of an exported model: the library, its header, its manifest, and its weights if beside."""

    library: Path
    header: Path
    manifest: Path
    weights: Path | None


def export(
    model: nn.Module | ExportedProgram,
    folder: str | Path,
    *,
    example: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str = "model",
    weights: str = "inside",
    target_cpu: str | Sequence[str] = "native",
    cuda_arch: Sequence[int] | None = None,
) -> ExportedLibrary:
    """Exports a model as ``lib<name>.so`` and ``<name>.h``, which need neither Python nor torch when they run.

    Compiled layers and all operations between them are in the library. It takes graphs and batches of any size.

    Args:
        model: A model in eval mode, with layers that `optimize` has compiled, or what `torch.export.export` made of it.
        folder: Where the files are written; it is made if it is missing.
        example: The arguments of a call; an exported program needs none.
        kwargs: The keyword arguments of that call.
        dynamic_shapes: The sizes that may differ, as for `torch.export.export`. By default those are the numbers of
            edges of tensors [2, E], and the first axis of all other tensors.
        name: The name of the library, and the prefix of its functions.
        weights: "inside" the library, or in a file "beside" it (safetensors).
        target_cpu: "native" for this machine's processor, "x86-64-v2" to "x86-64-v4", or "aarch64" (needs a cross
            compiler). A list of levels of x86-64 makes one library, which chooses when it is loaded.
        cuda_arch: Compute capabilities without the dot, such as (80, 90), for a library that runs on CUDA devices. It
            takes and gives arrays in memory of the device. It needs nvcc to be made, and no device.

    Raises:
        ArrayError: The model is in training mode.
        UnsupportedCallError: An operation of the model has no form in a C library; the error names it and its place.
        UnsupportedMachineError: There is no compiler for the processor, or no nvcc.
        DacergnnError: An option is wrong.
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) is None:
        raise DacergnnError(f"name={name!r}: use small letters, digits and _, a letter first.")
    if not _names_types(name):
        raise DacergnnError(f"name={name!r} has a meaning in C or C++; use another name, such as {name}_model.")
    if weights not in ("inside", "beside"):
        raise DacergnnError(f'weights={weights!r} is neither "inside" nor "beside".')
    kinds = processors([target_cpu] if isinstance(target_cpu, str) else list(target_cpu))
    config = None if cuda_arch is None else device_config(tuple(cuda_arch), kinds)
    with working(f"exporting {type(model).__name__}"):
        network = _read(model, example, kwargs, dynamic_shapes, config)
        embedded = weights == "inside"
        if config is None:
            return _write(LibrarySources(network, name, kinds, embedded=embedded), Path(folder))
        return _write(DeviceSources(network, name, kinds, config, embedded=embedded), Path(folder))


def _names_types(name: str) -> bool:
    """Tells whether a type of C and of C++ may have a name."""
    text = f"typedef struct {name} {name};"
    commands = [[*compiler_command(), "-x", language, "-fsyntax-only", "-"] for language in ("c", "c++")]
    return not any(
        subprocess.run(c, input=text, capture_output=True, text=True, check=False).returncode for c in commands
    )


def write_sources(model: nn.Module, folder: Path, *, example: tuple[Any, ...], name: str = "model") -> list[Path]:
    """Writes the C++ of a library and its header to a folder, for builds by other commands, such as with sanitizers.

    Returns:
        The files to compile, with the headers of `linking.include_options`. They read the weights in the folder.
    """
    network = _read(model, example, None, None)
    return [s.path for s in LibrarySources(network, name, processors(["native"]), embedded=True).write(folder)]


def _read(
    model: nn.Module | ExportedProgram, example: tuple[Any, ...], kwargs: dict[str, Any] | None, shapes: Any,
    config: Config | None = None,
) -> Network:  # fmt: skip
    if not isinstance(model, ExportedProgram):
        return Reader(capture(model, example, kwargs, shapes), [*signature(model.forward).parameters], config).read()
    known: Any = model.module_call_graph[0].signature
    names = list(known.forward_arg_names or ())  # names of the parameters of `forward`, by position
    count = len(model.call_spec.in_spec.children()[0].children()) if model.call_spec.in_spec else 0
    names += [f"arg{i}" for i in range(len(names), count)]
    return Reader(model.run_decompositions({}), names, config).read()


def _write(sources: LibrarySources, folder: Path) -> ExportedLibrary:
    """Builds the library, and writes the files beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = sources.name
    library, described = folder / sources.library, folder / f"{name}.json"
    weights = None if sources.embedded else folder / WEIGHTS
    with tempfile.TemporaryDirectory(dir=folder) as work:
        built = Path(work) / library.name
        link(sources.write(Path(work)), sources.link_command(), built)
        # A process may have the library of an earlier export loaded, so no file is written to.
        built.replace(library)
        if weights is not None:
            (Path(work) / WEIGHTS).replace(weights)
    content = sources.weights.bytes()
    facts = {
        **sources.machines,
        "fingerprint": sources.fingerprint,
        "weights": {
            "file": None if weights is None else WEIGHTS,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        },
    }
    text = json.dumps(manifest(name, sources.network, facts), indent=2)
    described.write_text(text + "\n")
    return ExportedLibrary(library, sources.write_header(folder), described, weights)
