"""Encodings against an obvious restatement in NumPy, on random graphs."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from dacergnn.errors import EncodingError, GraphError
from dacergnn.graph import TYPE_PATHS, HeteroGraph, formats, sorting
from dacergnn.graph.counting import COUNTED
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.spaces import GRAPH_MAPS, MAPS


@st.composite
def graphs(draw: st.DrawFn) -> tuple[HeteroGraph, dict[str, np.ndarray]]:
    """A graph and what it was made of; few nodes, so that duplicates and empty relations are common."""
    num_src = draw(st.integers(0, 9))
    bipartite = draw(st.booleans())
    num_dst = draw(st.integers(0, 9 if bipartite else num_src))
    num_edge_types = draw(st.integers(1, 4))
    num_node_types = draw(st.integers(1, 3))
    num_edges = draw(st.integers(0, 25)) if num_src and num_dst else 0
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    src = rng.integers(0, num_src, num_edges).astype(dtype)
    dst = rng.integers(0, num_dst, num_edges).astype(dtype)
    etype = rng.integers(0, num_edge_types, num_edges).astype(dtype)
    src_type = rng.integers(0, num_node_types, num_src)
    dst_type = rng.integers(0, num_node_types, num_dst) if bipartite else src_type[:num_dst]
    graph = HeteroGraph.from_arrays(
        (src, dst),
        etype,
        num_nodes=(num_src, num_dst),
        num_edge_types=num_edge_types,
        node_type=(src_type, dst_type) if bipartite else src_type,
        num_node_types=num_node_types,
        bipartite=bipartite,
    )
    return graph, {"src": src, "dst": dst, "etype": etype, "srctype": src_type, "dsttype": dst_type}


Edges = list[tuple[int, int, int]]
"""(edge type, destination, source), sorted by the first two."""


def maps_of_edges(
    edges: Edges, num_src: int, types: list[int], dst_types: list[int]
) -> dict[tuple[str, str], list[int]]:
    src_pairs = sorted({(r, s) for r, _, s in edges})
    dst_pairs = sorted({(r, d) for r, d, _ in edges})
    return {
        ("E", "src"): [s for _, _, s in edges],
        ("E", "dst"): [d for _, d, _ in edges],
        ("E", "etype"): [r for r, _, _ in edges],
        ("E", "srcpair"): [src_pairs.index((r, s)) for r, _, s in edges],
        ("E", "dstpair"): [dst_pairs.index((r, d)) for r, d, _ in edges],
        ("E", "srctype"): [types[s] for _, _, s in edges],
        ("E", "dsttype"): [dst_types[d] for _, d, _ in edges],
        ("E", "typedsrc"): [r * num_src + s for r, _, s in edges],
        ("U", "src"): [s for _, s in src_pairs],
        ("U", "etype"): [r for r, _ in src_pairs],
        ("U", "srctype"): [types[s] for _, s in src_pairs],
        ("V", "dst"): [d for _, d in dst_pairs],
        ("V", "etype"): [r for r, _ in dst_pairs],
        ("V", "dsttype"): [dst_types[d] for _, d in dst_pairs],
    }


def has_few_sources(edges: Edges, relation: int) -> bool:
    own = [(d, s) for r, d, s in edges if r == relation]
    return len({s for _, s in own}) <= len({d for d, _ in own})


def reference_indices(graph: HeteroGraph, given: dict[str, np.ndarray]) -> dict[tuple[str, str], list[int]]:
    rows = zip(given["etype"].tolist(), given["dst"].tolist(), given["src"].tolist(), strict=True)
    edges = sorted(rows, key=lambda e: e[:2])
    ntype, dst_ntype = given["srctype"].tolist(), given["dsttype"].tolist()
    found = maps_of_edges(edges, graph.size("NS"), ntype, dst_ntype)
    for part, few_sources in (("s", True), ("d", False)):
        rows = [n for n, (r, _, _) in enumerate(edges) if has_few_sources(edges, r) == few_sources]
        maps = maps_of_edges([edges[n] for n in rows], graph.size("NS"), ntype, dst_ntype)
        found |= {(space + part, path): index for (space, path), index in maps.items() if path != "typedsrc"}
        found["E" + part, "edge"] = rows
    found |= {
        ("NS", "ntype"): ntype,
        ("ND", "ntype"): dst_ntype,
    }
    for space, path in GRAPH_MAPS:
        if path == "one":
            found[space, path] = [0] * graph.size(space)
    joined = [{(ntype[s], dst_ntype[d]) for r, d, s in edges if r == number} for number in range(graph.size("R"))]
    assert graph.single_typed == all(len(pairs) < 2 for pairs in joined)
    for end, path in enumerate(("srctype", "dsttype")):
        types = [{pair[end] for pair in pairs} for pairs in joined]
        if all(len(t) < 2 for t in types):
            found["R", path] = [max(t, default=0) for t in types]
        else:
            with pytest.raises(GraphError, match=r"Edge type \d+ has (source|destination) nodes of several types"):
                graph.index("R", path)
    return found


@settings(max_examples=60, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_encodings_match_their_definition(drawn, random):
    graph, given_arrays = drawn
    expected = reference_indices(graph, given_arrays)
    for part in ("", "s", "d"):
        assert graph.size("E" + part) == len(expected["E" + part, "src"])
        assert graph.size("U" + part) == len(expected["U" + part, "src"])
        assert graph.size("V" + part) == len(expected["V" + part, "dst"])
    cases = [(way, target) for way, target in GRAPH_MAPS.items() if way in expected]
    random.shuffle(cases)  # whatever is asked for first builds what it needs
    for (space, path), target in cases:
        index = np.asarray(expected[space, path], dtype=np.int64)
        assert graph.index(space, path).tolist() == index.tolist(), (space, path)
        order = graph.encoding(f"ids_{space}_{path}")
        assert order.tolist() == np.argsort(index, kind="stable").tolist(), (space, path)
        starts = graph.encoding(f"ptr_{space}_{path}")
        counts = np.bincount(index, minlength=graph.size(target))
        assert starts.tolist() == [0, *np.cumsum(counts).tolist()], (space, path)
        for tensor in (order, starts, graph.index(space, path)):
            assert tensor.dtype == graph.index_dtype == torch.int32
            assert tensor.is_contiguous()
            assert tensor.ndim == 1


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_orders_by_type_and_path(drawn):
    graph, given_arrays = drawn
    expected = reference_indices(graph, given_arrays)
    for space, type_path in GRAPH_MAPS:
        for other, path in GRAPH_MAPS:
            known = (space, path) in expected and (space, type_path) in expected
            if space == other and type_path in TYPE_PATHS and known:
                order = np.lexsort((expected[space, path], expected[space, type_path]))
                assert graph.encoding(f"ids_{space}_{type_path}_{path}").tolist() == order.tolist()


@settings(max_examples=40, deadline=None)
@given(graphs(), st.sampled_from(["dst", "src", "dstpair", "srcpair"]), st.sampled_from(["", "s", "d"]))
def test_formats(drawn, path, part):
    graph, given_arrays = drawn
    expected = reference_indices(graph, given_arrays)
    space = "E" + part
    groups = np.asarray(expected[space, path], dtype=np.int64)
    rows = [np.flatnonzero(groups == g).tolist() for g in range(graph.size(MAPS[space, path]))]
    width = max(map(len, rows), default=0)
    assert graph.encoding(f"len_{space}_{path}").tolist() == [*map(len, rows), width]
    first = max(1, -(-2 * len(groups) // max(len(rows), 1)))
    starts = np.cumsum([0, *(min(len(own), first) for own in rows)])
    assert graph.encoding(f"reg_{space}_{path}").tolist() == starts.tolist()
    for onward in (None, "src", path):
        index = np.arange(len(groups)) if onward is None else np.asarray(expected[space, onward], dtype=np.int64)
        values = [index[own].tolist() for own in rows]
        suffix = f"{space}_{path}" + (f"_{onward}" if onward else "")
        padded = [v for own in values for v in own + [0] * (width - len(own))]
        hybrid = [v for own in values for v in own[:first]] + [v for own in values for v in own[first:]]
        for name, reference in (("ell", padded), ("hyb", hybrid)):
            tensor = graph.encoding(f"{name}_{suffix}")
            assert tensor.tolist() == reference
            assert tensor.dtype == graph.index_dtype
            assert tensor.is_contiguous()


def test_a_matrix_too_large_for_the_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formats.os, "sysconf", lambda name: 400 if name == "SC_PHYS_PAGES" else 1)
    ends = np.zeros(6, dtype=np.int64)
    graph = HeteroGraph.from_arrays((ends, ends), None, num_nodes=9)
    with pytest.raises(EncodingError, match=r'^ELLPACK of 9 groups, the longest of 6 edges, takes .* "hybrid"\.$'):
        graph.encoding("ell_E_dst")
    assert len(graph.encoding("hyb_E_dst")) == 6


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_edge_order_and_mean_weights(drawn):
    graph, given_arrays = drawn
    edges = np.stack([given_arrays[k] for k in ("etype", "dst", "src")], 1)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    values = torch.arange(len(edges)).reshape(-1, 1)
    assert graph.to_canonical(values).flatten().tolist() == order.tolist()
    assert torch.equal(graph.from_canonical(graph.to_canonical(values)), values)
    if graph.edge_perm is None:
        assert order.tolist() == sorted(order.tolist())
    else:
        assert graph.edge_perm.tolist() == order.tolist()
    pairs = edges[order][:, :2].tolist()
    expected = [1 / pairs.count(pair) for pair in pairs]
    assert graph.pair_mean_weights(torch.float64).tolist() == expected
    assert graph.pair_mean_weights() is graph.pair_mean_weights()


TOGETHER = [
    *(f"{kind}_{space}_ntype" for space in ("NS", "ND") for kind in ("idx", "ptr", "ids")),
    *(f"{kind}_{space}_{path}" for space, path in (("U", "src"), ("V", "dst")) for kind in ("idx", "ptr", "ids")),
    *(f"{kind}_E_{path}" for path in ("src", "dst", "etype", "srcpair", "dstpair") for kind in ("idx", "ptr", "ids")),
    *(f"{kind}_{space}_etype" for space in "UV" for kind in ("idx", "ptr", "ids")),
    "ids_E_etype_src", "via_E_dst_src", "via_E_src_dst", "via_E_dst_srcpair", "via_E_srcpair_dst",
    "via_E_srcpair_srcpair", "via_E_src_dstpair", "via_E_dst_dstpair", "via_V_dst_etype", "via_U_src_etype",
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(graphs(), st.lists(st.sampled_from(TOGETHER), min_size=1, unique=True), st.integers(0, 20))
def test_encodings_that_are_made_together(drawn, names, first):
    """In parts, too, so that some are there when others are made."""
    graph, _ = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "at_hand", lambda tensor: False)
        expected = [Encodings(graph._edges).get(name) for name in names]
    found = Encodings(graph._edges)
    found.make(names[:first])
    found.make(names)
    for name, tensor in zip(names, expected, strict=True):
        assert torch.equal(found.get(name), tensor), name
        assert found.get(name).dtype is graph.index_dtype


def test_ids_beyond_32_bits_take_int64():
    num = 2**34
    src = torch.tensor([num - 1, 5, num - 1, 0])
    dst = torch.tensor([7, num - 1, 7, num - 1])
    etype = torch.tensor([1, 0, 0, 0])
    graph = HeteroGraph.from_arrays((src, dst), etype, num_nodes=num, num_edge_types=2)
    assert graph.index_dtype == torch.int64
    assert graph.edge_perm is not None
    assert graph.edge_perm.tolist() == [2, 1, 3, 0]
    assert graph.encoding("idx_E_typedsrc").tolist() == [num - 1, 5, 0, 2 * num - 1]
    assert graph.encoding("ids_E_etype_src").tolist() == [2, 1, 0, 3]
    assert graph.size("U") == 4
    assert graph.size("V") == 3


def test_typed_source_rows_decide_on_the_index_dtype():
    graph = HeteroGraph.from_arrays(
        (np.array([0]), np.array([0])), np.array([0]), num_nodes=2**20, num_edge_types=2**11
    )
    assert graph.index_dtype == torch.int64
    smaller = HeteroGraph.from_arrays(
        (np.array([0]), np.array([0])), np.array([0]), num_nodes=2**20 - 1, num_edge_types=2**11
    )
    assert smaller.index_dtype == torch.int32


def test_encodings_are_built_once_by_many_threads():
    rng = np.random.default_rng(0)
    graph = HeteroGraph.from_arrays(rng.integers(0, 500, (2, 20_000)), rng.integers(0, 9, 20_000), num_nodes=500)
    names = ["idx_E_srcpair", "ptr_E_dst", "ids_E_src", "idx_U_etype", "ids_E_etype_src", "ptr_V_dst"]
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: found.append([id(graph.encoding(name)) for name in names])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(ids == found[0] for ids in found)


def test_bytes_count_shared_memory_once():
    graph = HeteroGraph.from_arrays(np.array([[0, 1, 1], [0, 0, 1]]), None, num_nodes=2)
    assert graph.encoding_bytes() == {}
    graph.encoding("ids_E_etype_dst")
    graph.encoding("ids_E_dstpair")
    report = graph.encoding_bytes()
    assert {"ids_E_etype_dst", "ids_E_dstpair"} <= report.keys()
    arange = [report[name] for name in ("arange_E", "ids_E_etype_dst", "ids_E_dstpair")]
    assert sorted(arange) == [0, 0, 12]


def test_unknown_names_are_refused():
    graph = HeteroGraph.from_arrays(np.zeros((2, 0), dtype=np.int64), None, num_nodes=1)
    with pytest.raises(EncodingError, match="Rows of E have no map 'sauce'"):
        graph.encoding("idx_E_sauce")
    with pytest.raises(EncodingError, match="'EDGES' is not a row space"):
        graph.size("EDGES")


def test_one_edge_type_needs_fewer_orders():
    edges = np.array([[3, 1, 2, 0, 2], [0, 0, 1, 2, 2]])
    graph = HeteroGraph.from_arrays(edges, None, num_nodes=4)
    assert graph.encoding("ids_E_src").data_ptr() == graph.encoding("ids_E_etype_src").data_ptr()
    assert graph.encoding("via_E_dst_src").data_ptr() == graph.encoding("idx_E_src").data_ptr()
    assert "idx_E_etype" not in graph.encoding_bytes()
    assert graph.encoding("idx_E_etype").tolist() == [0] * 5
    assert graph.encoding("idx_E_etype").is_contiguous()
    typed = HeteroGraph.from_arrays(edges, np.array([1, 0, 0, 1, 0]), num_nodes=4)
    assert typed.encoding("ids_E_src").tolist() != typed.encoding("ids_E_etype_src").tolist()
    assert typed.encoding("via_E_dst_src").tolist() != typed.encoding("idx_E_src").tolist()


def test_encodings_outlast_where_they_are_asked_for() -> None:
    """As tensors, they are those of no transform and of no inference mode."""
    edges = torch.tensor([[3, 1, 2, 0, 2], [0, 0, 1, 2, 2]])
    name = "via_E_src_dst"

    def asked(x: torch.Tensor) -> torch.Tensor:
        graphs[0].build(["ptr_E_src", name])
        graphs[0].encoding(name)
        return x

    def in_fake_mode(x: torch.Tensor) -> torch.Tensor:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return asked(x)

    expected = HeteroGraph.from_arrays(edges, None, num_nodes=4).encoding(name)
    contexts = (
        torch.func.vmap(asked),
        torch.func.grad(lambda x: asked(x).sum()),
        torch.inference_mode()(asked),
        in_fake_mode,
    )
    for context in contexts:
        graphs = [HeteroGraph.from_arrays(edges, None, num_nodes=4)]
        context(torch.ones(3))
        found = graphs[0].encoding(name)
        assert not found.is_inference()
        assert found.data_ptr() != 0
        assert torch.equal(found, expected)


@pytest.mark.parametrize("on_host", [True, False], ids=["C++", "torch"])
def test_large_vectors_that_only_others_need_are_forgotten(on_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)  # with edges in both parts of the graph; an empty vector is never large
    edges, types = torch.randint(60, (2, 500)), torch.randint(4, (500,))
    names = [
        "via_E_srcpair_dst", "ptr_E_srcpair", "idx_U_src", "ids_U_src",
        "via_Es_srcpair_edge", "via_Es_dst_srcpair", "ptr_Ed_src", "via_Ed_src_dstpair", "idx_Ed_edge",
    ]  # fmt: skip
    whole = HeteroGraph.from_arrays(edges, types, num_nodes=60, num_edge_types=4)
    expected = {name: whole.encoding(name) for name in names}
    monkeypatch.setattr("dacergnn.graph.encodings._MANY", 1)
    if not on_host:
        monkeypatch.setattr("dacergnn.graph.sorting.at_hand", lambda vector: False)
    graph = HeteroGraph.from_arrays(edges, types, num_nodes=60, num_edge_types=4)
    encodings = Encodings(graph._edges)
    for asked in (names[:3], names):
        encodings.addresses(asked)
        built, _ = encodings.known
        assert {*built} - COUNTED == {*asked} - COUNTED
        for name, address in zip(asked, encodings.addresses(asked), strict=True):
            assert encodings.get(name).data_ptr() == address
            assert torch.equal(encodings.get(name), expected[name])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", sorted(COUNTED))
def test_counted_vectors_stay_if_somebody_has_their_addresses(name: str, sparse: bool) -> None:
    edges, types = torch.randint(60, (2, 500)), torch.randint(4, (500,))
    graph = HeteroGraph.from_arrays(edges, types, num_nodes=60, num_edge_types=4)
    expected = {other: graph.encoding(other).clone() for other in COUNTED}
    asked = graph.with_features(torch.eye(60).to_sparse_csr()).graph if sparse else graph
    (address, _), _ = asked.addresses([name, "idx_E_src"])
    graph.encodings.forget_counted()
    built, _ = graph.encodings.known
    assert built.keys() & COUNTED == {name}
    assert built[name].data_ptr() == address
    for other, vector in expected.items():  # made anew
        assert torch.equal(graph.encoding(other), vector)
