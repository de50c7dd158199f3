"""Samples do not depend on the number of threads, forked processes have what they need, and memory does not grow."""

from __future__ import annotations

import os
import pickle
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData

from dacergnn.sampler import HGTSampler, NeighborSampler
from tests.sampler.oracle import heterogeneous, sample

NODES = 12000


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def large() -> HeteroData:
    """Enough nodes that threads share them."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    for key in ("a", "b"):
        data[key].num_nodes = NODES
        data[key].time = torch.randint(0, 100, (NODES,), generator=generator)
    for key in (("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a")):
        data[key].edge_index = torch.randint(0, NODES, (2, 5 * NODES), generator=generator)
        data[key].w = torch.rand(5 * NODES, generator=generator)
    return data


def arrays(output: Any) -> list[Tensor]:
    return [value for part in (output.node, output.row, output.col, output.edge) for value in part.values()]


def drawn(sampler: Any) -> list[Tensor]:
    torch.manual_seed(5)
    return arrays(sample(sampler, range(9000), "a"))


OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "replace": {"replace": True},
    "weighted": {"weight_attr": "w"},
    "temporal": {"time_attr": "time"},
    "induced": {"subgraph_type": "induced"},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_threads_change_nothing(threads: None, options: str) -> None:
    sampler = NeighborSampler(large(), [4, 4], **OPTIONS[options])
    torch.set_num_threads(1)
    expected = drawn(sampler)
    for count in (2, 7):
        torch.set_num_threads(count)
        assert all(map(torch.equal, expected, drawn(sampler)))


def test_callers_may_be_threads() -> None:
    sampler = NeighborSampler(heterogeneous(random.Random(0)), [-1, -1])
    expected = arrays(sample(sampler, [1, 2], "b"))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: arrays(sample(sampler, [1, 2], "b")), range(40)):
            assert all(map(torch.equal, expected, found))


def test_forked_processes_sample(threads: None) -> None:
    """Also where threads have sampled before, which the child does not have."""
    torch.set_num_threads(2)
    sampler = NeighborSampler(large(), [4, 4])
    expected = drawn(sampler)
    child = os.fork()
    if child == 0:
        same = False
        signal.alarm(60)  # ends a child that waits for threads of its parent
        try:
            # Torch's own functions would wait for threads of the parent where tensors are large.
            same = all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(expected, drawn(sampler), strict=True))
        finally:
            os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("kind", ["neighbors", "hgt"])
def test_samplers_are_pickled(kind: str) -> None:
    data = heterogeneous(random.Random(0))
    sampler = NeighborSampler(data, [2, 2]) if kind == "neighbors" else HGTSampler(data, [2, 2])
    results = list[list[Tensor]]()
    for one in (sampler, pickle.loads(pickle.dumps(sampler))):
        torch.manual_seed(0)
        results.append(arrays(sample(one, [1, 2], "a")))
    assert all(map(torch.equal, *results))


def test_shared_memory_moves_the_graph() -> None:
    """Sending a tensor to another process moves it, so that no address may be kept."""
    sampler = NeighborSampler(heterogeneous(random.Random(0)), [-1, -1])
    expected = arrays(sample(sampler, [1, 2], "b"))
    for relation in sampler.graph.relations:
        for vector in (relation.colptr, relation.row, relation.edge):
            if vector is not None:
                vector.share_memory_()
    assert all(map(torch.equal, expected, arrays(sample(sampler, [1, 2], "b"))))


@pytest.mark.parametrize("kind", ["neighbors", "disjoint", "hgt"])
def test_memory_does_not_grow(kind: str) -> None:
    data = large()
    sampler = (
        HGTSampler(data, [50, 50]) if kind == "hgt" else NeighborSampler(data, [4, 4], disjoint=kind != "neighbors")
    )

    def pages(calls: int) -> int:
        for _ in range(calls):
            sample(sampler, range(500), "a")
        return int(Path("/proc/self/statm").read_text().split()[1])

    before = pages(15)
    assert (pages(60) - before) * os.sysconf("SC_PAGE_SIZE") < 4e6  # 60 samples have more than 15 MB
