"""Graphs of ranges of destinations."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from dacergnn.graph import HeteroGraph
from dacergnn.graph.destination_ranges import DestinationRanges

NODES, EDGES, TYPES = 200, 1500, 4


def graph_of(*, nodes: int = NODES, near: bool = False) -> HeteroGraph:
    generator = torch.Generator().manual_seed(0)
    dst = torch.randint(nodes, (EDGES,), generator=generator)
    src = (dst + torch.randint(5, (EDGES,), generator=generator)) % nodes if near else dst.flip(0)
    types = torch.randint(TYPES, (EDGES,), generator=generator)
    kinds = torch.arange(nodes) * 2 // nodes
    return HeteroGraph.from_arrays(
        (src, dst), types, num_nodes=nodes, num_edge_types=TYPES, node_type=kinds, num_node_types=2
    )


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_ranges_hold_each_edge_once(count: int, near: bool) -> None:
    graph = graph_of(near=near)
    ranges = DestinationRanges.of(graph).divided(count)
    assert [part.start for part in ranges[1:]] == [part.stop for part in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].stop) == (0, NODES)
    numbers = torch.arange(EDGES)
    found = torch.cat([part.edge_rows(numbers) for part in ranges])
    assert torch.equal(found.sort().values, numbers)
    for part in ranges:
        own = part.edge_rows(numbers)
        assert torch.equal(own, own.sort().values), "edges keep their order"
        sources = part.source_rows(torch.arange(NODES))
        assert torch.equal(sources[part.graph.index("E", "src").long()], graph.index("E", "src")[own].long())
        assert torch.equal(part.graph.index("E", "dst") + part.start, graph.index("E", "dst")[own])
        assert torch.equal(part.graph.index("E", "etype"), graph.index("E", "etype")[own])
        assert torch.equal(part.graph.index("NS", "ntype"), graph.index("NS", "ntype")[sources])
        assert torch.equal(part.graph.index("ND", "ntype"), graph.index("ND", "ntype")[part.start : part.stop])


def test_rows_are_added_where_they_were_taken() -> None:
    graph = graph_of()
    sources, edges = torch.zeros(NODES, 2), torch.zeros(EDGES, 2)
    for part in DestinationRanges.of(graph).divided(5):
        part.add_source_rows(sources, torch.ones(part.graph.size("NS"), 2))
        part.add_edge_rows(edges, torch.ones(part.graph.size("E"), 2))
    assert torch.equal(edges, torch.ones(EDGES, 2))
    assert sources.max() <= 5


def test_near_sources_are_not_copied() -> None:
    graph = graph_of(near=True)
    assert not any(part.copies for part in DestinationRanges.of(graph).divided(4)[:-1])


def test_ranges_have_about_as_much_work() -> None:
    graph = graph_of()
    ranges = DestinationRanges.of(graph).divided(4)
    work = torch.tensor([float(part.graph.size("E") + part.graph.size("ND")) for part in ranges])
    assert work.max() < 1.2 * work.mean()


def test_a_divided_graph_is_freed_at_once() -> None:
    graph = graph_of()
    ranges = DestinationRanges.of(graph).divided(3)
    assert DestinationRanges.of(graph).divided(3) is ranges
    seen = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert seen() is None
    finally:
        gc.enable()


def test_a_graph_without_edges() -> None:
    graph = HeteroGraph.from_arrays(torch.zeros(2, 0, dtype=torch.int64), None, num_nodes=6)
    (first, second) = DestinationRanges.of(graph).divided(2)
    assert (first.graph.size("E"), second.stop) == (0, 6)
    assert first.edge_rows(torch.zeros(0, 3)).shape == (0, 3)
