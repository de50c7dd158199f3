"""Exported libraries for CUDA: compiled by nvcc, and run in emulation, whose streams do nothing before one waits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from dacergnn import DacergnnError
from dacergnn.deploy.library import ExportedLibrary
from tests.deploy.networks import Between, Trained, assert_equal, leaves, trained
from tests.support.device_library import EmulatedModel
from tests.support.emulated_device import emulated_builds
from tests.support.library import Library, Refused
from tests.support.nvcc import needs_nvcc

Exports = Callable[[str], tuple[Trained, ExportedLibrary]]
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Returns a function that exports a network once for all tests."""
    made: dict[str, tuple[Trained, ExportedLibrary]] = {}

    def of(name: str) -> tuple[Trained, ExportedLibrary]:
        if name not in made:
            network = trained(name)
            model = dacergnn.optimize(network.model)
            with emulated_builds():
                folder, example = tmp_path_factory.mktemp("cuda"), network.arguments(30, 90)
                weights = "beside" if name == "GCN" else "inside"
                library = dacergnn.export(model, folder, example=example, cuda_arch=(80,), weights=weights)
            made[name] = network, library
        return made[name]

    return of


@pytest.mark.parametrize("name", ["GCN", "HGT"])
def test_results_on_graphs_of_several_sizes(name: str, exports: Exports) -> None:
    network, made = exports(name)
    library = EmulatedModel(made)
    sizes = [(60, 200), *[(3 + seed % 9, seed % 13) for seed in range(4)], (0, 0), (1, 0), (1, 1)]
    with torch.no_grad():
        original = dacergnn.revert(network.model)
        for seed, (nodes, edges) in enumerate(sizes):
            arguments = network.arguments(nodes, edges, seed)
            assert_equal(library(*leaves(arguments)), leaves(original(*arguments)))


def test_what_stands_between_layers(tmp_path: Path) -> None:
    """Takes a quarter of a minute, as g++ compiles each of these operations for the emulation."""
    torch.manual_seed(0)
    model = Between().eval()
    with emulated_builds():
        library = EmulatedModel(dacergnn.export(model, tmp_path, example=Between.arguments(12), cuda_arch=(80,)))
    for count in (12, 2, 9, 1100):
        own = Between.arguments(count)
        own[0][count // 2, 3] = torch.nan
        with torch.no_grad():
            assert_equal(library(*own, capacity=1 << 19), model(*own))
    own[1][4] = 9
    with pytest.raises(Refused, match=r"index 9 at place 4 is out of range; there are 9 rows") as refused:
        library(*own, capacity=1 << 19)
    assert refused.value.code == 1


def test_integers_may_lie_on_the_host(exports: Exports) -> None:
    network, made = exports("HGT")
    there, here = EmulatedModel(made), EmulatedModel(made, integers_on_device=False)
    arguments = leaves(network.arguments(30, 90))
    assert all(map(torch.equal, there(*arguments), here(*arguments)))


def test_calls_follow_each_other_on_a_stream(exports: Exports) -> None:
    network, made = exports("HGT")
    library = EmulatedModel(made, integers_on_device=False)
    calls = [leaves(network.arguments(10 + 9 * (seed % 3), 30 + seed, seed)) for seed in range(6)]
    expected = [library(*call) for call in calls]
    outputs = [library.outputs(1 << 14)[0] for _ in calls]
    for call, own in zip(calls, outputs, strict=True):
        library.run(library.inputs(call), own, None)  # nothing waits for the device
    library.finish()
    for own, wanted in zip(outputs, expected, strict=True):
        assert all(map(torch.equal, library.results(own), wanted))
    library.function("trim")(library.model)
    assert all(map(torch.equal, library(*calls[0]), expected[0]))
    library.free()


def test_arguments_with_any_alignment(exports: Exports) -> None:
    network, made = exports("GCN")
    library = EmulatedModel(made)
    arguments = leaves(network.arguments(20, 60))
    expected = library(*arguments)
    outputs, _ = library.outputs(1 << 14)
    library.run(library.inputs(arguments, offset=8), outputs, None)
    library.finish()
    assert all(map(torch.equal, library.results(outputs), expected))
    library.free()


def _edge_out_of_range(arguments: list[Tensor], inputs: Any) -> None:
    arguments[3][1, 2] = 99


def _features_on_the_host(arguments: list[Tensor], inputs: Any) -> None:
    inputs[0].data = arguments[0].data_ptr()


@pytest.mark.parametrize(
    ("spoil", "text"),
    [(_edge_out_of_range, "destination 99 of edge 2 is out of range; there are 27"),
     (_features_on_the_host, "x_dict.author lies in memory of the host; pass an address in memory of the device")],
)  # fmt: skip
def test_bad_input_is_refused(spoil: Callable[[list[Tensor], Any], None], text: str, exports: Exports) -> None:
    network, made = exports("HGT")
    library = EmulatedModel(made, integers_on_device=False)
    arguments = leaves(network.arguments(30, 90))
    inputs, (outputs, _) = library.inputs(arguments), library.outputs(1 << 14)
    spoil(arguments, inputs)
    with pytest.raises(Refused, match=text) as refused:
        library.run(inputs, outputs, None)
    assert refused.value.code == 1
    library.free()


def test_results_on_the_host_are_refused(exports: Exports) -> None:
    network, made = exports("GCN")
    library = EmulatedModel(made)
    outputs, memory = library.outputs(1 << 14)
    outputs[1].data = memory[1].ctypes.data
    with pytest.raises(Refused, match=r"out\.1 lies in memory of the host"):
        library.run(library.inputs(leaves(network.arguments(20, 60))), outputs, None)
    library.free()


def test_every_allocation_that_fails_is_an_error(exports: Exports) -> None:
    network, made = exports("GCN")
    arguments = leaves(network.arguments(20, 60))
    expected = EmulatedModel(made)(*arguments)
    refused = 0
    for number in range(1, 100):
        library = EmulatedModel(made)
        inputs, (outputs, _) = library.inputs(arguments), library.outputs(1 << 14)
        library.fail_allocation(number)
        code = library.function("run")(library.model, inputs, outputs, None)
        library.fail_allocation(-1)
        library.free()
        if code == 0:
            break
        refused += 1
        assert code == 2
        assert all(map(torch.equal, library(*arguments), expected))
    assert refused > 5


@pytest.mark.check
def test_nvcc_builds_what_needs_nothing(tmp_path: Path) -> None:
    needs_nvcc()
    network = trained("HeteroConv-SAGE")
    model = dacergnn.optimize(network.model)
    made = dacergnn.export(model, tmp_path, example=network.arguments(30, 90), cuda_arch=(90,))
    needed = subprocess.run(["ldd", str(made.library)], capture_output=True, text=True, check=True).stdout
    names = {Path(line.split()[0]).name.partition(".")[0] for line in needed.splitlines()}
    assert names <= {"linux-vdso", "libgomp", "libc", "libm", "ld-linux-x86-64", "libdl", "librt", "libpthread"}
    listing = ["nm", "-D", "--defined-only", str(made.library)]
    symbols = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    assert all(line.split()[-1].startswith("model_") for line in symbols)
    assert made.library.stat().st_size < 5 << 20
    assert json.loads(made.manifest.read_text())["cuda_arch"] == [90]
    if torch.cuda.is_available():
        return
    with pytest.raises(Refused, match="There is no CUDA device") as refused:
        Library(made)
    assert refused.value.code == 6


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    linear, example = torch.nn.Linear(4, 3).eval(), (torch.randn(5, 4),)
    with pytest.raises(DacergnnError, match=r"cuda_arch=\(8,\).*pass compute capabilities"):
        dacergnn.export(linear, tmp_path, example=example, cuda_arch=(8,))
    with pytest.raises(DacergnnError, match="with cuda_arch, name one kind of x86-64 processor"):
        dacergnn.export(linear, tmp_path, example=example, cuda_arch=(80,), target_cpu=["x86-64-v2", "x86-64-v3"])
