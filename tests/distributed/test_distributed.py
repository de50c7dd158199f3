"""Full-graph training in several processes equals that in one."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dacergnn.distributed import DistributedGraph, partition
from dacergnn.errors import ArrayError, DacergnnError, DistributedError
from dacergnn.graph import HeteroGraph, locality_order

pytest.importorskip("torch_geometric")
ROOT = Path(__file__).parents[2]
NAMES = ("RGCN", "RGAT", "GAT", "HGT", "HeteroConv")
IN_ROUNDS = ("GAT:any", "RGAT:40KB/1MB", "HeteroConv:40KB")
STEPS = 4


def started(size: int, folder: Path, *tasks: str, steps: int = STEPS) -> list[subprocess.Popen[str]]:
    """Starts the processes of `worker`; each writes what it found to a file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    about = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(ROOT)}
    about["DACERGNN_TEST_TARGET"] = os.environ.get("DACERGNN_TEST_TARGET", "interpreted")
    command = [sys.executable, "-m", "tests.distributed.worker", ",".join(tasks), str(steps)]
    return [
        subprocess.Popen(
            [*command, str(folder / f"{rank}.pt")],
            env={**os.environ, **about, "RANK": str(rank)}, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(size)
    ]  # fmt: skip


Found = dict[str, dict[str, Any]]


def found_by(size: int, folder: Path, *tasks: str, steps: int = STEPS) -> list[Found]:
    """Returns what each process found, by task."""
    for process in started(size, folder, *tasks, steps=steps):
        _, error = process.communicate(timeout=600)
        assert process.returncode == 0, error
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


@dataclass(frozen=True)
class Halves:
    """Holds what two processes find, the first of them also alone, and how that one ends after the other was killed."""

    found: list[Found]
    code: int
    error: str


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Halves:
    """Takes half a minute, as each process makes the programs of five models."""
    folder = tmp_path_factory.mktemp("halves")
    alone = [f"{name} alone" for name in NAMES]
    first, second = started(2, folder, *NAMES, *IN_ROUNDS, "RGCN first", "RGCN second", *alone, "RGCN killed")
    _, error = second.communicate(timeout=600)
    assert second.returncode == 3, error
    _, error = first.communicate(timeout=100)
    return Halves([torch.load(folder / f"{rank}.pt") for rank in range(2)], first.returncode, error)


def check(parts: list[Found], *tasks: str) -> None:
    for task in tasks:
        whole = parts[0][f"{task} alone"]
        assert whole["losses"][-1] < whole["losses"][0]
        assert parts[0][task]["least"] > 0
        assert sum(part[task]["received"] for part in parts) <= 1.2 * parts[0][task]["least"]
        for part in parts:
            check_equal(part[task], whole)


def check_equal(part: dict[str, Any], whole: dict[str, Any]) -> None:
    torch.testing.assert_close(part["losses"], whole["losses"], rtol=1e-9, atol=1e-12)
    for found, expected in zip(part["gradients"], whole["gradients"], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_training_equals_that_of_one_process(name: str, halves: Halves) -> None:
    check(halves.found, name)


@pytest.mark.parametrize("task", IN_ROUNDS)
def test_training_in_rounds(task: str, halves: Halves) -> None:
    for part in halves.found:
        check_equal(part[task], halves.found[0][f"{task.partition(':')[0]} alone"])


@pytest.mark.check
def test_training_on_real_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DACERGNN_TEST_TARGET", "cpu")  # NumPy would take minutes for these graphs
    tasks = ("GAT@am~0.03", "RGCN@aifb")
    check(found_by(2, tmp_path, *tasks, *[f"{task} alone" for task in tasks], steps=5), *tasks)


def test_a_process_that_is_killed_ends_the_others(halves: Halves) -> None:
    assert halves.code == 1
    assert "DistributedError: process 0 of 2 cannot exchange rows, since another one has failed" in halves.error


def test_training_goes_on_from_a_checkpoint(halves: Halves) -> None:
    first, second, unbroken = (halves.found[0][task]["losses"] for task in ("RGCN first", "RGCN second", "RGCN"))
    torch.testing.assert_close([*first, *second], unbroken)


def test_positions_on_the_host_have_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def new_group(*_: Any, **options: Any) -> None:
        asked.update(options)
        raise InterruptedError

    about = {"is_initialized": True, "get_process_group_ranks": [0], "get_backend": "nccl"}
    for name, value in about.items():
        monkeypatch.setattr(dist, name, lambda *_, value=value: value)
    monkeypatch.setattr(dist, "new_group", new_group)
    with pytest.raises(InterruptedError):
        DistributedGraph(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    assert asked["backend"] == "cpu:gloo,cuda:nccl"


def test_types_are_those_of_the_whole_graph(tmp_path: Path) -> None:
    edges, types = torch.randint(40, (2, 300)), torch.randint(3, (300,))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        part = DistributedGraph(edges, torch.zeros(40, dtype=torch.int64))
        assert part.hetero_graph(types, 3, torch.arange(40) % 2, 2).size("T") == 2
        with pytest.raises(
            ArrayError, match=r"edge_type has shape \[299\]; give the types of the whole graph, \[300\]"
        ):
            part.hetero_graph(types[:299])
        with pytest.raises(ArrayError, match=r"node_type has shape \[41\]; give the types of the whole graph, \[40\]"):
            part.hetero_graph(types, 3, torch.zeros(41, dtype=torch.int64))
    finally:
        dist.destroy_process_group()


def graph_of(nodes: int = 40, typed: bool = False) -> HeteroGraph:
    edges = torch.randint(nodes, (2, 300), generator=torch.Generator().manual_seed(0))
    kinds = torch.arange(nodes) // 20 if typed else None
    return HeteroGraph.from_arrays(edges, None, num_nodes=nodes, node_type=kinds)


@pytest.mark.parametrize("method", ["ranges", "locality", "random"])
@pytest.mark.parametrize("parts", [1, 3])
def test_partitions_have_about_as_much_work(method: str, parts: int) -> None:
    graph = graph_of(typed=True)
    owners = partition(graph, parts, method=method)
    assert owners.dtype == torch.int64
    assert {*owners.tolist()} == {*range(parts)}
    assert torch.equal(owners, partition(graph, parts, method=method))
    if method == "ranges":
        for kind in (owners[:20], owners[20:]):
            assert torch.equal(kind, kind.sort().values), "successive nodes of each type"
            assert {*kind.tolist()} == {*range(parts)}
        work = torch.bincount(owners[graph.index("E", "dst").long()])
        assert work.max() <= 1.35 * work.float().mean()


def test_locality_cuts_fewer_edges() -> None:
    """A path whose nodes have numbers in any order, of which every process needs one or two neighbours of others."""
    path = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    edges = torch.stack([path[:-1], path[1:]])
    graph = HeteroGraph.from_arrays(edges, None, num_nodes=60)
    owners = partition(graph, 3, method="locality")
    assert int((owners[edges[0]] != owners[edges[1]]).sum()) == 2
    order = locality_order(graph)
    assert torch.equal(order, path) or torch.equal(order, path.flip(0))


def test_locality_keeps_types_together() -> None:
    kinds = torch.arange(40) % 2
    edges = torch.randint(40, (2, 300), generator=torch.Generator().manual_seed(0))
    order = locality_order(HeteroGraph.from_arrays(edges, None, num_nodes=40, node_type=kinds))
    assert torch.equal(order.sort().values, torch.arange(40))
    assert torch.equal(kinds[order], kinds.sort().values)
    assert locality_order(HeteroGraph.from_arrays(torch.empty(2, 0, dtype=torch.int64), None, num_nodes=0)).numel() == 0
    with pytest.raises(ArrayError, match="graph has other destinations than sources"):
        locality_order(HeteroGraph.from_arrays(edges, None, num_nodes=(50, 40)))


def test_metis_cuts_fewer_edges() -> None:
    rings = torch.arange(40)
    edges = torch.stack([rings, (rings // 20) * 20 + (rings + 1) % 20])
    owners = partition(HeteroGraph.from_arrays(edges, None, num_nodes=40), 2, method="metis")
    assert int((owners[edges[0]] != owners[edges[1]]).sum()) == 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(DacergnnError, match='method="metis" needs the package pymetis; install it, or use "ranges"'):
        partition(graph_of(), 2, method="metis")


def test_wrong_arguments() -> None:
    with pytest.raises(ArrayError, match="parts is 0; give the number of processes, 1 or more"):
        partition(graph_of(), 0)
    with pytest.raises(DacergnnError, match="method='best' is not one of ranges, locality, random, metis"):
        partition(graph_of(), 2, method="best")
    edges = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(ArrayError, match="graph has other destinations than sources"):
        partition(HeteroGraph.from_arrays(edges, None, num_nodes=(3, 2)), 2)
    with pytest.raises(DistributedError, match=r"torch\.distributed is not initialized; call init_process_group first"):
        DistributedGraph(edges, torch.zeros(3, dtype=torch.int64))


def test_the_example_of_the_page_runs_under_torchrun(tmp_path: Path) -> None:
    """The blocks that other tests of pages leave out, behind the first one, which makes the data."""
    page = (ROOT / "docs" / "scale.md").read_text()
    first, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    skipped = re.findall(r"<!--- skip: next .*?-->\n\n```python\n(.*?)```", page, re.DOTALL)
    assert len(skipped) == 2
    script = tmp_path / "example.py"
    head = "from tests.support import interpreted\ninterpreted.set_default('interpreted')\n"
    seed = "import torch\ntorch.manual_seed(0)  # all processes have one graph\n"
    script.write_text("\n".join([head, seed, first, *skipped, "assert out.shape == (part.num_own, 8)"]))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
