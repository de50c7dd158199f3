import numpy as np
import pytest
import torch

from dacergnn.errors import ArrayError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.spaces import GRAPH_MAPS


def test_empty_graphs_have_every_encoding():
    none = np.zeros((2, 0), dtype=np.int64)
    for num_nodes in (0, 3):
        graph = HeteroGraph.from_arrays(none, np.zeros(0, dtype=np.int64), num_nodes=num_nodes, num_edge_types=2)
        nodes = {"NS": num_nodes, "ND": num_nodes, "RNS": 2 * num_nodes}
        no_rows = dict.fromkeys(("E", "U", "V", "Es", "Us", "Vs", "Ed", "Ud", "Vd"), 0)
        assert graph.sizes == nodes | no_rows | {"R": 2, "T": 1, "ONE": 1}
        for (space, path), target in GRAPH_MAPS.items():
            assert len(graph.index(space, path)) == graph.size(space)
            assert len(graph.encoding(f"ptr_{space}_{path}")) == graph.size(target) + 1
            assert len(graph.encoding(f"ids_{space}_{path}")) == graph.size(space)
        assert len(graph.pair_mean_weights()) == 0


def test_tensors_of_the_user_are_not_shared():
    edge_index = torch.tensor([[0, 1], [0, 1]], dtype=torch.int32)
    edge_type = torch.zeros(2, dtype=torch.int32)
    graph = HeteroGraph.from_arrays(edge_index, edge_type, num_nodes=2)
    edge_index += 100
    edge_type += 100
    assert graph.edge_perm is None
    assert graph.index("E", "src").tolist() == [0, 1]
    assert graph.index("E", "etype").tolist() == [0, 0]


def test_arrays_of_any_layout():
    edges = np.array([[3, 0], [1, 2], [0, 3]], dtype=np.int32)
    edges.setflags(write=False)
    graph = HeteroGraph.from_arrays(edges.T, None, num_nodes=4)
    backwards = HeteroGraph.from_arrays((edges[::-1, 0], edges[::-1, 1]), None, num_nodes=4)
    assert graph.index("E", "src").tolist() == backwards.index("E", "src").tolist() == [3, 1, 0]
    assert graph.edge_type_names == ("0",)


def test_node_ranges():
    edges = np.zeros((2, 0), dtype=np.int64)

    def ranges(node_type, **options):
        return HeteroGraph.from_arrays(edges, None, num_nodes=4, node_type=node_type, **options).node_ranges

    assert ranges(None) == ((0, 4),)
    assert ranges(np.array([0, 0, 2, 2])) == ((0, 2), (2, 2), (2, 4))
    assert ranges(np.array([0, 0, 1, 1]), num_node_types=3) == ((0, 2), (2, 4), (4, 4))
    assert ranges(np.array([0, 1, 0, 1])) is None
    assert ranges(None, num_node_types=2) == ((0, 4), (4, 4))


def test_destinations_are_a_prefix_of_the_sources():
    node_type = torch.tensor([0, 1, 1, 0])
    graph = HeteroGraph.from_arrays(
        torch.tensor([[3, 2], [0, 1]]),
        None,
        num_nodes=(4, 2),
        node_type=node_type,
        node_type_names=["a", "b"],
    )
    assert graph.index("ND", "ntype").tolist() == [0, 1]
    assert graph.index("E", "dsttype").tolist() == [0, 1]
    assert graph.index("E", "srctype").tolist() == [0, 1]
    assert graph.node_type_names == ("a", "b")


def test_bipartite_graphs_may_have_more_destinations():
    graph = HeteroGraph.from_arrays(
        torch.tensor([[0, 1], [4, 0]]),
        torch.tensor([1, 0]),
        num_nodes=(2, 5),
        node_type=(torch.tensor([0, 0]), torch.tensor([1, 1, 1, 1, 1])),
        bipartite=True,
    )
    assert graph.bipartite
    assert graph.index("E", "dsttype").tolist() == [1, 1]
    assert repr(graph) == (
        "HeteroGraph(bipartite, 2 sources, 5 destinations, 2 edges, 2 node types, 2 edge types, torch.int32, cpu)"
    )


def test_repr_of_a_full_graph():
    graph = HeteroGraph.from_arrays(torch.tensor([[0, 1], [1, 0]]), None, num_nodes=1200)
    assert repr(graph) == "HeteroGraph(1,200 nodes, 2 edges, 1 node types, 1 edge types, torch.int32, cpu)"


def test_edge_values_must_have_a_row_for_each_edge():
    graph = HeteroGraph.from_arrays(torch.tensor([[0, 1], [1, 0]]), None, num_nodes=2)
    with pytest.raises(ArrayError, match=r"values has shape \[3\]; it must have 2 rows"):
        graph.to_canonical(torch.zeros(3))
    with pytest.raises(ArrayError, match="it must have 2 rows"):
        graph.from_canonical(torch.zeros(()))


def test_edge_values_keep_their_gradient():
    graph = HeteroGraph.from_arrays(torch.tensor([[0, 1], [1, 0]]), None, num_nodes=2)
    values = torch.tensor([[1.0], [2.0]], requires_grad=True)
    back = graph.from_canonical(graph.to_canonical(values))
    (back * torch.tensor([[3.0], [5.0]])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[3.0], [5.0]]


def test_moving_to_another_device_keeps_the_order():
    graph = HeteroGraph.from_arrays(
        torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 0]), num_nodes=2, node_type=torch.tensor([0, 1])
    )
    assert graph.to("cpu") is graph
    assert graph.device == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_encodings_are_the_same_on_a_gpu():
    rng = np.random.default_rng(0)
    graph = HeteroGraph.from_arrays(
        rng.integers(0, 50, (2, 999)), rng.integers(0, 7, 999), num_nodes=50, node_type=rng.integers(0, 3, 50)
    )
    moved = graph.to("cuda")
    assert moved.edge_perm is not None
    assert torch.equal(moved.edge_perm.cpu(), graph.edge_perm)
    for space, path in GRAPH_MAPS:
        for kind in ("idx", "ptr", "ids"):
            name = f"{kind}_{space}_{path}"
            assert moved.encoding(name).device.type == "cuda"
            assert torch.equal(moved.encoding(name).cpu(), graph.encoding(name)), name


def test_streams_are_told_of_all_that_was_made_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: told.append(id(tensor)))
    graph = HeteroGraph.from_arrays(np.array([[0, 1, 2], [1, 2, 0]]), np.array([1, 0, 0]), num_nodes=3)
    pairs, permuted = graph.encoding("ptr_E_srcpair"), graph.edge_perm
    graph.derived["alone"] = alone = torch.ones(1)
    graph.derived["within"] = ("a note", (within := torch.ones(1),))
    graph.record_stream("a stream")  # pyright: ignore[reportArgumentType]
    assert {id(pairs), id(permuted), id(alone), id(within)} <= {*told}
