"""Writes the C++ of an exported model: kernels for each kind of processor, the interface, the header, the weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dacergnn.deploy.interface import header, source
from dacergnn.deploy.network import Network
from dacergnn.deploy.processors import Processor
from dacergnn.deploy.program_code import headers_of, programs_of
from dacergnn.deploy.weights import weight_file
from dacergnn.deploy.writer import CallWriter, used_constants

WEIGHTS = "weights.safetensors"
"""The name of the file of weights."""


@dataclass(frozen=True)
class Source:
    """Describes a file to compile: the processor it is for, options besides, and its function if others stay local."""

    path: Path
    kind: Processor
    options: tuple[str, ...] = ()
    entry: str | None = None


class LibrarySources:
    """Holds the C++ of an exported model, which equal models share.

    Args:
        embedded: Whether the weights are a part of the library.
    """

    def __init__(self, network: Network, name: str, kinds: Sequence[Processor], *, embedded: bool) -> None:
        self.network, self.name, self.kinds, self.embedded = network, name, kinds, embedded
        self.constants = used_constants(network)
        self.weights = weight_file({constant.name: constant.value for constant in self.constants})
        self.kernels, self.slots = self._kernels()
        content = f"{name}\n{self.kernels}".encode() + self.weights.bytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()[:32]
        """Tells the model from others: its kernels and its weights."""

    def write(self, folder: Path) -> list[Source]:
        """Writes all files to a folder; returns the ones to compile."""
        file = folder / WEIGHTS
        file.write_bytes(self.weights.bytes())
        self.write_header(folder)
        several = len(self.kinds) > 1
        made: list[Source] = []
        for kind in self.kinds:
            entry = f"{self.name}_run_{kind.suffix}"
            path = folder / f"kernels_{kind.suffix}.cpp"
            made.append(Source(path, kind, kind.user, entry if several else None))
            made[-1].path.write_text(self.kernels.replace(f"{self.name}_run_VARIANT", entry))
        order = [constant.name for constant in self.constants]
        path = folder / "interface.cpp"
        embedded = str(file) if self.embedded else None
        path.write_text(source(self.name, self.kinds, self.slots, self.weights, order, embedded, self.fingerprint))
        return [*made, Source(path, self.kinds[0], self.kinds[0].plain)]

    def write_header(self, folder: Path) -> Path:
        """Writes the header of the C interface; returns its path."""
        path = folder / f"{self.name}.h"
        path.write_text(header(self.name, self.network, self.fingerprint, embedded=self.embedded))
        return path

    def _kernels(self) -> tuple[str, int]:
        """Returns the code of a call, and the number of its buffers."""
        programs = programs_of(self.network)
        writer = CallWriter(self.network, programs)
        body = writer.write()
        codes = list({code.namespace: code for code in programs.values()}.values())
        numbered = ", ".join(f"k_{constant.name}" for constant in self.constants)
        lines = [
            *headers_of(codes),
            '#include "deploy/arguments.h"',
            '#include "deploy/graph.h"',
            '#include "deploy/row_functions.h"',
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
