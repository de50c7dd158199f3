"""Encodings of graphs on a device: those of the processor, made there."""

from __future__ import annotations

import random

import pytest
import torch

from dacergnn import HeteroGraph, datasets
from dacergnn.graph.spaces import GRAPH_SPACES
from tests.frontends.graphs import typed_edges
from tests.gpu.layers import hub_edges, typed_graph
from tests.support.random_graphs import random_graph

NAMES = (
    *("idx_E_src", "idx_E_dst", "idx_E_etype", "idx_E_srcpair", "idx_E_dstpair", "idx_NS_ntype", "idx_ND_ntype"),
    *("idx_U_src", "idx_U_etype", "idx_V_dst", "idx_V_etype", "ptr_E_src", "ids_E_src", "ptr_E_dst", "ids_E_dst"),
    *("ptr_E_etype", "ptr_E_srcpair", "ids_E_srcpair", "ptr_E_dstpair", "ids_E_dstpair", "ptr_U_etype", "ptr_V_etype"),
    *("ptr_U_src", "ids_U_src", "ptr_V_dst", "ids_V_dst", "ids_E_etype_dst", "ids_E_etype_src", "via_E_dst_src"),
)


def graphs() -> dict[str, HeteroGraph]:
    cpu = torch.device("cpu")
    found = {f"random {seed}": random_graph(random.Random(seed)).hetero() for seed in range(8)}
    found |= {"small": typed_graph(typed_edges(), cpu), "hubs": typed_graph(hub_edges(), cpu)}
    return found | {"aifb": datasets.synthetic("aifb").graph}


@pytest.mark.parametrize("name", graphs())
def test_encodings_are_those_of_the_processor(name: str, device: torch.device) -> None:
    graph = graphs()[name]
    there = graph.to(device)
    assert there.device.type == "cuda"
    for space in GRAPH_SPACES:
        assert there.size(space) == graph.size(space), space
    for encoding in NAMES:
        wanted, found = graph.encoding(encoding), there.encoding(encoding)
        assert found.is_cuda, encoding
        assert found.dtype == wanted.dtype, encoding
        assert torch.equal(found.cpu(), wanted), encoding


def test_edges_on_the_device_are_sorted_there(device: torch.device) -> None:
    edges = hub_edges()
    here = typed_graph(edges, torch.device("cpu"))
    there = HeteroGraph.from_arrays(
        edges.edge_index.to(device),
        edges.edge_type.to(device),
        num_nodes=edges.num_src,
        num_edge_types=edges.num_relations,
        node_type=edges.node_type().to(device),
        num_node_types=len(edges.type_sizes),
    )
    assert there.device.type == "cuda"
    assert there.edge_perm is not None
    for name in ("idx_E_src", "idx_E_dst", "idx_E_etype", "ids_E_src"):
        assert torch.equal(there.encoding(name).cpu(), here.encoding(name)), name
