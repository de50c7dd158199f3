"""Every encoding that C++ makes of edges equals the one that torch makes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from dacergnn import HeteroGraph
from dacergnn.errors import BuildError, GraphError
from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.spaces import GRAPH_MAPS, TYPE_PATHS
from dacergnn.graph.typed_parts import OWN_DESTINATIONS, Part
from tests.support.random_graphs import joined_graph

TYPES = (torch.int32, torch.int64)


def encodings() -> list[str]:
    names = [f"{kind}_{space}_{path}" for space, path in GRAPH_MAPS for kind in ("idx", "ptr", "ids")]
    return [*names, *(f"ids_{s}_{a}_{b}" for s, a in GRAPH_MAPS if a in TYPE_PATHS for t, b in GRAPH_MAPS if s == t)]


def drawn(seed: int) -> Callable[[], HeteroGraph]:
    """A graph of random size, whose edges come in any order, in canonical order, or by destination."""
    rng, torch_rng = random.Random(seed), torch.Generator().manual_seed(seed)
    sources, edges, types = rng.choice([1, 5, 300]), rng.choice([0, 1, 40, 5000]), rng.choice([1, 2, 30])
    destinations = rng.randint(1, sources)
    src = torch.randint(0, sources, (edges,), generator=torch_rng)
    dst = torch.randint(0, destinations, (edges,), generator=torch_rng)
    etype = torch.randint(0, types, (edges,), generator=torch_rng)
    keys = {"any": None, "destination": dst, "canonical": (etype * sources + dst) * sources + src}
    key = keys[rng.choice([*keys])]
    order = torch.arange(edges) if key is None else key.argsort(stable=True)
    dtype, by_type = rng.choice(TYPES), rng.random() < 0.5
    node_type = torch.randint(0, 3, (sources,), generator=torch_rng) if rng.random() < 0.5 else None
    ends = torch.stack([src, dst])[:, order].to(dtype)
    if rng.random() < 0.5:  # a part of a larger index
        ends = torch.cat([ends, ends], dim=1)[:, :edges]
    counted, paired = by_type and rng.random() < 0.5, rng.random() < 0.5
    return lambda: HeteroGraph.from_arrays(
        (ends[0], ends[1]) if paired else ends,
        etype[order] if by_type else None,
        num_nodes=(sources, destinations),
        num_edge_types=types if counted else None,
        node_type=node_type,
    )


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Called, there is none from then on."""

    def forget() -> None:
        native_sorting._library.cache_clear()
        native_sorting._function.cache_clear()

    def fails(*_: object, **__: object) -> None:
        raise BuildError("no compiler")

    def start() -> None:
        forget()
        monkeypatch.setattr(native_sorting, "build", fails)

    yield start
    forget()


@pytest.mark.parametrize("seed", range(60))
def test_graphs_are_those_of_torch(no_compiler: Callable[[], None], seed: int) -> None:
    make = drawn(seed) if seed < 40 else joined_graph(random.Random(seed), 30, 200, 5, 3).hetero
    found = make()
    numbers = found.sizes, dict(found.longest_groups), found.single_typed
    encoded = {name: found.encoding(name) for name in names(found)}
    weights = _weights(found)
    no_compiler()
    expected = make()
    torch.testing.assert_close(weights, _weights(expected))
    for end, space in (("src", "NS"), ("dst", "ND")):
        counted = torch.bincount(found.encoding(f"idx_E_{end}"), minlength=found.size(space))
        assert torch.equal(found.degrees(end, torch.float64), counted.double())
    assert numbers == (expected.sizes, dict(expected.longest_groups), expected.single_typed)
    pairs = [(found.edge_perm, expected.edge_perm), *((own, expected.encoding(n)) for n, own in encoded.items())]
    for a, b in pairs:
        assert (a is None) == (b is None)
        assert a is None or (a.dtype is b.dtype and torch.equal(a, b))


@pytest.mark.parametrize("numbers", [(0, 1), (0, 0)])
def test_parts_tell_which_types_they_join(numbers: tuple[int, int]) -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    parts = [Part(edges, number, (place, 1), str(place)) for place, number in enumerate(numbers)]
    graph = HeteroGraph.of_parts(parts, [2, 2], ["a", "b"], ["s", "t"])
    assert graph.single_typed == (numbers == (0, 1))
    assert (graph.encoding_bytes() == {}) == graph.single_typed  # nothing had to be counted


def test_parts_into_destinations_that_are_no_sources(no_compiler: Callable[[], None]) -> None:
    torch.manual_seed(0)
    counts, rows = [4, 6], 5
    parts = [
        Part(torch.stack([torch.randint(counts[block], (20,)), torch.randint(rows, (20,))]), number,
             (block, OWN_DESTINATIONS), "edges", "x")
        for number, block in enumerate((0, 1, 1))
    ]  # fmt: skip

    def made() -> list[Tensor | None]:
        graph = HeteroGraph.of_parts(parts, counts, ["a", "b", "c"], ["s", "t"], rows)
        assert (graph.size("NS"), graph.size("ND")) == (10, rows)
        order = graph.edge_perm
        assert order is not None
        sources = torch.cat([parts[0].edges[0], parts[1].edges[0] + 4, parts[2].edges[0] + 4])
        assert torch.equal(graph.encoding("idx_E_src").long(), sources[order.long()])
        assert torch.equal(graph.encoding("idx_E_dst").long(), torch.cat([p.edges[1] for p in parts])[order.long()])
        with pytest.raises(GraphError, match=r"edges\[1\] holds 5 .* 5 destination nodes; .* pass x of at least 6"):
            HeteroGraph.of_parts([parts[0]._replace(edges=torch.tensor([[0], [5]]))], counts, ["a"], ["s", "t"], rows)
        return [order, graph.pair_mean_weights(), graph.encoding("ptr_E_dstpair")]

    found = made()
    no_compiler()
    torch.testing.assert_close(made(), found)


def _weights(graph: HeteroGraph) -> list[torch.Tensor]:
    degrees = [graph.degrees(end, dtype) for end in ("src", "dst") for dtype in (torch.float32, torch.float64)]
    return [graph.pair_mean_weights(), graph.symmetric_weights(), graph.degree_roots(), *degrees]


def names(graph: HeteroGraph) -> list[str]:
    return [n for n in encodings() if graph.single_typed or not n.startswith(("idx_R_", "ptr_R_", "ids_R_"))]


@pytest.mark.parametrize("bounds", [(3, 70000), (2**20, 2**30), (2**62, 2**62), (1, 1)])
@pytest.mark.parametrize("length", [0, 1, 300, 9000])
def test_orders_are_stable(length: int, bounds: tuple[int, int]) -> None:
    keys = [(torch.randint(0, bound, (length,)), bound) for bound in bounds]
    expected = sorting._stable_order([*keys], True)
    for dtype in TYPES:
        found = sorting.stable_order(keys, dtype=dtype)
        assert (found is None) == (expected is None)
        assert found is None or (
            found.dtype is dtype and expected is not None and torch.equal(found, expected.to(dtype))
        )


def test_vectors_that_are_not_plain_are_left_to_torch() -> None:
    apart: Tensor = torch.randint(0, 9, (20, 2))[:, 0]
    assert native_sorting.extremes([apart]) is None
    assert native_sorting.reordered([apart], None, torch.int32) is None
    assert torch.equal(sorting.pointers(apart, 9), sorting._pointers(apart, 9))


@pytest.mark.parametrize(("edges", "nodes"), [(0, 5), (1, 1), (3, 2), (200, 30)])
@pytest.mark.parametrize("dtype", TYPES)
def test_self_loops_come_last(edges: int, nodes: int, dtype: torch.dtype) -> None:
    ends = torch.randint(0, nodes, (2, edges), dtype=dtype)
    expected = torch.cat([ends[:, ends[0] != ends[1]], torch.arange(nodes, dtype=dtype).expand(2, -1)], dim=1)
    found = native_sorting.with_loops(ends, (nodes, nodes), nodes)
    assert found is not None
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_edges_of_no_node_are_left_to_those_who_say_so(wrong: int) -> None:
    ends = torch.tensor([[0, 1, 4], [3, wrong, 2]])
    assert native_sorting.with_loops(ends, (5, 5), 5) is None
    assert native_sorting.sorted_edges(ends, None, (5, 5, 1), torch.int32) is None
    assert native_sorting.sorted_edges(ends % 5, ends[1], (5, 5, 5), torch.int32) is None
    with pytest.raises(GraphError, match=rf"edge_index\[1\] holds {wrong} at position 1"):
        HeteroGraph.from_arrays(ends, None, num_nodes=5)


@pytest.mark.parametrize("nodes", [(-1, 3), (3, -1)])
def test_there_are_no_negative_numbers_of_nodes(nodes: tuple[int, int]) -> None:
    with pytest.raises(GraphError, match="node counts cannot be negative"):
        HeteroGraph.from_arrays(torch.zeros(2, 0, dtype=torch.int64), None, num_nodes=nodes, bipartite=True)


def test_checksums_tell_graphs_apart() -> None:
    graphs = [drawn(seed)() for seed in range(40)]
    edges = [(g.size("R") > 1, *(g.index("E", path).tolist() for path in ("src", "dst", "etype"))) for g in graphs]
    for i, a in enumerate(graphs):
        for j, b in enumerate(graphs):
            assert (a.checksum == b.checksum) == (str(edges[i]) == str(edges[j]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.bool])
def test_only_indices_are_read(dtype: torch.dtype) -> None:
    numbers = torch.ones(5).to(dtype)
    assert native_sorting.extremes([numbers]) is None
    assert native_sorting.reordered([numbers], None, torch.int32) is None
    assert native_sorting.checksum([numbers]) is None
