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

from dacergnn.deploy.capture import capture
from dacergnn.deploy.interface import header, manifest, source
from dacergnn.deploy.network import Network
from dacergnn.deploy.processors import Processor, processors
from dacergnn.deploy.program_code import ProgramCode, programs_of
from dacergnn.deploy.reader import Reader
from dacergnn.deploy.weights import WeightFile, weight_file
from dacergnn.deploy.writer import CallWriter, used_constants
from dacergnn.errors import BuildError, DacergnnError
from dacergnn.native.build import include_options
from dacergnn.progress import working

INCLUDE_FOLDER = Path(__file__).parent / "include"
WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class ExportedLibrary:
    """Describes the files of an exported model: the library, its header, its manifest, and its weights if beside."""

    library: Path
    header: Path
    manifest: Path
    weights: Path | None


def export(
    model: nn.Module,
    folder: str | Path,
    *,
    example: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str = "model",
    weights: str = "inside",
    target_cpu: str | Sequence[str] = "native",
) -> ExportedLibrary:
    """Exports a model as ``lib<name>.so`` and ``<name>.h``, which need neither Python nor torch when they run.

    Compiled layers and all operations between them are in the library. It takes graphs and batches of any size.

    Args:
        model: A model in eval mode, with layers that `optimize` has compiled.
        folder: Where the files are written; it is made if it is missing.
        example: The arguments of a call.
        kwargs: The keyword arguments of that call.
        dynamic_shapes: The sizes that may differ, as for `torch.export.export`. By default those are the numbers of
            edges of tensors [2, E], and the first axis of all other tensors.
        name: The name of the library, and the prefix of its functions.
        weights: "inside" the library, or in a file "beside" it (safetensors).
        target_cpu: "native" for this machine's processor, "x86-64-v2" to "x86-64-v4", or "aarch64" (needs a cross
            compiler). A list of levels of x86-64 makes one library, which chooses when it is loaded.

    Raises:
        ArrayError: The model is in training mode.
        UnsupportedCallError: An operation of the model has no form in a C library; the error names it and its place.
        UnsupportedMachineError: There is no compiler for the processor.
        DacergnnError: An option is wrong.
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) is None:
        raise DacergnnError(f"name={name!r}: use small letters, digits and _, a letter first.")
    if weights not in ("inside", "beside"):
        raise DacergnnError(f'weights={weights!r} is neither "inside" nor "beside".')
    kinds = processors([target_cpu] if isinstance(target_cpu, str) else list(target_cpu))
    with working(f"exporting {type(model).__name__}"):
        program = capture(model, example, kwargs, dynamic_shapes)
        network = Reader(program, [*signature(model.forward).parameters]).read()
        return _Export(network, name, kinds, Path(folder), embedded=weights == "inside").write()


class _Export:
    def __init__(
        self, network: Network, name: str, kinds: Sequence[Processor], folder: Path, *, embedded: bool
    ) -> None:
        self.network, self.name, self.kinds, self.folder, self.embedded = network, name, kinds, folder, embedded
        self.constants = used_constants(network)
        self.programs = programs_of(network)

    def write(self) -> ExportedLibrary:
        """Writes all files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kernels, slots = self._kernels()
        weights = weight_file({constant.name: constant.value for constant in self.constants})
        content = weights.bytes()
        fingerprint = hashlib.sha256(f"{self.name}\n{kernels}".encode() + content).hexdigest()[:32]
        made = ExportedLibrary(
            self.folder / f"lib{self.name}.so", self.folder / f"{self.name}.h", self.folder / f"{self.name}.json",
            None if self.embedded else self.folder / WEIGHTS,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            place = Path(work)
            self._build(place, kernels, slots, weights, fingerprint)
            # A process may have the library of an earlier export loaded, so no file is written to.
            (place / made.library.name).replace(made.library)
            if made.weights is not None:
                (place / WEIGHTS).replace(made.weights)
        made.header.write_text(header(self.name, self.network, fingerprint, embedded=self.embedded))
        facts = {
            "fingerprint": fingerprint,
            "weights": {"file": None if self.embedded else WEIGHTS, "bytes": len(content),
                        "sha256": hashlib.sha256(content).hexdigest()},
        }  # fmt: skip
        described = manifest(self.name, self.network, self.kinds, facts)
        made.manifest.write_text(json.dumps(described, indent=2) + "\n")
        return made

    def _kernels(self) -> tuple[str, int]:
        """Returns the code of a call, and the number of its buffers."""
        writer = CallWriter(self.network, self.programs)
        body = writer.write()
        codes = list({code.namespace: code for code in self.programs.values()}.values())
        numbered = ", ".join(f"k_{constant.name}" for constant in self.constants)
        lines = [
            *_headers(codes),
            '#include "deploy/arguments.h"',
            '#include "deploy/graph.h"',
            '#include "deploy/rows.h"',
            '#include "deploy/tensors.h"',
            "namespace {",
            "using dacergnn::Number;",
            "using deploy::Index;",
            *[code.text for code in codes],
            *([f"enum {{ {numbered} }};"] if numbered else []),
            "void call(const void *const *weights, deploy::Context &context, const deploy::Input *inputs,",
            "          deploy::Output *outputs) {",
            *[f"  {line}" for line in body],
            "}",
            "}  // namespace",
            f'extern "C" int {self.name}_run_VARIANT(const void *const *weights, deploy::Context &context,',
            "    const deploy::Input *inputs, deploy::Output *outputs, deploy::Message &told) {",
            "  return deploy::guarded(told, [&] { call(weights, context, inputs, outputs); });",
            "}",
        ]
        return "\n".join(lines) + "\n", max(writer.slots.count, 1)

    def _build(self, work: Path, kernels: str, slots: int, weights: WeightFile, fingerprint: str) -> None:
        """Builds the library in a folder, beside the file of its weights."""
        file, library = work / WEIGHTS, work / f"lib{self.name}.so"
        file.write_bytes(weights.bytes())
        objects: list[Path] = []
        for kind in self.kinds:
            path = work / f"kernels_{kind.suffix}.cpp"
            path.write_text(kernels.replace(f"{self.name}_run_VARIANT", f"{self.name}_run_{kind.suffix}"))
            objects.append(_compiled(kind, path, ()))
            if len(self.kinds) > 1:
                _alone(kind, objects[-1], f"{self.name}_run_{kind.suffix}")
        order = [constant.name for constant in self.constants]
        path = work / "interface.cpp"
        embedded = str(file) if self.embedded else None
        path.write_text(source(self.name, self.kinds, slots, weights, order, embedded, fingerprint))
        plain = ("-march=x86-64",) if len(self.kinds) > 1 else ()
        objects.append(_compiled(self.kinds[0], path, plain))
        link = [
            self.kinds[0].command[0], "-shared", "-fopenmp", "-static-libstdc++", "-static-libgcc",
            "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-Wl,-s", f"-Wl,-soname,lib{self.name}.so",
            *map(str, objects), "-o", str(library),
        ]  # fmt: skip
        _run(link)


def _headers(codes: Sequence[ProgramCode]) -> list[str]:
    """Returns the headers of all programs, each line once."""
    lines = dict.fromkeys(line for code in codes for line in code.headers)
    return list(lines) if lines else ["#include <cstdint>"]


def _compiled(kind: Processor, path: Path, options: tuple[str, ...]) -> Path:
    made = path.with_suffix(".o")
    own = [option for option in kind.command if option != "-shared"]
    sections = ["-fvisibility=hidden", "-fvisibility-inlines-hidden", "-ffunction-sections", "-fdata-sections"]
    _run([*own, *options, *sections, "-c", *include_options(), f"-I{INCLUDE_FOLDER}", str(path), "-o", str(made)])
    return made


def _alone(kind: Processor, path: Path, entry: str) -> None:
    """Makes everything in an object local but one function.

    Otherwise the linker would take one copy of a template for all kinds of processors.
    """
    joined = path.with_suffix(".joined.o")
    _run([f"{kind.tools}ld", "-r", "--force-group-allocation", str(path), "-o", str(joined)])
    _run([f"{kind.tools}objcopy", f"--keep-global-symbol={entry}", str(joined), str(path)])


def _run(command: Sequence[str]) -> None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run ({error.strerror}); install g++ and binutils.") from error
    if run.returncode != 0:
        raise BuildError(f"{command[0]} failed on the code of an exported model:\n{run.stderr[:2000]}")
