"""What the compiler makes of generated loops on processors with narrower vectors than this machine's."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.native import build as builder
from dacergnn.native.build import INCLUDE_FOLDER
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import compile_program

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of this family")
PROCESSORS = ("haswell", "znver3", "skylake-avx512")
FUNCTIONS = ("exp", "elu", "gelu", "tanh", "sigmoid", "erf")
LOOPS = """    for n in g.src_nodes():
        n["{0}_a"] = relu(n.x_{0}) + leakyrelu(n.y, 0.2) * (n.x_{0} > n.y)
    for n in g.src_nodes():
        n["{0}_b"] = {0}(n["{0}_a"]) / 2.0
"""
ELEMENTWISE = f"""def p(g, {", ".join(f"x_{name}: NS[64]" for name in FUNCTIONS)}, y: NS[64]):
{"".join(LOOPS.format(name) for name in FUNCTIONS)}    return {", ".join(f"{name}_b" for name in FUNCTIONS)}
"""
SUM = """def p(g, W: R[64], s: U):
    for p in g.src_pairs():
        p.src["y"] += p.s * W[p.etype]
    return y
"""


@pytest.fixture(autouse=True)
def optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users."""
    monkeypatch.delenv("CXXFLAGS", raising=False)


def compiled(text: str, folder: Path, processor: str, *options: str) -> tuple[str, str]:
    """Assembly of a program's C++, and what the compiler says."""
    forward = compile_program(parse(text), [], Config(), dace.int32).forward
    source, assembly = folder / "program.cpp", folder / "program.s"
    source.write_text(lower(forward).code)
    flags = [f for f in builder._flags() if f != "-shared"]
    includes = [f"-I{folder}" for folder in (INCLUDE_FOLDER, INCLUDE_FOLDER.parent)]
    command = [builder.compiler()[0], *flags, f"-march={processor}", *includes, *options]
    command += ["-S", str(source), "-o", str(assembly)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return assembly.read_text(), said


@pytest.mark.parametrize("processor", PROCESSORS)
def test_elementwise_loops_become_vectors(processor: str, tmp_path: Path) -> None:
    _, said = compiled(ELEMENTWISE, tmp_path, processor, "-fopt-info-vec-optimized")
    lines = (tmp_path / "program.cpp").read_text().splitlines()
    # The compiler names the first line inside of a loop.
    loops = {i + 3 for i, line in enumerate(lines) if "DACERGNN_SIMD" in line}
    vectorized = {int(line) for line in re.findall(r"program\.cpp:(\d+):\d+: optimized: loop vectorized", said)}
    assert len(loops) >= len(FUNCTIONS)
    assert loops <= vectorized


@pytest.mark.parametrize("processor", PROCESSORS)
def test_factors_of_rows_are_not_gathered(processor: str, tmp_path: Path) -> None:
    assembly, _ = compiled(SUM, tmp_path, processor)
    assert "vfmadd" in assembly
    assert "vgather" not in assembly
