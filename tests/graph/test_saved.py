"""Graphs in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import dacergnn
from dacergnn.errors import GraphError
from dacergnn.graph import HeteroGraph, out_of_core
from dacergnn.graph.saved import INDEX
from dacergnn.modules import RGAT

NODES, EDGES, TYPES = 40, 300, 3


def made(*, typed: bool = True) -> HeteroGraph:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    types = torch.randint(TYPES, (EDGES,), generator=generator)
    if not typed:
        return HeteroGraph.from_arrays(edges, None, num_nodes=NODES)
    kinds = torch.arange(NODES) // 20
    return HeteroGraph.from_arrays(
        edges, types, num_nodes=NODES, num_edge_types=TYPES, node_type=kinds, edge_type_names=["r", "s", "t"]
    )


@pytest.mark.parametrize("typed", [True, False])
def test_a_loaded_graph_is_the_saved_one(tmp_path: Path, typed: bool) -> None:
    graph = made(typed=typed)
    graph.build(["ptr_E_dst", "ids_E_dst", "counts"])
    graph.save(tmp_path / "graph")
    loaded = HeteroGraph.load(tmp_path / "graph")
    assert repr(loaded) == repr(graph)
    assert loaded.sizes == graph.sizes
    assert loaded.edge_type_names == graph.edge_type_names
    assert loaded.checksum == graph.checksum
    assert loaded.encoding_bytes().keys() == graph.encoding_bytes().keys()
    for name in ("ptr_E_dst", "ids_E_dst", "idx_E_src", "ids_E_src", "ptr_E_srcpair"):
        assert torch.equal(loaded.encoding(name), graph.encoding(name))
    values = torch.arange(EDGES)
    assert torch.equal(loaded.to_canonical(values), graph.to_canonical(values))


def test_layers_run_on_loaded_graphs(tmp_path: Path) -> None:
    graph = made()
    layer, x = RGAT(8, 8, TYPES), torch.randn(NODES, 8)
    expected = layer(x, graph)
    graph.save(tmp_path)
    loaded = HeteroGraph.load(tmp_path, check=False)
    loaded.tell(built := [].append)
    assert torch.equal(layer(x, loaded), expected)
    assert built.__self__ == [], "encodings come from the files"


def test_files_are_mapped_and_never_change(tmp_path: Path) -> None:
    made().save(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    src = HeteroGraph.load(tmp_path).index("E", "src")
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    src[0] = 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_saving_again_replaces_a_graph(tmp_path: Path) -> None:
    made().save(tmp_path)
    first = HeteroGraph.load(tmp_path)
    before = first.index("E", "src").clone()
    made(typed=False).save(tmp_path)
    assert torch.equal(first.index("E", "src"), before)
    second = HeteroGraph.load(tmp_path)
    assert second.size("R") == 1
    files = {*json.loads((tmp_path / INDEX).read_text())["checksums"]}
    assert {path.name for path in tmp_path.iterdir()} == files | {INDEX}


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"holds no graph; name a folder that HeteroGraph.save has written"):
        HeteroGraph.load(tmp_path / "none")
    made().save(tmp_path)
    index = tmp_path / INDEX
    about = json.loads(index.read_text())
    file = tmp_path / about["files"]["dst"]
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(GraphError, match=rf"is damaged \(the checksum of {file.name} differs\); save the graph again"):
        HeteroGraph.load(tmp_path)
    file.write_bytes(content[:-8])
    with pytest.raises(GraphError, match="is damaged"):
        HeteroGraph.load(tmp_path, check=False)
    file.unlink()
    with pytest.raises(GraphError, match="is damaged"):
        HeteroGraph.load(tmp_path)
    index.write_text(json.dumps(about | {"numbers": {**about["numbers"], "num_src": 7}}))
    with pytest.raises(GraphError, match=r"is damaged \(the digest of graph\.json differs\); save the graph again"):
        HeteroGraph.load(tmp_path, check=False)
    index.write_text(json.dumps(about | {"version": 99}))
    with pytest.raises(GraphError, match="has version 99, but this is for 1; save the graph again"):
        HeteroGraph.load(tmp_path)


def test_folders_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphError, match="the graph cannot be written there: "):
        made().save(tmp_path / "file" / "graph")


def test_a_graph_is_public() -> None:
    assert {"save", "load"} <= {*dir(dacergnn.HeteroGraph)}


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("rows", [1, 20, 1000])
@pytest.mark.parametrize("ordered", [True, False])
def test_graphs_that_are_made_in_files_are_those_made_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: bool, rows: int, ordered: bool
) -> None:
    monkeypatch.setattr(out_of_core, "_LEAST", rows)
    draw = torch.Generator().manual_seed(0)
    edges, types = torch.randint(NODES, (2, EDGES), generator=draw), torch.randint(TYPES, (EDGES,), generator=draw)
    edges[:, :100] = 7  # equal edges stay in their order
    if ordered:
        order = (types * NODES * typed + edges[1]).argsort(stable=True)
        edges, types = edges[:, order], types[order]
    options: Any = {"num_nodes": NODES, "node_type": torch.arange(NODES) // 20} | (
        {"num_edge_types": 5} if typed else {}
    )
    expected = HeteroGraph.from_arrays(edges, types if typed else None, **options)
    expected.build(["counts"])
    graph = HeteroGraph.encode(tmp_path, edges, types if typed else None, memory="1KB", **options)
    assert graph.sizes == expected.sizes
    assert graph.encodings.counts == expected.encodings.counts
    assert (graph.edge_perm is None) == (expected.edge_perm is None) == ordered
    if expected.edge_perm is not None and graph.edge_perm is not None:
        assert torch.equal(graph.edge_perm, expected.edge_perm)
    for name in ("idx_E_src", "idx_E_dst", "idx_E_etype", "ids_E_etype_src", "ptr_E_srcpair", "ptr_E_dstpair"):
        assert torch.equal(graph.encoding(name), expected.encoding(name))
    assert {path.suffix for path in tmp_path.iterdir()} == {".npy", ".json"}


def test_graphs_without_edges_are_made_in_files(tmp_path: Path) -> None:
    graph = HeteroGraph.encode(tmp_path, torch.empty(2, 0, dtype=torch.int64), None, num_nodes=3)
    assert (graph.size("E"), graph.size("U")) == (0, 0)


def test_wrong_arguments_of_graphs_in_files(tmp_path: Path) -> None:
    edges = torch.zeros(2, 4, dtype=torch.int64)
    with pytest.raises(GraphError, match="memory='much'; pass a size, as in \"2GB\""):
        HeteroGraph.encode(tmp_path, edges, None, num_nodes=3, memory="much")
    with pytest.raises(GraphError, match="there are 0 source nodes"):
        HeteroGraph.encode(tmp_path, edges, None, num_nodes=0)
    (tmp_path / "file").touch()
    with pytest.raises(GraphError, match="cannot be written there"):
        HeteroGraph.encode(tmp_path / "file", edges, None, num_nodes=3)
