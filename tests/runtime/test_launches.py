"""The launches of CUDA programs are found without a device: by group, as many as on the device, with their kernels."""

from __future__ import annotations

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.errors import BuildError
from dacergnn.frontends.programs import rgat
from dacergnn.runtime.clocks import ProgramWithClocks
from dacergnn.runtime.launches import LaunchRecorder
from dacergnn.sdfg_passes import compile_program
from tests.support.nvcc import needs_nvcc

ARRAYS = {"x": "NS[64]", "W": "R[64, 64]", "q": "ONE[1, 64]", "k": "ONE[1, 64]", "bias": "ONE[1, 64]"}
SPACES = ("NS", "ND", "E", "U", "V", "R", "T", "ONE")


def backward() -> ProgramWithClocks:
    sdfg = parse(rgat, dtype=dace.float32, **ARRAYS, heads=1, channels=64, slope=0.2)
    compilation = compile_program(sdfg, ["x", "W"], Config(implementation="cuda"), dace.int32, keep=False)
    assert compilation.backward is not None
    return ProgramWithClocks.of(compilation.backward, compilation.saved)


@pytest.mark.check
def test_launches_of_every_group() -> None:
    needs_nvcc()
    program = backward()
    recorder = LaunchRecorder(program.lowered, 80)
    small, large = ({**dict.fromkeys(SPACES, rows), "R": 7, "T": 2} for rows in (1000, 1_000_000))
    groups = recorder.launches(large, 108)
    assert len(groups) == len(program.groups)
    assert all(groups)
    launches = [launch for group in groups for launch in group]
    assert {launch.kernel.arch for launch in launches} == {"sm_80"}
    assert all(0 < launch.kernel.registers <= 255 for launch in launches)
    assert all(launch.threads % 32 == 0 and launch.blocks > 0 for launch in launches)
    products = [launch for launch in launches if "Product" in launch.kernel.name]
    assert products
    assert all(launch.shared >= launch.dynamic > 16 * 1024 for launch in products)
    assert recorder.launches(large, 108) == groups  # nothing is left of the call before

    def blocks(sizes: dict[str, int], multiprocessors: int) -> int:
        found = recorder.launches(sizes, multiprocessors)
        return sum(one.blocks for group in found for one in group if "Product" in one.kernel.name)

    assert blocks(small, 108) < blocks(large, 58) < blocks(large, 108)


@pytest.mark.check
def test_graphs_without_rows_launch_less() -> None:
    needs_nvcc()
    program = backward()
    groups = LaunchRecorder(program.lowered, 80).launches({**dict.fromkeys(SPACES, 0), "R": 7, "T": 2, "ONE": 1}, 108)
    assert len(groups) == len(program.groups)
    assert not all(groups)


@pytest.mark.check
def test_an_unknown_architecture() -> None:
    needs_nvcc()
    with pytest.raises(BuildError, match="does not know compute capability 99"):
        LaunchRecorder(backward().lowered, 990)
