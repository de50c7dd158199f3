"""PyG's loaders with the samplers of this package; they take the same arguments and make the same batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import NumNeighbors
from torch_geometric.sampler.base import SubgraphType

from dacergnn.sampler.graph import EdgeType
from dacergnn.sampler.hgt_sampler import HGTSampler
from dacergnn.sampler.neighbor_sampler import NeighborSampler

Graph = Data | HeteroData | tuple[FeatureStore, GraphStore]
Fanouts = NumNeighbors | Sequence[int] | Mapping[EdgeType, Sequence[int]]


def neighbor_loader(
    data: Graph,
    num_neighbors: Fanouts,
    input_nodes: Any = None,
    input_time: Tensor | None = None,
    replace: bool = False,
    subgraph_type: SubgraphType | str = "directional",
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    time_attr: str | None = None,
    weight_attr: str | None = None,
    **options: Any,
) -> NeighborLoader:
    """Returns PyG's ``NeighborLoader`` with a `NeighborSampler`, which raises the errors.

    Args:
        input_nodes: The seeds, as PyG takes them.
        input_time: int64 [seeds], their times; None for the times of the nodes themselves.
        options: Other options of PyG's loader or PyTorch's ``DataLoader``, such as ``batch_size`` and ``transform``.
            ``is_sorted`` has no effect, since the order of edges is checked.
    """
    sampler: Any = NeighborSampler(
        data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr
    )
    # The sampler has the numbers of neighbours.
    return NeighborLoader(data, [], input_nodes, input_time, time_attr=time_attr, neighbor_sampler=sampler, **options)


def link_neighbor_loader(
    data: Graph,
    num_neighbors: Fanouts,
    edge_label_index: Any = None,
    edge_label: Tensor | None = None,
    edge_label_time: Tensor | None = None,
    replace: bool = False,
    subgraph_type: SubgraphType | str = "directional",
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    time_attr: str | None = None,
    weight_attr: str | None = None,
    **options: Any,
) -> LinkNeighborLoader:
    """Returns PyG's ``LinkNeighborLoader`` with a `NeighborSampler`, which raises the errors.

    Args:
        edge_label_index: The seed edges, as PyG takes them.
        edge_label: Their labels; None if they have none.
        edge_label_time: int64 [seed edges], their times.
        options: Other options of PyG's loader or PyTorch's ``DataLoader``, such as ``neg_sampling``.
    """
    sampler: Any = NeighborSampler(
        data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr
    )
    seeds = (edge_label_index, edge_label, edge_label_time)
    return LinkNeighborLoader(data, [], *seeds, time_attr=time_attr, neighbor_sampler=sampler, **options)


def hgt_loader(
    data: HeteroData, num_samples: Sequence[int] | Mapping[str, Sequence[int]], input_nodes: Any, **options: Any
) -> NodeLoader:
    """Returns PyG's ``NodeLoader`` with an `HGTSampler`, like PyG's ``HGTLoader``.

    Args:
        input_nodes: A node type, or a pair of a node type and its seeds.
        options: Other options of PyG's loader or PyTorch's ``DataLoader``, such as ``batch_size`` and ``transform``.
    """
    return NodeLoader(data, HGTSampler(data, num_samples), input_nodes, **options)
