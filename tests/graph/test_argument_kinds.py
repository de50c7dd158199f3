"""Arguments of the wrong kind: a row for each, with the whole sentence that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dacergnn.errors import ArrayError, DacergnnError, GraphError
from dacergnn.graph import HeteroGraph

EDGES = torch.tensor([[0, 1, 2], [2, 1, 0]])
TYPES = torch.tensor([0, 1, 0])
PAIR = "pass one number, or (sources, destinations)."
LISTED = "pass a list with one name for each type."
KNOWN = "num_nodes, node_type, bipartite, num_edge_types, num_node_types, edge_type_names, node_type_names"

ARRAYS: list[tuple[dict[str, Any], type[DacergnnError], str]] = [
    # Counts
    ({"num_nodes": "3"}, GraphError, "num_nodes is '3'; pass an integer."),
    ({"num_nodes": None}, GraphError, "num_nodes is None; pass an integer."),
    ({"num_nodes": 3.0}, GraphError, "num_nodes is 3.0; pass an integer."),
    ({"num_nodes": True}, GraphError, "num_nodes is True; pass an integer."),
    ({"num_nodes": (3, 2.0)}, GraphError, "num_nodes is (3, 2.0); pass an integer."),
    ({"num_nodes": (3, -1)}, GraphError, "num_nodes is (3, -1); node counts cannot be negative."),
    ({"num_nodes": (3, 3, 3)}, GraphError, f"num_nodes is (3, 3, 3); {PAIR}"),
    ({"num_nodes": ()}, GraphError, f"num_nodes is (); {PAIR}"),
    ({"num_nodes": torch.tensor([3, 3])}, GraphError, "num_nodes is tensor([3, 3]); pass an integer."),
    ({"num_nodes": 2**63}, GraphError,
     "num_nodes is 9223372036854775808; indices have 64 bits, so pass the number that there really are."),
    ({"num_edge_types": 2.5}, GraphError, "num_edge_types is 2.5; pass an integer."),
    ({"num_edge_types": -1}, GraphError, "num_edge_types is -1; edge type counts cannot be negative."),
    ({"num_edge_types": 2**62}, GraphError,
     "4611686018427387904 edge types and 3 nodes make more pairs than 64 bits count; number the types that occur from"
     " 0 on."),
    ({"num_node_types": "1"}, GraphError, "num_node_types is '1'; pass an integer."),
    ({"num_node_types": np.array([1.5])}, GraphError, "num_node_types is array([1.5]); pass an integer."),
    # Names
    ({"edge_type_names": 5}, GraphError, f"edge_type_names is 5; {LISTED}"),
    ({"edge_type_names": "ab"}, GraphError, f"edge_type_names is 'ab'; {LISTED}"),
    ({"edge_type_names": {"a": 0, "b": 1}}, GraphError, f"edge_type_names is {{'a': 0, 'b': 1}}; {LISTED}"),
    ({"node_type_names": {"a"}}, GraphError, f"node_type_names is {{'a'}}; {LISTED}"),
    ({"node_type_names": [None]}, GraphError, "node_type_names holds None at position 0; names are strings."),
    ({"edge_type_names": ["a", 1]}, GraphError, "edge_type_names holds 1 at position 1; names are strings."),
    # Others
    ({"bipartite": "yes"}, GraphError, "bipartite is 'yes'; pass True or False."),
    ({"bipartite": None}, GraphError, "bipartite is None; pass True or False."),
    ({"node_type": (TYPES,)}, ArrayError, "node_type has 1 parts; pass (source types, destination types)."),
    ({"node_type": 0}, ArrayError, "node_type must be a torch tensor or a NumPy array, got int."),
    ({"edge_type": TYPES.to_sparse()}, ArrayError,
     "edge_type has the layout torch.sparse_coo; convert it with .to_dense()."),
    ({"edge_index": EDGES.to_sparse()}, ArrayError,
     "edge_index has the layout torch.sparse_coo; convert it with .to_dense()."),
    ({"edge_index": memoryview(np.zeros((2, 3), dtype=np.int64))}, ArrayError,
     "edge_index must be a torch tensor or a NumPy array, got memoryview."),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "kind", "message"), ARRAYS, ids=[row[2][:50] for row in ARRAYS])
def test_from_arrays(changed: dict[str, Any], kind: type[DacergnnError], message: str) -> None:
    given: dict[str, Any] = {"edge_index": EDGES, "edge_type": TYPES, "num_nodes": 3} | changed
    with pytest.raises(kind) as caught:
        HeteroGraph.from_arrays(given.pop("edge_index"), given.pop("edge_type"), **given)
    assert str(caught.value) == message


@pytest.mark.parametrize("count", [3, np.int32(3), torch.tensor(3), np.array(3), [3, 3], torch.Size((3, 3))])
def test_integers_of_every_kind_are_counts(count: Any) -> None:
    graph = HeteroGraph.from_arrays(EDGES, TYPES, num_nodes=count, num_edge_types=np.int64(2))
    assert [(type(graph.size(s)), graph.size(s)) for s in ("NS", "ND", "R")] == [(int, 3), (int, 3), (int, 2)]


@pytest.mark.parametrize("names", [["a", "b"], ("a", "b"), np.array(["a", "b"])])
def test_names_in_every_kind_of_order(names: Any) -> None:
    assert HeteroGraph.from_arrays(EDGES, TYPES, num_nodes=3, edge_type_names=names).edge_type_names == ("a", "b")


def pyg_data(**fields: Any) -> Any:
    return pytest.importorskip("torch_geometric.data").Data(**fields)


def pyg_hetero(**store: Any) -> Any:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["a"].num_nodes = 3
    for name, value in store.items():
        setattr(data["a", "r", "a"], name, value)
    return data


PYG: list[tuple[Callable[[], Any], dict[str, Any], type[DacergnnError], str]] = [
    (lambda: EDGES, {"num_node": 3}, GraphError, f"from_pyg has no option 'num_node'; there are {KNOWN}."),
    (lambda: EDGES, {"num_nodes": "3"}, GraphError, "num_nodes is '3'; pass an integer."),
    (lambda: EDGES[0], {}, ArrayError, "edge_index has shape [3]; it must be [2, E], sources in row 0."),
    (lambda: EDGES.T, {}, ArrayError, "edge_index has shape [3, 2]; it must be [2, E], sources in row 0."),
    (lambda: EDGES * 1j, {}, ArrayError,
     "edge_index[0] has dtype torch.complex64; indices must be int32 or int64, convert with .long()."),
    (lambda: pyg_data(edge_index=[[0], [1]], num_nodes=2), {}, ArrayError,
     "src must be a torch tensor or a NumPy array, got list."),
    (lambda: torch.ones(2, 2, 2).to_sparse(), {}, GraphError,
     "The adjacency has shape [2, 2, 2]; pass a matrix with one value for each edge."),
    (lambda: torch.ones(2, 2, 2).to_sparse(2), {}, GraphError,
     "The adjacency has shape [2, 2, 2]; pass a matrix with one value for each edge."),
    (lambda: torch.ones(2, 2, 2).to_sparse_csr(), {}, GraphError,
     "The adjacency has shape [2, 2, 2]; pass a matrix with one value for each edge."),
    (lambda: pyg_hetero(edge_index=EDGES), {"num_nodes": 3}, GraphError,
     "num_nodes is for graphs of one type; HeteroData holds it itself, so leave it out."),
    (lambda: pyg_hetero(edge_index=EDGES), {"edge_type": TYPES}, GraphError,
     "edge_type is for graphs of one type; HeteroData holds it itself, so leave it out."),
    (lambda: pyg_hetero(edge_index=EDGES[0]), {}, ArrayError,
     "edge_index of ('a', 'r', 'a') has shape [3]; it must be [2, E], sources in row 0."),
    (lambda: pyg_hetero(edge_index=EDGES.float()), {}, ArrayError,
     "edge_index of ('a', 'r', 'a')[0] has dtype torch.float32; indices must be int32 or int64, convert with .long()."),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Unable to accurately infer 'num_nodes'")
@pytest.mark.parametrize(("data", "options", "kind", "message"), PYG, ids=[row[3][:50] for row in PYG])
def test_from_pyg(data: Callable[[], Any], options: dict[str, Any], kind: type[DacergnnError], message: str) -> None:
    with pytest.raises(kind) as caught:
        HeteroGraph.from_pyg(data(), **options)
    assert str(caught.value) == message


def test_num_nodes_of_none_counts_as_left_out() -> None:
    """The node without edges counts, as the data says."""
    assert HeteroGraph.from_pyg(pyg_data(edge_index=EDGES, num_nodes=5), num_nodes=None).size("NS") == 5
    assert HeteroGraph.from_pyg(torch.eye(4).to_sparse_csr(), num_nodes=None).size("NS") == 4
    assert HeteroGraph.from_pyg(pyg_hetero(edge_index=EDGES), num_nodes=None).size("NS") == 3


@pytest.mark.parametrize(
    ("etype", "message"),
    [
        (5, "edge_type must be a torch tensor or a NumPy array, got int."),
        ([0, 1, 0], "edge_type must be a torch tensor or a NumPy array, got list."),
        ("rel", "etype names edge data 'rel', but the graph has []."),
        (torch.zeros(3), "edge_type has dtype torch.float32; indices must be int32 or int64, convert with .long()."),
    ],
)
def test_from_dgl(etype: Any, message: str) -> None:
    dgl = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
    with pytest.raises(DacergnnError) as caught:
        HeteroGraph.from_dgl(dgl.graph((EDGES[0], EDGES[1])), etype)
    assert str(caught.value) == message
