import pytest
import torch

from dacergnn.errors import GraphError
from dacergnn.graph import HeteroGraph

dgl = pytest.importorskip("dgl")

SRC, DST = torch.tensor([0, 3, 1, 1]), torch.tensor([2, 1, 0, 0])
TYPES = torch.tensor([1, 0, 1, 0])
CANONICAL = [(0, 0, 1), (0, 1, 3), (1, 0, 1), (1, 2, 0)]


def edges_of(graph: HeteroGraph) -> list[tuple[int, int, int]]:
    return list(zip(*(graph.index("E", path).tolist() for path in ("etype", "dst", "src")), strict=True))


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_homogeneous_graph(idtype: torch.dtype):
    g = dgl.graph((SRC, DST), num_nodes=5, idtype=idtype)
    assert HeteroGraph.from_dgl(g).size("R") == 1
    assert edges_of(HeteroGraph.from_dgl(g, TYPES)) == CANONICAL
    g.edata["rel"] = TYPES
    assert edges_of(HeteroGraph.from_dgl(g, "rel")) == CANONICAL
    with pytest.raises(GraphError, match=r"etype names edge data 'type', but the graph has \['rel'\]"):
        HeteroGraph.from_dgl(g, "type")
    for key in ("etype", dgl.ETYPE):
        g.edata[key] = TYPES
        graph = HeteroGraph.from_dgl(g)
        assert edges_of(graph) == CANONICAL
        assert graph.size("NS") == graph.size("ND") == 5
        g.edata.pop(key)


def typed_graph():
    return dgl.heterograph(
        {
            ("author", "writes", "paper"): ([1], [0]),
            ("paper", "cites", "paper"): ([2, 0], [1, 2]),
        },
        {"paper": 3, "author": 2},
    )


def test_heterograph():
    graph = HeteroGraph.from_dgl(typed_graph())
    assert graph.node_type_names == ("author", "paper")
    assert graph.node_ranges == ((0, 2), (2, 5))
    assert graph.edge_type_names == ("author:writes:paper", "paper:cites:paper")
    assert edges_of(graph) == [(0, 2, 1), (1, 3, 4), (1, 4, 2)]
    with pytest.raises(GraphError, match="etype is for homogeneous DGL graphs"):
        HeteroGraph.from_dgl(typed_graph(), torch.zeros(3))


def test_heterograph_made_homogeneous():
    g = dgl.to_homogeneous(typed_graph())
    graph = HeteroGraph.from_dgl(g)
    assert edges_of(graph) == edges_of(HeteroGraph.from_dgl(typed_graph()))
    assert graph.node_ranges == ((0, 2), (2, 5))


def test_block_of_one_node_type():
    g = dgl.graph((SRC, DST), num_nodes=5)
    g.edata["etype"] = TYPES
    block = dgl.to_block(g, [1, 0, 2])
    graph = HeteroGraph.from_dgl(block, TYPES[block.edata[dgl.EID]])
    assert not graph.bipartite
    assert graph.size("ND") == 3
    assert graph.size("NS") == block.num_src_nodes()
    ids = block.srcdata[dgl.NID]
    found = {(r, int(ids[d]), int(ids[s])) for r, d, s in edges_of(graph)}
    assert found == set(CANONICAL)


def test_block_of_one_node_type_and_two_relations():
    g = dgl.heterograph({("n", "a", "n"): ([0, 1], [2, 2]), ("n", "b", "n"): ([3], [2])})
    graph = HeteroGraph.from_dgl(dgl.to_block(g, {"n": [2]}))
    assert not graph.bipartite
    assert (graph.size("NS"), graph.size("ND"), graph.size("R"), graph.size("T")) == (4, 1, 2, 1)
    assert [edge[:2] for edge in edges_of(graph)] == [(0, 0), (0, 0), (1, 0)]


def test_block_of_several_node_types_is_bipartite():
    sampled = dgl.in_subgraph(typed_graph(), {"paper": [1, 0]})
    block = dgl.to_block(sampled, {"paper": [1, 0]})
    graph = HeteroGraph.from_dgl(block)
    assert graph.bipartite
    assert graph.size("ND") == 2
    assert graph.size("NS") == block.num_src_nodes("author") + block.num_src_nodes("paper")
    assert graph.node_ranges == ((0, 1), (1, 4))
    assert graph.index("E", "dsttype").tolist() == [1, 1]


def test_single_relation_between_two_node_types_is_bipartite():
    g = dgl.heterograph({("user", "buys", "item"): ([0, 1], [3, 0])})
    graph = HeteroGraph.from_dgl(g)
    assert graph.bipartite
    assert (graph.size("NS"), graph.size("ND")) == (2, 4)
    g.srcdata["ntype"] = torch.tensor([0, 0])
    g.dstdata["ntype"] = torch.tensor([1, 1, 1, 1])
    assert HeteroGraph.from_dgl(g).index("E", "dsttype").tolist() == [1, 1]


def test_anything_else():
    with pytest.raises(GraphError, match="from_dgl cannot read a list; pass a DGL graph or block"):
        HeteroGraph.from_dgl([SRC, DST])
