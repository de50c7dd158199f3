"""Runs every call of a program as a process of its own: under an emulator of a processor, or a tool that counts."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from dacergnn.errors import BuildError
from dacergnn.native import cache
from dacergnn.native.build import INCLUDE_FOLDER, digest, include_options
from dacergnn.runtime.executable import Executable, Frame, Prepared
from dacergnn.runtime.pool import Lease

# Reads a call from a file, runs it as often as asked, and writes its results to another file.
_MAIN = """
#include "include/dacergnn/stack_parts.h"
#include <cstdio>
#include <cstdlib>
#include <vector>
namespace {{
struct Region {{ char *begin; std::int64_t bytes; bool written; }};
std::FILE *file;
template <class T> void read(T *to, std::size_t n) {{ if (std::fread(to, sizeof(T), n, file) != n) std::abort(); }}
std::int64_t next() {{ std::int64_t n; read(&n, 1); return n; }}
template <class State, class... Sizes> State initialize(State (*f)(Sizes...)) {{ return f(Sizes(1)...); }}
}}
int main(int count, char **files) {{
  file = std::fopen(files[1], "rb");
  std::vector<Region> regions(next());
  for (auto &r : regions) {{
    const std::int64_t bytes = next(), content = next(), written = next();
    r = {{(char *)std::aligned_alloc(64, (bytes + 127) / 64 * 64), bytes, written != 0}};
    if (content) read(r.begin, bytes);
  }}
  std::vector<std::int64_t> packed(next());
  for (auto &value : packed) {{
    const std::int64_t region = next(), offset = next();
    value = region < 0 ? offset : (std::int64_t)(regions[region].begin + offset);
  }}
  packed[0] = (std::int64_t)initialize(__dace_init_{name});
  for (int calls = count > 3 ? std::atoi(files[3]) : 1; calls > 0; --calls) {{
    dacergnn::stack_parts(packed.data() + {arguments});
    call_{name}(packed.data());
  }}
  file = std::fopen(files[2], "wb");
  for (auto &r : regions)
    if (r.written && std::fwrite(r.begin, 1, r.bytes, file) != (std::size_t)r.bytes) std::abort();
  return std::fclose(file);
}}
"""


@dataclass
class _Region:
    """Describes a piece of memory that a call may touch: whether it reads what is there, and what it leaves there."""

    start: int
    end: int
    read: bool
    written: bool

    @property
    def memory(self) -> Any:
        return (ctypes.c_char * (self.end - self.start)).from_address(self.start)


def _merged(regions: Iterable[_Region]) -> list[_Region]:
    """Returns the regions with those that overlap as one, in the order of their addresses."""
    merged: list[_Region] = []
    for region in sorted(regions, key=lambda r: r.start):
        if merged and region.start < merged[-1].end:
            last = merged[-1]
            last.end, last.read = max(last.end, region.end), last.read or region.read
            last.written = last.written or region.written
        elif region.end > region.start:
            merged.append(region)
    return merged


class Standalone(Executable):
    """Builds a program as a command, and hands it the memory of each call through files.

    A subclass stands in for `Executable` as the ``executable`` of a target.
    """

    compiler: ClassVar[tuple[str, ...]]
    """The words of the compiler's command, with its options."""
    launcher: ClassVar[tuple[str, ...]]
    """The words before the command of a program."""

    @staticmethod
    def build(programs: Sequence[tuple[str, str]], architectures: tuple[int, ...]) -> None:
        """Builds nothing: each program is built as a command when it is loaded."""

    def _open(self, code: str) -> Any:
        name = self.lowered.name
        source = code + _MAIN.format(name=name, arguments=self.end)
        key = hashlib.sha256(f"{self.compiler}\n{digest(INCLUDE_FOLDER)}\n{source}".encode()).hexdigest()[:20]
        self._command = cache.lookup(key, name) or cache.store(key, name, lambda folder: self._compile(source, folder))
        return None

    def _compile(self, source: str, folder: Path) -> None:
        file, made = folder / "program.cpp", folder / cache.LIBRARY
        file.write_text(source)
        command = [*self.compiler, *include_options(), str(file), "-o", str(made)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BuildError(f"{shlex.join(self.compiler)} rejected generated code:\n{run.stderr[:2000]}")

    def _initialize(self, library: Any) -> int:
        return 0  # every process makes its own

    def _load(self, library: Any) -> None:
        self._function = self._call
        self._read_and_call = lambda *_: 0  # addresses are then written to the arguments first

    def frame(self, prepared: Prepared) -> Frame:
        frame = super().frame(prepared)
        self._workspace = frame
        return frame

    def _run(
        self, prepared: Prepared, inputs: list[Tensor], giver_lease: Lease | None, shapes: Any
    ) -> tuple[list[Tensor], Lease | None]:
        inputs, _ = prepared.inputs.place(inputs, prepared.arguments[:])  # contiguous copies, where some are needed
        self._now = prepared, inputs, giver_lease
        return super()._run(prepared, inputs, giver_lease, shapes)

    def _regions(self, arguments: array[int]) -> list[_Region]:
        """Returns the memory of the call that is under way."""
        prepared, inputs, giver_lease = self._now
        encodings = [prepared.encodings.get(name) for name in self.encodings]
        tensors = [*encodings, *inputs, *([] if giver_lease is None else [giver_lease.buffer])]
        regions = [_Region(t.data_ptr(), t.data_ptr() + t.nbytes, read=True, written=False) for t in tensors]
        for position, shape, _ in prepared.outputs:
            start = arguments[position]
            end = start + prod(shape) * self.dtype.itemsize
            regions.append(_Region(start, end, read=False, written=True))
        if self._saved:
            start = arguments[self._saved[0]] - prepared.saved_offsets[0]
            regions.append(_Region(start, start + prepared.saved, read=False, written=True))
        start = self._workspace[2].data_ptr()
        regions.append(_Region(start, start + prepared.workspace, read=False, written=False))
        fit = prepared.inputs.fit
        if fit is not None and self._pieces(fit):
            start = fit.pieces_address
            regions.append(_Region(start, start + self._pieces(fit), read=True, written=False))
        return _merged(regions)

    @staticmethod
    def _pieces(fit: Any) -> int:
        """Returns the bytes of the description of parts; 0 if there are none."""
        return fit.pieces.itemsize * len(fit.pieces) if fit.pieces_address else 0

    def _call(self, address: int) -> None:
        """Runs the call whose arguments are at an address."""
        arguments = self._workspace[0]
        regions = self._regions(arguments)
        with tempfile.TemporaryDirectory() as folder:
            call, result = Path(folder) / "call", Path(folder) / "result"
            with call.open("wb") as file:
                array("q", [len(regions)]).tofile(file)
                for region in regions:
                    array("q", [region.end - region.start, region.read, region.written]).tofile(file)
                    if region.read:
                        file.write(region.memory)
                array("q", [len(arguments)]).tofile(file)
                for value in arguments:
                    inside = (i for i, region in enumerate(regions) if region.start <= value < region.end)
                    number = next(inside, -1)
                    array("q", [number, value - (regions[number].start if number >= 0 else 0)]).tofile(file)
            self.launch([*self.launcher, str(self._command), str(call), str(result)])
            with result.open("rb") as file:
                for region in regions:
                    if region.written:
                        file.readinto(region.memory)

    def launch(self, command: list[str]) -> None:
        """Runs the command of a call."""
        subprocess.run(command, check=True, env={**os.environ, "OMP_WAIT_POLICY": "passive"})  # threads may be many
