"""Every kind of wrong edges to `HeteroGraph.from_arrays`, each with its whole message."""

import re

import numpy as np
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


def test_source_out_of_range():
    check(
        GraphError,
        "edge_index[0] holds 7 at position 1, but there are 3 source nodes; correct it or pass num_nodes of "
        "at least 10.",
        edge_index=torch.tensor([[0, 7, 9], [0, 0, 0]]),
    )


def test_destination_out_of_range_of_a_pair():
    check(
        GraphError,
        "dst holds 2 at position 0, but there are 2 destination nodes; correct it or pass num_nodes of at least 3.",
        edge_index=(EDGES[0], EDGES[1]),
        num_nodes=(3, 2),
    )


@pytest.mark.parametrize("row", [0, 1])
def test_negative_index(row: int):
    edges = EDGES.clone()
    edges[row, 2] = -1
    check(
        GraphError,
        f"edge_index[{row}] holds -1 at position 2; indices count from 0, so remove padding and shift "
        "indices that start elsewhere.",
        edge_index=edges,
    )


def test_too_few_nodes_for_numpy_edges():
    check(
        GraphError,
        "edge_index[0] holds 1 at position 1, but there are 1 source nodes; correct it or pass num_nodes of "
        "at least 3.",
        edge_index=EDGES.numpy(),
        num_nodes=1,
    )


def test_negative_node_count():
    check(GraphError, "num_nodes is -3; node counts cannot be negative.", num_nodes=-3)


def test_edge_type_out_of_range():
    check(
        GraphError,
        "edge_type holds 1 at position 1, but there are 1 edge types; correct it or pass num_edge_types of at least 2.",
        num_edge_types=1,
    )


def test_negative_edge_type():
    check(
        GraphError,
        "edge_type holds -2 at position 2; indices count from 0, so remove padding and shift indices that "
        "start elsewhere.",
        edge_type=torch.tensor([0, 1, -2]),
    )


def test_edge_type_of_wrong_length():
    check(
        ArrayError,
        "edge_type has 2 entries; it must have 3 (one type for each edge).",
        edge_type=TYPES[:2],
    )


def test_sources_and_destinations_of_different_length():
    check(ArrayError, "dst has 2 entries; it must have 3 (as many as src).", edge_index=(EDGES[0], EDGES[1, :2]))


def test_floating_point_indices():
    check(
        ArrayError,
        "edge_index[0] has dtype torch.float32; indices must be int32 or int64, convert with .long().",
        edge_index=EDGES.float(),
    )
    check(
        ArrayError,
        "edge_type has dtype float64; indices must be int32 or int64, convert with .astype('int64').",
        edge_type=np.zeros(3),
    )


def test_narrow_indices():
    check(
        ArrayError,
        "edge_type has dtype torch.int16; indices must be int32 or int64, convert with .long().",
        edge_type=TYPES.short(),
    )


def test_lists():
    check(ArrayError, "edge_type must be a torch tensor or a NumPy array, got list.", edge_type=[0, 1, 0])
    check(ArrayError, "src must be a torch tensor or a NumPy array, got list.", edge_index=([0, 1], [0, 1]))


def test_edge_index_of_wrong_shape():
    message = "edge_index has shape {}; it must be [2, E], sources in row 0."
    check(ArrayError, message.format("[3, 2]"), edge_index=EDGES.T.contiguous())
    check(ArrayError, message.format("[3]"), edge_index=EDGES[0])
    check(ArrayError, message.format("[]"), edge_index="edges")
    check(ArrayError, "edge_index has 3 parts; pass (src, dst).", edge_index=(EDGES[0], EDGES[1], TYPES))


def test_edge_type_of_wrong_rank():
    check(ArrayError, "edge_type has shape [3, 1]; it must have one dimension.", edge_type=TYPES[:, None])


def test_other_device():
    check(
        ArrayError,
        "edge_type is on meta, the edge list on cpu; move it with .to('cpu').",
        edge_type=TYPES.to("meta"),
    )
    check(
        ArrayError,
        "dst is on meta, the edge list on cpu; move it with .to('cpu').",
        edge_index=(EDGES[0], EDGES[1].to("meta")),
    )


def test_more_destinations_than_sources():
    check(
        GraphError,
        "num_nodes is (3, 4): destinations must be the first of the sources, so there cannot be more of "
        "them; pass bipartite=True if sources and destinations are different nodes.",
        num_nodes=(3, 4),
    )
