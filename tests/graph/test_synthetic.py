import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dacergnn import datasets
from dacergnn.datasets.clouds import point_clouds
from dacergnn.datasets.draw import Relations, distinct_positions, draw_edges, power_law_parts
from dacergnn.datasets.synthetic import SPECIFICATIONS
from dacergnn.graph import HeteroGraph


def num_duplicates(graph: HeteroGraph) -> int:
    edges = torch.stack([graph.index("E", path) for path in ("etype", "dst", "src")])
    return int((edges[:, 1:] == edges[:, :-1]).all(0).sum())


@pytest.mark.parametrize("name", ["aifb", "mutag", "bgs", "fb15k"])
def test_full_size(name: str):
    spec = SPECIFICATIONS[name]
    data = datasets.resolve(f"{name}~")
    graph = data.graph
    assert data.name == f"{name}~"
    counts = tuple(graph.size(space) for space in ("NS", "E", "T", "R"))
    assert counts == (spec.nodes, spec.edges, spec.node_types, spec.edge_types)
    assert graph.edge_perm is None
    assert data.compaction_ratio == pytest.approx(spec.compaction, abs=0.01)
    assert graph.size("V") == graph.size("U")
    # a few relations and nodes hold most of the edges
    sizes = graph.encoding("ptr_E_etype").diff().sort(descending=True).values
    assert sizes.min() >= 1
    assert sizes[: len(sizes) // 5].sum() > 0.5 * spec.edges
    degrees = graph.encoding("ptr_E_dst").diff()
    assert degrees.max() > 20 * degrees.float().mean()


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_scaled(name: str):
    spec = SPECIFICATIONS[name]
    data = datasets.resolve(f"{name}~0.01")
    graph = data.graph
    assert (graph.size("T"), graph.size("R")) == (spec.node_types, spec.edge_types)
    assert graph.size("NS") == round(spec.nodes * 0.01)
    assert abs(graph.size("E") - spec.edges * 0.01) <= 1
    assert data.compaction_ratio == pytest.approx(spec.compaction, abs=0.035)
    assert num_duplicates(graph) == 0
    assert graph.encoding("ptr_E_etype").diff().min() >= 1
    # one source type and one destination type for each relation, those of its name
    assert graph.node_ranges is not None
    ends = torch.stack([graph.index("E", path) for path in ("etype", "srctype", "dsttype")]).unique(dim=1).T
    named = [name.split(":") for name in graph.edge_type_names]
    assert [(f"type{s}", f"type{d}") for _, s, d in ends.tolist()] == [(s, d) for s, _, d in named]


def test_inverse_relations():
    graph = datasets.synthetic("mutag", 0.1).graph
    etype, dst, src = (graph.index("E", path).tolist() for path in ("etype", "dst", "src"))
    edges = set(zip(etype, dst, src, strict=True))
    assert all(((r + 25) % 50, s, d) in edges for r, d, s in edges)


def test_seeds():
    def edges(seed: int) -> list[int]:
        return datasets.synthetic("aifb", 0.1, seed).graph.index("E", "src").tolist()

    assert edges(3) == edges(3) != edges(4)


@pytest.mark.parametrize("name", SPECIFICATIONS)
@pytest.mark.parametrize("scale", [1e-7, 1e-5, 1e-4, 3e-3])
def test_tiny_scales_are_graphs_too(name: str, scale: float):
    spec = SPECIFICATIONS[name]
    graph = datasets.synthetic(name, scale).graph
    assert graph.size("NS") == max(round(spec.nodes * scale), spec.node_types)
    assert abs(graph.size("E") - max(spec.edges * scale, 1)) <= 1


def test_features_and_classes_of_nodes():
    data = datasets.synthetic("arxiv", 0.01)
    assert data.features["type0"].shape == (1693, 128)
    assert data.features["type0"].dtype == torch.float32
    assert data.num_classes == 40
    degrees = data.graph.encoding("ptr_E_dst").diff()
    assert degrees.max() > 20 * degrees.float().mean()
    assert torch.equal(data.features["type0"], datasets.synthetic("arxiv", 0.01).features["type0"])


def test_clouds_are_joined_with_their_nearest_neighbours():
    data = datasets.resolve("clouds~0.07")
    graph, position = data.graph, data.features["point"].double()
    assert (graph.size("NS"), graph.size("E")) == (2 * 1024, 2 * 1024 * 20)
    assert data.graph_id is not None
    src, dst = graph.index("E", "src").long(), graph.index("E", "dst").long()
    assert torch.equal(data.graph_id[src], data.graph_id[dst])
    assert (graph.encoding("ptr_E_dst").diff() == 20).all()
    distance = torch.cdist(position, position)
    distance[data.graph_id[:, None] != data.graph_id] = torch.inf
    distance.fill_diagonal_(torch.inf)
    furthest = distance[src, dst].view(-1, 20).amax(1)
    assert torch.allclose(furthest, distance.sort(1).values[:, 19], atol=1e-6)
    again = point_clouds(clouds=2, seed=1)
    assert not torch.equal(again.features["point"], data.features["point"])


@settings(max_examples=100)
@given(st.integers(0, 500), st.integers(1, 40), st.floats(0.1, 3))
def test_power_law_parts(total: int, parts: int, exponent: float):
    cut = power_law_parts(total, parts, exponent)
    assert cut.sum() == total
    assert cut.min() >= (1 if total >= parts else 0)
    assert (cut[:-1] >= cut[1:] - 1).all()


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8), st.integers(0, 99))
def test_distinct_positions(groups: list[tuple[int, int]], seed: int):
    counts = np.array([min(pair) for pair in groups], dtype=np.int64)
    limits = np.array([max(pair) for pair in groups], dtype=np.int64)
    found = distinct_positions(counts, limits, np.random.default_rng(seed))
    for part, limit in zip(np.split(found, np.cumsum(counts)[:-1]), limits, strict=False):
        assert (np.diff(part) > 0).all()
        assert ((part >= 0) & (part < limit)).all()


@settings(max_examples=100)
@given(st.lists(st.tuples(*[st.integers(1, 12)] * 3), min_size=1, max_size=5), st.integers(0, 99))
def test_drawn_edges_have_the_planned_end_points(drawn: list[tuple[int, int, int]], seed: int):
    """Any relation from a bare cover of its end points to a complete graph between them."""
    rng = np.random.default_rng(seed)
    sources, destinations = (np.array([d[i] for d in drawn]) for i in (0, 1))
    low, high = np.maximum(sources, destinations), sources * destinations
    edges = low + (high - low) * np.array([d[2] - 1 for d in drawn]) // 11
    zeros = np.zeros_like(edges)
    src, dst = draw_edges(Relations(edges, zeros, zeros + 1, sources, destinations), np.array([12, 15]), rng)
    stops = np.cumsum(edges)[:-1]
    for r, (s, d) in enumerate(zip(np.split(src, stops), np.split(dst, stops), strict=True)):
        assert len(np.unique(s)) == sources[r]
        assert len(np.unique(d)) == destinations[r]
        assert len(np.unique(s * 100 + d)) == edges[r]
        assert s.max() < 12
        assert d.max() < 15
