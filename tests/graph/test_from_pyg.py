import re
from pathlib import Path

import pytest
import torch

from dacergnn.errors import ArrayError, GraphError
from dacergnn.graph import HeteroGraph

pytest.importorskip("torch_geometric")
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

EDGES = torch.tensor([[0, 3, 1, 1], [2, 1, 0, 0]])
TYPES = torch.tensor([1, 0, 1, 0])
# (etype, dst, src) of these edges, sorted by the first two
CANONICAL = [(0, 0, 1), (0, 1, 3), (1, 0, 1), (1, 2, 0)]

# torch says once that its compressed layouts may still change
BETA = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state:UserWarning")

CHECKED = {"check_invariants": True}


def edges_of(graph: HeteroGraph) -> list[tuple[int, int, int]]:
    return list(zip(*(graph.index("E", path).tolist() for path in ("etype", "dst", "src")), strict=True))


def test_data():
    data = Data(edge_index=EDGES, edge_type=TYPES, num_nodes=6, node_type=torch.tensor([0, 0, 0, 1, 1, 1]))
    graph = HeteroGraph.from_pyg(data, num_edge_types=5)
    assert edges_of(graph) == CANONICAL
    assert (graph.size("NS"), graph.size("R"), graph.size("T")) == (6, 5, 2)
    assert graph.edge_perm is not None
    assert TYPES[graph.edge_perm].tolist() == [0, 0, 1, 1]


def test_data_without_types_has_one():
    graph = HeteroGraph.from_pyg(Data(edge_index=EDGES, num_nodes=4))
    assert graph.size("R") == 1
    with pytest.raises(GraphError, match="data has neither edge_index nor adj_t"):
        HeteroGraph.from_pyg(Data(x=torch.zeros(3, 1)))


def test_edge_index_and_type():
    for graph in (
        HeteroGraph.from_pyg((EDGES, TYPES)),
        HeteroGraph.from_pyg(EDGES, TYPES),
        HeteroGraph.from_pyg(EDGES.int(), TYPES.int()),
    ):
        assert edges_of(graph) == CANONICAL
        assert graph.size("NS") == graph.size("ND") == 4
    assert HeteroGraph.from_pyg((EDGES, TYPES), num_nodes=9).size("NS") == 9
    assert HeteroGraph.from_pyg(EDGES[:, :0]).size("NS") == 0


def test_edge_index_class():
    graph = HeteroGraph.from_pyg(EdgeIndex(EDGES, sparse_size=(7, 7)), TYPES)
    assert edges_of(graph) == CANONICAL
    assert graph.size("NS") == graph.size("ND") == 7
    block = HeteroGraph.from_pyg(EdgeIndex(EDGES, sparse_size=(7, 3)), TYPES)
    assert (block.size("NS"), block.size("ND")) == (7, 3)
    inferred = HeteroGraph.from_pyg(EdgeIndex(EDGES), TYPES)
    assert inferred.size("NS") == 4
    data = Data(edge_index=EdgeIndex(EDGES, sparse_size=(7, 7)), edge_type=TYPES, num_nodes=7)
    assert edges_of(HeteroGraph.from_pyg(data)) == CANONICAL


@BETA
def test_sparse_adjacency_holds_edge_types():
    # Row 0 has two edges from node 1, of both types: adding them up would lose one.
    coo = torch.sparse_coo_tensor(EDGES.flip(0), TYPES, (4, 4), **CHECKED)
    assert edges_of(HeteroGraph.from_pyg(coo)) == CANONICAL
    without_duplicate = [CANONICAL[i] for i in (1, 2, 3)]
    rows = torch.tensor([0, 1, 2, 3, 3])
    csr = torch.sparse_csr_tensor(rows, torch.tensor([1, 3, 0]), torch.tensor([1, 0, 1]), (4, 4), **CHECKED)
    assert edges_of(HeteroGraph.from_pyg(csr)) == without_duplicate
    columns = torch.tensor([0, 1, 2, 2, 3])
    csc = torch.sparse_csc_tensor(columns, torch.tensor([2, 0, 1]), torch.tensor([1, 1, 0]), (4, 4), **CHECKED)
    assert edges_of(HeteroGraph.from_pyg(csc)) == without_duplicate
    assert edges_of(HeteroGraph.from_pyg(Data(adj_t=csr, num_nodes=4))) == without_duplicate


class SparseTensor:
    """The part of torch_sparse.SparseTensor that is read."""

    def __init__(self, row, col, value, sizes):
        self.parts, self.sizes = (row, col, value), sizes

    def coo(self):
        return self.parts

    def sparse_sizes(self):
        return self.sizes


def test_torch_sparse_adjacency():
    adjacency = SparseTensor(EDGES[1], EDGES[0], TYPES, [3, 4])
    graph = HeteroGraph.from_pyg(adjacency)
    assert edges_of(graph) == CANONICAL
    assert (graph.size("NS"), graph.size("ND")) == (4, 3)
    weights = SparseTensor(EDGES[1], EDGES[0], torch.ones(4), [4, 4])
    assert HeteroGraph.from_pyg(weights).size("R") == 1
    assert edges_of(HeteroGraph.from_pyg(weights, TYPES)) == CANONICAL
    with pytest.raises(GraphError, match=r"values of dtype torch.float32, which cannot be edge types; store integers"):
        HeteroGraph.from_pyg(weights, num_edge_types=2)


def hetero_data() -> HeteroData:
    data = HeteroData()
    data["author"].num_nodes = 2
    data["paper"].x = torch.zeros(3, 8)
    data["paper", "cites", "paper"].edge_index = torch.tensor([[2, 0], [1, 2]])
    data["author", "writes", "paper"].edge_index = torch.tensor([[1], [0]])
    return data


def test_hetero_data():
    graph = HeteroGraph.from_pyg(hetero_data())
    assert graph.node_type_names == ("author", "paper")
    assert graph.node_ranges == ((0, 2), (2, 5))
    assert graph.edge_type_names == ("paper:cites:paper", "author:writes:paper")
    assert edges_of(graph) == [(0, 3, 4), (0, 4, 2), (1, 2, 1)]
    assert graph.index("E", "srctype").tolist() == [1, 1, 0]


def test_hetero_data_with_adjacencies_and_without_edges():
    data = hetero_data()
    data["author", "writes", "paper"].edge_index = torch.zeros(2, 0, dtype=torch.int64)
    data["paper", "written_by", "author"].adj_t = SparseTensor(torch.tensor([1]), torch.tensor([2]), None, [2, 3])
    graph = HeteroGraph.from_pyg(data)
    assert graph.size("R") == 3
    assert edges_of(graph)[2:] == [(2, 1, 4)]
    nodes = HeteroData()
    nodes["paper"].num_nodes = 3
    assert HeteroGraph.from_pyg(nodes).sizes["E"] == 0


def test_hetero_data_with_wrong_edges():
    data = hetero_data()
    # In range of the whole graph, but not of its own node type: it would silently reach a paper.
    data["author", "writes", "paper"].edge_index = torch.tensor([[2], [0]])
    with pytest.raises(
        GraphError,
        match=r"edge_index\[0\] of \('author', 'writes', 'paper'\) holds 2 at position 0, but there are 2 "
        r"nodes of type 'author'",
    ):
        HeteroGraph.from_pyg(data)
    data["author", "writes", "paper"].edge_index = torch.zeros(2, 1)
    with pytest.raises(ArrayError, match=r"has dtype torch\.float32"):
        HeteroGraph.from_pyg(data)
    del data["author", "writes", "paper"].edge_index
    data["author", "writes", "paper"].edge_attr = torch.zeros(1, 1)
    with pytest.raises(GraphError, match=r"\('author', 'writes', 'paper'\) has neither edge_index nor adj_t"):
        HeteroGraph.from_pyg(data)


def test_anything_else():
    with pytest.raises(GraphError, match="from_pyg cannot read a dict; pass a Data, HeteroData"):
        HeteroGraph.from_pyg({"edge_index": EDGES})


def test_no_graph_library_is_imported_by_name():
    package = Path(__file__).parents[2] / "dacergnn"
    for folder in ("graph", "datasets"):
        for file in (package / folder).glob("*.py"):
            found = re.search(r"^\s*(import|from) (dgl|torch_geometric)", file.read_text(), re.MULTILINE)
            assert found is None, file
