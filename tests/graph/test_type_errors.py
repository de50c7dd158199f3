"""Every kind of wrong types and names to `HeteroGraph.from_arrays`, each with its whole message."""

import re

import pytest
import torch

from dacergnn.errors import ArrayError, DacergnnError, GraphError
from dacergnn.graph import HeteroGraph

EDGES = torch.tensor([[0, 1, 2], [2, 1, 0]])
TYPES = torch.tensor([0, 1, 0])


def check(error: type[DacergnnError], message: str, edge_index=EDGES, edge_type=TYPES, num_nodes=3, **options):
    with pytest.raises(error, match=f"^{re.escape(message)}$") as caught:
        HeteroGraph.from_arrays(edge_index, edge_type, num_nodes=num_nodes, **options)
    assert isinstance(caught.value, ValueError)


def test_node_type_of_wrong_length():
    check(
        ArrayError,
        "node_type has 2 entries; it must have 3 (one type for each node).",
        node_type=torch.tensor([0, 1]),
    )
    check(
        ArrayError,
        "node_type[1] has 1 entries; it must have 2 (one type for each node).",
        num_nodes=(3, 2),
        edge_index=EDGES % 2,
        node_type=(torch.tensor([0, 1, 1]), torch.tensor([0])),
        bipartite=True,
    )


def test_node_type_out_of_range():
    check(
        GraphError,
        "node_type holds 5 at position 2, but there are 2 node types; correct it or pass num_node_types of at least 6.",
        node_type=torch.tensor([0, 1, 5]),
        num_node_types=2,
    )


def test_node_types_of_a_bipartite_graph():
    check(
        ArrayError,
        "node_type must be a pair (source types, destination types) where bipartite=True.",
        node_type=torch.tensor([0, 1, 0]),
        bipartite=True,
    )
    check(
        GraphError,
        "node_type[1] differs from the start of node_type[0], but destinations are the first sources; pass "
        "bipartite=True if they are different nodes.",
        node_type=(torch.tensor([0, 1, 0]), torch.tensor([0, 0, 0])),
    )


def test_names_that_do_not_match_the_types():
    check(
        GraphError,
        "edge_type_names has 3 names, but num_edge_types is 2; give one for each type.",
        num_edge_types=2,
        edge_type_names=["a", "b", "c"],
    )
    check(
        GraphError,
        "edge_type holds 1 at position 1, but there are 1 edge types; correct it or pass num_edge_types of at least 2.",
        edge_type_names=["a"],
    )
