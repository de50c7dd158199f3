"""Writes the C++ of an exported model: kernels for each kind of processor, the interface, the header, the weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dacergnn.deploy.forms import PROCESSORS, Form, Kind, processor_form
from dacergnn.deploy.interface import header, source
from dacergnn.deploy.network import Network
from dacergnn.deploy.processors import SECTIONS, Processor
from dacergnn.deploy.program_code import ProgramCode, headers_of, programs_of
from dacergnn.deploy.weights import weight_file
from dacergnn.deploy.writer import CallWriter, used_constants

WEIGHTS = "weights.safetensors"
"""The name of the file of weights."""


@dataclass(frozen=True)
class Source:
    """Describes a file to compile: the command, the processor it is for, and its function if others stay local."""

    path: Path
    kind: Processor
    command: tuple[str, ...]
    entry: str | None = None


class LibrarySources:
    """Holds the C++ of an exported model, which equal models share.

    Args:
        embedded: Whether the weights are a part of the library.
    """

    machine: Kind = PROCESSORS
    """The texts of the header."""

    def __init__(self, network: Network, name: str, kinds: Sequence[Processor], *, embedded: bool) -> None:
        self.network, self.name, self.kinds, self.embedded = network, name, kinds, embedded
        self.constants = used_constants(network)
        self.weights = weight_file({constant.name: constant.value for constant in self.constants})
        self.kernels, self.form = self._kernels()
        content = f"{name}\n{self.kernels}".encode() + self.weights.bytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()[:32]
        """Tells the model from others: its kernels and its weights."""

    def write(self, folder: Path) -> list[Source]:
        """Writes all files to a folder; returns the ones to compile."""
        file = folder / WEIGHTS
        file.write_bytes(self.weights.bytes())
        self.write_header(folder)
        path = folder / "interface.cpp"
        order = [constant.name for constant in self.constants]
        embedded = str(file) if self.embedded else None
        path.write_text(source(self.name, self.form, self.weights, order, embedded, self.fingerprint))
        return [*self._write_kernels(folder), Source(path, self.kinds[0], self._plain_command())]

    @property
    def library(self) -> str:
        """Returns the name of the file of the library."""
        return f"lib{self.name}.so"

    @property
    def machines(self) -> dict[str, Any]:
        """Returns what the manifest tells of the machines that the library is for."""
        return {"target_cpu": [kind.name for kind in self.kinds]}

    def link_command(self) -> list[str]:
        """Returns the command that joins objects to the library."""
        return self.kinds[0].link_command(self.library)

    def _write_kernels(self, folder: Path) -> list[Source]:
        several = len(self.kinds) > 1
        made: list[Source] = []
        for kind in self.kinds:
            entry = f"{self.name}_run_{kind.suffix}"
            path = folder / f"kernels_{kind.suffix}.cpp"
            made.append(Source(path, kind, (*kind.command, *SECTIONS, *kind.user), entry if several else None))
            path.write_text(self.kernels.replace(f"{self.name}_run_VARIANT", entry))
        return made

    def _plain_command(self) -> tuple[str, ...]:
        """Returns the command for code that runs on every processor of the machine."""
        return (*self.kinds[0].command, *SECTIONS, *self.kinds[0].plain)

    def write_header(self, folder: Path) -> Path:
        """Writes the header of the C interface; returns its path."""
        path = folder / f"{self.name}.h"
        path.write_text(header(self.name, self.network, self.fingerprint, self.machine, embedded=self.embedded))
        return path

    def _kernels(self) -> tuple[str, Form]:
        """Returns the code of a call, and what the interface tells of it."""
        programs = programs_of(self.network)
        writer = CallWriter(self.network, programs)
        body = writer.write()
        text = self.code(
            programs, body, ['"deploy/row_functions.h"', '"deploy/tensors.h"'], f"{self.name}_run_VARIANT",
            ["const void *const *weights", "deploy::Context &context"],
        )  # fmt: skip
        return text, processor_form(self.name, self.kinds, max(writer.slots.count, 1))

    def code(
        self, programs: dict[int, ProgramCode], body: Sequence[str], headers: Sequence[str], entry: str,
        parameters: Sequence[str],
    ) -> str:  # fmt: skip
        """Returns the C++ of a function that runs calls.

        Args:
            body: The statements of a call.
            entry: The name of the function.
            parameters: Its first parameters, which the statements read.
        """
        codes = list({code.namespace: code for code in programs.values()}.values())
        numbered = ", ".join(f"k_{constant.name}" for constant in self.constants)
        passed = ", ".join([*[own.split()[-1].lstrip("*&") for own in parameters], "inputs", "outputs"])
        given = ", ".join([*parameters, "const deploy::Input *inputs", "deploy::Output *outputs"])
        lines = [
            *headers_of(codes),
            *[f"#include {own}" for own in ('"deploy/arguments.h"', '"deploy/graph.h"', *headers)],
            "namespace {",
            "using dacergnn::Number;",
            "using deploy::Index;",
            *[code.text for code in codes],
            *([f"enum {{ {numbered} }};"] if numbered else []),
            f"void call({given}) {{",
            *[f"  {line}" for line in body],
            "}",
            "}  // namespace",
            f'extern "C" int {entry}({given}, deploy::Message &told) {{',
            f"  return deploy::guarded(told, [&] {{ call({passed}); }});",
            "}",
        ]
        return "\n".join(lines) + "\n"
