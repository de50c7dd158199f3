"""The exported C library equals the model, on full graphs and on batches in which types are missing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

import dacergnn
from dacergnn import ArrayError, DacergnnError, HeteroGraph, UnsupportedCallError
from dacergnn.deploy.capture import capture
from dacergnn.deploy.library import ExportedLibrary
from dacergnn.deploy.network import SortEdges
from dacergnn.deploy.reader import Reader
from dacergnn.modules import RGCN
from tests.deploy.conftest import Deployed
from tests.deploy.networks import Between, Trained, assert_equal, leaves, trained
from tests.support.library import Library, Refused, export

BESIDE = "GCN+GIN"
"""A network whose weights are beside its library."""
NETWORKS = ("HGT", BESIDE, "GAT+SAGE-max")
MORE_RELATIONS = ("HeteroConv-GAT-SAGE", "HeteroConv-GATv2")
"""Networks whose parts are those of others, with a library for which g++ takes half a minute."""
Exports = Callable[[str], tuple[Trained, ExportedLibrary]]
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Returns a function that exports a network once for all tests."""
    made: dict[str, tuple[Trained, ExportedLibrary]] = {}

    def of(name: str) -> tuple[Trained, ExportedLibrary]:
        if name not in made:
            network = trained(name)
            folder = tmp_path_factory.mktemp("library")
            model = dacergnn.optimize(network.model)
            options: dict[str, Any] = {"name": "gcn_1", "weights": "beside"} if name == BESIDE else {}
            made[name] = network, export(model, folder, example=network.arguments(30, 90), **options)
        return made[name]

    return of


@pytest.mark.parametrize("name", [*NETWORKS, *[pytest.param(name, marks=pytest.mark.check) for name in MORE_RELATIONS]])
def test_results_on_a_full_graph_and_on_batches(name: str, exports: Exports) -> None:
    """Checks sizes of all kinds. It takes a quarter of a minute for HGT, as torch.export and g++ do for its library."""
    network, made = exports(name)
    library = Library(made)
    sizes = [(200, 900), *[(3 + seed % 9, seed % 13) for seed in range(50)], (0, 0), (1, 0), (1, 1)]
    with torch.no_grad():
        original = dacergnn.revert(network.model)
        for seed, (nodes, edges) in enumerate(sizes):
            arguments = network.arguments(nodes, edges, seed)
            assert_equal(library(*leaves(arguments)), leaves(original(*arguments)))


@pytest.mark.parametrize("name", ["HGT", "optimized"])
def test_a_library_needs_neither_python_nor_torch(name: str, exports: Exports, deployed: Deployed) -> None:
    library = deployed.folder / "libmodel.so" if name == "optimized" else exports(name)[1].library
    needed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
    names = {Path(line.split()[0]).name.partition(".")[0] for line in needed.splitlines()}
    assert names <= {"linux-vdso", "libgomp", "libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64", "libdl"}
    listing = ["nm", "-D", "--defined-only", str(library)]
    symbols = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    assert all(line.split()[-1].startswith("model_") for line in symbols)
    assert library.stat().st_size < 5 << 20


def test_threads_share_a_model(exports: Exports) -> None:
    network, made = exports("HGT")
    library = Library(made)
    calls = [network.arguments(10 + seed, 20 + seed, seed) for seed in range(4)]
    expected = [library(*leaves(arguments)) for arguments in calls]
    problems: list[str] = []

    def work(first: int) -> None:
        for turn in range(50):
            number = (first + turn) % len(calls)
            results = library(*leaves(calls[number]), threads=1 + turn % 2)
            if not all(map(torch.equal, results, expected[number])):
                problems.append(f"call {number} differs")

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems


def _bad_index(arguments: list[Tensor]) -> str:
    arguments[3][1, 2] = 99
    return r"edge_index_dict\.author__writes__paper: destination 99 of edge 2 is out of range; there are 27"


def _bad_source(arguments: list[Tensor]) -> str:
    arguments[3][0, 1] = -1
    return "source -1 of edge 1 is out of range"


def _bad_kind(arguments: list[Tensor]) -> str:
    arguments[-1][4] = 7
    return "embedding.*index 7 at place 4 is out of range; there are 7 rows"


def _bad_width(arguments: list[Tensor]) -> str:
    arguments[0] = torch.zeros(30, 15)
    return "x_dict.author: size 15 in axis 1 must be 16"


def _bad_length(arguments: list[Tensor]) -> str:
    arguments[-1] = arguments[-1][:-1].clone()
    return "size"


@pytest.mark.parametrize("spoil", [_bad_index, _bad_source, _bad_kind, _bad_width, _bad_length])
def test_bad_input_is_refused_by_code_and_text(spoil: Callable[[list[Tensor]], str], exports: Exports) -> None:
    network, made = exports("HGT")
    library = Library(made)
    arguments = leaves(network.arguments(30, 90))
    text = spoil(arguments)
    with pytest.raises(Refused, match=text) as refused:
        library(*arguments)
    assert refused.value.code == 1
    good = network.arguments(30, 90)
    with torch.no_grad():
        assert_equal(library(*leaves(good)), leaves(network.model(*good)))


def test_memory_that_is_too_small_tells_the_sizes(exports: Exports) -> None:
    network, made = exports("HGT")
    library = Library(made)
    outputs, _ = library.outputs(64)
    with pytest.raises(Refused, match=r"out\.paper needs memory of 432 bytes; there are 64") as refused:
        library.run(library.inputs(leaves(network.arguments(30, 90))), outputs)
    assert refused.value.code == 5
    assert [list(own.sizes) for own in outputs] == [[27, 4, 0, 0], [30, 16, 0, 0]]


def test_weights_beside_a_library(exports: Exports, tmp_path: Path) -> None:
    made = exports(BESIDE)[1]
    assert made.weights is not None
    described = json.loads(made.manifest.read_text())
    assert described["weights"]["bytes"] == made.weights.stat().st_size
    assert described["fingerprint"] == Library(made).fingerprint
    assert described["fingerprint"] in made.header.read_text()
    other = tmp_path / "other"
    other.write_bytes(made.weights.read_bytes()[:-4])
    with pytest.raises(Refused, match="bytes, and the model needs"):
        Library(made, weights=other)
    other.write_bytes(b"\0" + made.weights.read_bytes()[1:])
    with pytest.raises(Refused, match="hold other tensors than gcn_1"):
        Library(made, weights=other)
    with pytest.raises(Refused, match="cannot be read: No such file"):
        Library(made, weights=tmp_path / "none")


class _Graphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = RGCN(8, 4, 3)

    def forward(self, x: Tensor, graph: HeteroGraph) -> Tensor:
        return self.layer(x, graph).relu()


def _graph(nodes: int, edges: int) -> HeteroGraph:
    return HeteroGraph.from_arrays(
        torch.randint(nodes, (2, edges)), torch.randint(3, (edges,)), num_nodes=nodes, num_edge_types=3
    )


def test_graphs_are_arguments(tmp_path: Path) -> None:
    model = _Graphs().eval()
    made = export(model, tmp_path, example=(torch.randn(20, 8), _graph(20, 60)))
    library = Library(made)
    names = [own["name"] for own in library.manifest["inputs"]]
    assert names == ["x", "graph.edges", "graph.source_types", "graph.destination_types"]
    arguments = torch.randn(9, 8), _graph(9, 31)
    with torch.no_grad():
        assert_equal(library(*leaves(arguments)), [model(*arguments)])
    tensors = leaves(arguments)
    tensors[0] = torch.randn(8, 8)
    with pytest.raises(Refused, match="array x of RGCN has 64 numbers, and the graph asks for 72"):
        library(*tensors)


class _Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x)[0]


def test_refusals_name_the_operation_and_its_place(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCallError, match=r"inner \(.*\): aten\..* has no form in a C library"):
        dacergnn.export(_Refused().eval(), tmp_path, example=(torch.randn(5, 8),))
    with pytest.raises(ArrayError, match="is in training mode"):
        dacergnn.export(nn.Linear(2, 2), tmp_path, example=(torch.randn(5, 2),))
    linear = nn.Linear(2, 2).eval()
    for options, text in (
        ({"name": "My model"}, "name='My model'"), ({"weights": "none"}, "weights='none'"),
        ({"name": "int"}, "name='int' has a meaning in C"),
        ({"target_cpu": "z80"}, "target_cpu='z80' is not one of native"),
        ({"target_cpu": ["native", "x86-64-v3"]}, "one library holds kernels for several of x86-64-v2"),
    ):  # fmt: skip
        with pytest.raises(DacergnnError, match=text):
            dacergnn.export(linear, tmp_path, example=(torch.randn(5, 2),), **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_stands_between_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Between().eval()
    library = Library(export(model, tmp_path, example=Between.arguments(12)))
    for count in (12, 2, 9, 300):
        own = Between.arguments(count)
        with torch.no_grad():
            assert_equal(library(*own), model(*own))


def test_results_in_double_precision(tmp_path: Path) -> None:
    network = trained("RGCN+RGAT")
    original = network.model.double()
    calls = [network.arguments(*sizes, seed) for seed, sizes in enumerate([(20, 60), (200, 900), (1, 1), (0, 0)])]
    calls = [(x.double(), *rest) for x, *rest in calls]
    with torch.no_grad():
        expected = [leaves(original(*call)) for call in calls]
    library = Library(export(dacergnn.optimize(original), tmp_path, example=calls[0]))
    for call, own in zip(calls, expected, strict=True):
        torch.testing.assert_close(library(*call), own, rtol=1e-12, atol=1e-12)


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    model = dacergnn.optimize(SAGEConv(4, 4).bfloat16().eval())
    example = torch.randn(9, 4).bfloat16(), torch.randint(9, (2, 20))
    with pytest.raises(UnsupportedCallError, match=r"bfloat16.*model\.float\(\)"):
        dacergnn.export(model, tmp_path, example=example)


class _LastRow(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x[-1:] * 2.0 + x[index]


class _Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(4)


class _ComputedMatrix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return x @ self.linear(other)[:4].sum(0, keepdim=True).view(4, 1)


_TELL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.model_fingerprint.restype = ctypes.c_char_p
print(library.model_fingerprint().decode())
"""


@pytest.fixture(scope="module")
def last_row(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Library]:
    """Returns a folder, and a library that has been written to it."""
    folder = tmp_path_factory.mktemp("rows")
    example = torch.randn(5, 4), torch.tensor([-3, 1, -1])
    return folder, Library(export(_LastRow().eval(), folder, example=example))


def test_rows_that_are_not_there_are_refused(last_row: tuple[Path, Library]) -> None:
    library, x, index = last_row[1], torch.randn(3, 4), torch.tensor([-3, 1, -1])
    assert torch.equal(library(x, index)[0], x[-1:] * 2 + x[index])
    with pytest.raises(Refused, match="index -3 at place 0 is out of range; there are 2 rows"):
        library(x[:2], index)
    with pytest.raises(Refused, match="The sizes of the inputs do not fit the model, which asks for rows"):
        library(torch.randn(0, 4), index[:0])


def test_a_library_is_not_written_into(last_row: tuple[Path, Library]) -> None:
    folder, first = last_row
    x, index = torch.randn(6, 4), torch.tensor([2, 0])
    before = first(x, index)
    made = export(nn.Linear(4, 3).eval(), folder, example=(torch.randn(5, 4),))
    assert torch.equal(first(x, index)[0], before[0])  # the process has the first one loaded still
    fresh = subprocess.run([sys.executable, "-c", _TELL, str(made.library)], capture_output=True, text=True, check=True)
    assert fresh.stdout.strip() == json.loads(made.manifest.read_text())["fingerprint"] != first.fingerprint


class _MoreNodes(nn.Module):
    """Calls a layer with the same edges among more nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SAGEConv(4, 4)

    def forward(self, x: Tensor, others: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(torch.cat([self.layer(x, edge_index), others]), edge_index)


def test_the_same_edges_among_more_nodes_are_another_graph() -> None:
    arguments = torch.randn(9, 4), torch.randn(5, 4), torch.randint(9, (2, 20))
    program = capture(dacergnn.optimize(_MoreNodes().eval()), arguments)
    steps = Reader(program, ["x", "others", "edge_index"]).read().steps
    sizes = {step.made.sizes for step in steps if isinstance(step, SortEdges)}
    assert len(sizes) == 2


def test_nothing_random_is_written_down(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCallError, match=r"aten\.rand.* has no form in a C library"):
        export(_Random().eval(), tmp_path, example=(torch.randn(3, 4),))


def test_matrices_that_a_model_computes_are_none_of_its_weights(tmp_path: Path) -> None:
    arguments = torch.randn(5, 4), torch.randn(6, 4)
    with pytest.raises(UnsupportedCallError, match="a matrix that the model computes"):
        export(_ComputedMatrix().eval(), tmp_path, example=arguments)
