"""Row spaces of sparse features against an obvious restatement, and which tensors share them."""

from __future__ import annotations

import random
import weakref

import numpy as np
import pytest
import torch
from torch import Tensor

from dacergnn import HeteroGraph
from dacergnn.errors import ArrayError, EncodingError, GraphError
from dacergnn.graph.profile import Profile
from dacergnn.graph.spaces import MAPS, NONZEROS, PAIR_NONZEROS
from tests.support.random_graphs import RawGraph, joined_graph, random_graph
from tests.support.sparse import coo, csr

Entries = list[tuple[int, int]]
"""(row, column) of every entry, by row."""


def maps_of_features(raw: RawGraph, entries: dict[str, Entries], columns: int) -> dict[tuple[str, str], list[int]]:
    """Row that each (row space, path) leads to, by loops."""
    found: dict[tuple[str, str], list[int]] = {}
    types = {"S": raw.src_type.tolist(), "D": raw.dst_type.tolist()}
    pairs = {
        "U": sorted({(t, s) for t, s in zip(raw.edge_type.tolist(), raw.src.tolist(), strict=True)}),
        "V": sorted({(t, d) for t, d in zip(raw.edge_type.tolist(), raw.dst.tolist(), strict=True)}),
    }
    for side, own in entries.items():
        found[f"Z{side}", "row"] = [row for row, _ in own]
        found[f"Z{side}", "column"] = [column for _, column in own]
        found[f"Z{side}", "typedcolumn"] = [types[side][row] * columns + column for row, column in own]
    for space, (of, _) in PAIR_NONZEROS.items():
        if space[-1] in entries:
            own = entries[space[-1]]
            rows = [(p, z) for p, (_, node) in enumerate(pairs[of]) for z, (row, _) in enumerate(own) if row == node]
            found[space, "pair"] = [p for p, _ in rows]
            found[space, "nonzero"] = [z for _, z in rows]
            found[space, "typedcolumn"] = [pairs[of][p][0] * columns + own[z][1] for p, z in rows]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_encodings_match_their_definition(seed: int) -> None:
    rng = random.Random(seed)
    raw = random_graph(rng, bipartite=seed % 3 == 0)
    graph, columns = raw.hetero(), rng.randint(1, 5)
    tensors = {"S": coo(rng, graph.size("NS"), columns, rng.randrange(20))}
    if graph.bipartite:
        tensors["D"] = coo(rng, graph.size("ND"), columns, rng.randrange(20))
    entries = {s: sorted(zip(*x._indices().tolist(), strict=True), key=lambda e: e[0]) for s, x in tensors.items()}
    features = graph.with_features(tensors["S"], tensors.get("D"))
    expected = maps_of_features(raw, entries, columns)
    cases = list(expected.items())
    rng.shuffle(cases)  # whatever is asked for first builds what it needs
    for (space, path), index in cases:
        assert features.graph.index(space, path).tolist() == index, (space, path)
        assert features.graph.encoding(f"ids_{space}_{path}").tolist() == np.argsort(index, kind="stable").tolist()
        counts = np.bincount(np.asarray(index, dtype=np.int64), minlength=features.graph.size(MAPS[space, path]))
        assert features.graph.encoding(f"ptr_{space}_{path}").tolist() == [0, *np.cumsum(counts).tolist()]
    for values, side in ((features.src, "S"), (features.dst, "D")):
        if side in tensors:
            dense = torch.zeros(tensors[side].shape)
            dense.index_put_(
                tuple(torch.tensor(entries[side], dtype=torch.int64).reshape(-1, 2).T), values, accumulate=True
            )
            assert torch.allclose(dense, tensors[side].to_dense())
    assert Profile.of(features.graph).sizes["ZS"] == len(entries["S"])
    assert features.graph.single_typed == graph.single_typed
    assert features.graph.encoding("ids_E_src").data_ptr() == graph.encoding("ids_E_src").data_ptr()


def chain() -> HeteroGraph:
    return HeteroGraph.from_arrays(np.array([[0, 1], [1, 2]]), None, num_nodes=3)


def test_graphs_are_found_again() -> None:
    graph, x = chain(), csr([0, 2, 2, 3], [0, 2, 1], (3, 4))
    first = graph.with_features(x)
    assert graph.with_features(x).graph is first.graph
    values = x * 2
    assert graph.with_features(values).graph is first.graph  # entries in the same places
    assert graph.with_features(values).src.tolist() == [2.0, 4.0, 6.0]
    other = torch.sparse_coo_tensor([[2, 0, 0], [1, 0, 2]], [1.0, 2.0, 3.0], (3, 4))
    assert graph.with_features(other).graph is first.graph
    assert graph.with_features(other).src.tolist() == [2.0, 3.0, 1.0]  # in the order of rows
    assert graph.with_features(x).src.tolist() == [1.0, 2.0, 3.0]
    assert graph.with_features(csr([0, 2, 2, 3], [0, 3, 1], (3, 4))).graph is not first.graph
    assert graph.with_features(csr([0, 2, 2, 3], [0, 2, 1], (3, 5))).graph is not first.graph


def test_entries_that_were_moved_are_noticed() -> None:
    graph, x = chain(), csr([0, 2, 2, 3], [0, 2, 1], (3, 4))
    first = graph.with_features(x).graph
    assert first.index("ZS", "column").tolist() == [0, 2, 1]
    x.col_indices()[2] = 3
    second = graph.with_features(x).graph
    assert second.index("ZS", "column").tolist() == [0, 2, 3]
    assert first.index("ZS", "column").tolist() == [0, 2, 1]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_what_is_written_to_a_tensor_changes_no_graph(layout: str) -> None:
    x = csr([0, 2, 2, 3], [0, 2, 1], (3, 4))
    if layout == "coo":
        x = torch.sparse_coo_tensor([[0, 0, 2], [0, 2, 1]], [1.0, 2.0, 3.0], (3, 4))
    graph = chain().with_features(x).graph
    for indices in (x._indices(),) if layout == "coo" else (x.crow_indices(), x.col_indices()):
        indices.zero_()
    assert graph.index("ZS", "column").tolist() == [0, 2, 1]
    assert graph.index("ZS", "row").tolist() == [0, 0, 2]


@pytest.mark.parametrize(("types", "columns", "entries", "widest"), [(2, 5, 9, 18), (2, 9, 3, 18), (3, 9, 3, 27)])
def test_the_widest_row_space_decides_on_indices(
    types: int, columns: int, entries: int, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nonzeros of pairs, columns of two relations, columns of node types."""
    for limit, dtype in ((widest, torch.int64), (widest + 1, torch.int32)):
        monkeypatch.setattr("dacergnn.graph.feature_encodings.INT32_LIMIT", limit)
        graph = joined_graph(random.Random(1), 6, 20, 2, types).hetero()
        assert graph.with_features(coo(random.Random(2), 6, columns, entries)).graph.index_dtype == dtype


def test_features_that_are_gone_are_not_kept_alive() -> None:
    graph, x = chain(), csr([0, 0, 0, 0], [], (3, 4))
    graph.with_features(x)
    gone = weakref.ref(x)
    del x
    assert gone() is None
    for columns in range(1, 9):
        graph.with_features(csr([0, 1, 1, 1], [0], (3, columns)))
    assert len(next(v for k, v in graph.derived.items() if getattr(k, "__name__", "") == "FeatureGraphs")._entries) == 4


def test_many_nonzeros_take_wide_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = joined_graph(random.Random(1), 6, 20, 2, 2).hetero()
    x = coo(random.Random(2), 6, 5, 9)
    narrow = graph.with_features(x).graph
    assert graph.index_dtype == narrow.index_dtype == torch.int32
    monkeypatch.setattr("dacergnn.graph.feature_encodings.INT32_LIMIT", 9)
    wide = joined_graph(random.Random(1), 6, 20, 2, 2).hetero().with_features(x).graph
    assert wide.index_dtype == torch.int64
    for space, path in [(s, p) for s, p in MAPS if s in (*NONZEROS[:1], "UZS", "VZS", "E")]:
        for kind in ("idx", "ptr", "ids"):
            name = f"{kind}_{space}_{path}"
            if path != "one":
                assert narrow.encoding(name).dtype == torch.int32
                assert wide.encoding(name).dtype == torch.int64
                assert torch.equal(wide.encoding(name), narrow.encoding(name).long()), name


def test_graphs_without_features_have_no_rows_of_them() -> None:
    with pytest.raises(
        EncodingError, match="ZS are those of sparse features, which the graph lacks; use with_features"
    ):
        chain().size("ZS")
    with pytest.raises(EncodingError, match="ZD are those of"):
        chain().with_features(csr([0, 0, 0, 1], [0], (3, 1))).graph.size("ZD")
    with pytest.raises(EncodingError, match="VZD are those of"):
        chain().with_features(csr([0, 0, 0, 1], [0], (3, 1))).graph.size("VZD")


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.eye(3).to_sparse_csc(), ArrayError, r"layout torch.sparse_csc; convert it with .to_sparse_csr"),
        (torch.zeros(3, 2), ArrayError, r"x has the layout torch.strided; convert it with .to_sparse_csr"),
        (torch.zeros(3, 2, 2).to_sparse(), ArrayError, r"x is sparse with shape \[3, 2, 2\]; sparse feat"),
        (torch.zeros(3, 2).to_sparse(1), ArrayError, r"x is sparse with shape \[3, 2\]; sparse features are matrices"),
        (csr([0, 1], [0], (1, 2)), ArrayError, r"x has 1 rows, but the graph has 3 nodes; give each node a row"),
        (torch.eye(3).to_sparse_csr().requires_grad_(), ArrayError, r"x is sparse and requires a gradient.*x.detach"),
        (csr([0, 1, 1, 2], [0, 2], (3, 2)), GraphError, r"indices\(\) holds 2 at position 1"),
        (csr([0, 1, 1, 2], [0, -1], (3, 2)), GraphError, r"holds -1 at position 1"),
        (csr([0, 2, 1, 2], [0, 1], (3, 2)), ArrayError, r"row pointers that do not ascend"),
        (csr([0, 1, 1, 1], [0, 1], (3, 2)), ArrayError, r"row pointers that do not ascend"),
        (csr([1, 1, 1, 2], [0, 1], (3, 2)), ArrayError, r"row pointers that do not ascend"),
        (torch.sparse_coo_tensor([[0, 3], [0, 0]], [1.0, 1.0], (3, 2)), GraphError,
         r"x.indices\(\)\[0\] holds 3 at position 1"),
        (torch.sparse_coo_tensor([[0, 1], [0, 2]], [1.0, 1.0], (3, 2)), GraphError,
         r"x.indices\(\)\[1\] holds 2 at position 1"),
    ],
)  # fmt: skip
def test_bad_features(x: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        chain().with_features(x)


def test_gradients_are_no_matter_where_none_are_made() -> None:
    x = torch.eye(3).to_sparse_csr().requires_grad_()
    with torch.no_grad():
        assert chain().with_features(x).graph.size("ZS") == 3
