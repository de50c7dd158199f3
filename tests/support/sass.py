"""Machine code of CUDA kernels, for machines without a device: what a test reads of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dacergnn.native.build import INCLUDE_FOLDER
from dacergnn.native.ptxas import VERBOSE, KernelUsage, kernel_usages, readable
from tests.support.nvcc import needed, needs_nvcc

_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?P<code>[^;/]+);")
_LABEL = re.compile(r"^(?P<label>\.L_x_\d+):", re.MULTILINE)
_REGISTER = re.compile(r"\bR(\d+)\b")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name with all modifiers, and its operands as text."""

    name: str
    operands: str

    @property
    def registers(self) -> list[int]:
        """Registers in the order of the operands."""
        return [int(number) for number in _REGISTER.findall(self.operands)]


@dataclass(frozen=True)
class Kernel:
    """The code of a kernel: blocks of instructions that run one after the other, each with its label."""

    name: str
    blocks: tuple[tuple[str, tuple[Instruction, ...]], ...]

    @property
    def instructions(self) -> Iterator[Instruction]:
        for _, block in self.blocks:
            yield from block

    def count(self, prefix: str) -> int:
        """The number of instructions whose names begin so."""
        return sum(i.name.startswith(prefix) for i in self.instructions)

    @property
    def inner_loops(self) -> list[list[Instruction]]:
        """The code of each loop that has no loop inside."""
        places = {label: n for n, (label, _) in enumerate(self.blocks)}
        spans: set[tuple[int, int]] = set()
        for n, (_, block) in enumerate(self.blocks):
            for instruction in block:
                target = re.search(r"\.L_x_\d+", instruction.operands)
                if instruction.name.startswith("BRA") and target and places.get(target[0], n + 1) <= n:
                    spans.add((places[target[0]], n))
        inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
        return [[i for _, block in self.blocks[first : last + 1] for i in block] for first, last in sorted(inner)]

    def under_way(self, load: str) -> int:
        """The most loads of a kind that are requested before the first of them is waited for."""
        most, pending = 0, dict[int, None]()
        for instruction in self.instructions:
            own = instruction.registers
            reads = own[1:] if instruction.name.startswith(("LDG", "MOV", "IMAD", "FFMA", "IADD", "LEA")) else own
            if any(register in pending for register in reads):
                pending = {}
            if instruction.name.startswith(load) and own:
                pending[own[0]] = None
                most = max(most, len(pending))
        return most


def needs_nvdisasm() -> str:
    """The path of nvdisasm; see `needed`."""
    packages = find_spec("nvidia")
    folders = list(packages.submodule_search_locations or ()) if packages else []
    bundled = [str(path) for folder in folders for path in Path(folder).glob("cu*/bin/nvdisasm")]
    return needed(["nvdisasm", *bundled], "nvdisasm is not on PATH; the extra dev brings it.")


def kernels_of(source: str, arch: int) -> tuple[list[Kernel], list[KernelUsage]]:
    """The kernels of a source, compiled for one architecture, and what each takes."""
    nvcc, nvdisasm = needs_nvcc(), needs_nvdisasm()
    with tempfile.TemporaryDirectory() as folder:
        file, cubin = Path(folder) / "source.cu", Path(folder) / "out.cubin"
        file.write_text('#include "dacergnn/cuda/platform.cuh"\n' + source)
        includes = [f"-I{INCLUDE_FOLDER.parent}", f"-I{INCLUDE_FOLDER}"]
        flags = ["-x", "cu", "-std=c++20", "--extended-lambda", "-O3", "-w", f"-arch=sm_{arch}", "-cubin", *VERBOSE]
        command = [nvcc, *flags, *includes, str(file), "-o", str(cubin)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        text = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    _, *parts = re.split(r"^\.text\.(.*):$", text, flags=re.MULTILINE)
    kernels = [_kernel(name, body) for name, body in zip(readable(parts[::2]), parts[1::2], strict=True)]
    return kernels, kernel_usages(run.stdout + run.stderr)


def _kernel(name: str, text: str) -> Kernel:
    parts = _LABEL.split(text)
    blocks = [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]
    return Kernel(name, tuple((label, tuple(_instructions(body))) for label, body in blocks))


def _instructions(text: str) -> Iterator[Instruction]:
    for line in _LINE.finditer(text):
        words = line["code"].split()
        if words[0].startswith("@"):
            words = words[1:]
        yield Instruction(words[0], " ".join(words[1:]))
