"""The sampler of neighbours for PyG's loaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from dacergnn.errors import GraphError
from dacergnn.graph.checks import as_flag, check_length
from dacergnn.sampler.fanouts import read_fanouts
from dacergnn.sampler.graph import EdgeType, as_times
from dacergnn.sampler.native import Options, Seeds, sample_neighbors
from dacergnn.sampler.output import to_output
from dacergnn.sampler.seeds import check_seed_edges, read_seeds
from dacergnn.sampler.source import read_graph

_STRATEGIES = ("uniform", "last")
_SUBGRAPHS = tuple(kind.value for kind in SubgraphType)


class NeighborSampler(BaseSampler):
    """Samples neighbours of nodes or edges like PyG's sampler of this name, in C++ that needs no other package.

    Random numbers follow from torch's generator: after ``torch.manual_seed``, batches are the same for any number of
    threads. A seed that occurs twice has two positions in the batch, and neighbours lead to the first.

    Args:
        data: The graph: a Data, a HeteroData, or a pair of a FeatureStore and a GraphStore.
        num_neighbors: The number of neighbours of each node in each hop, -1 for all: a list, a dictionary of lists by
            edge type, or PyG's ``NumNeighbors``.
        subgraph_type: "directional" for the edges that were sampled, "bidirectional" to add their opposites,
            "induced" for all edges between the sampled nodes.
        replace: Sample with replacement.
        disjoint: Keep the nodes of each seed apart; ``batch`` tells the seed of each node.
        temporal_strategy: How to choose among neighbours that are not later than the seed: "uniform" for any, "last"
            for the latest.
        time_attr: The attribute that holds times, integers of nodes or of edges. Sampling is disjoint then.
        weight_attr: The attribute that holds weights of edges. A neighbour's chance is proportional to the weight, and
            an edge of weight 0 is never sampled.

    Raises:
        ArrayError: An array of the graph has the wrong shape or dtype, or a weight is negative or not finite.
        GraphError: Another argument is wrong; the error describes the problem.
    """

    def __init__(
        self,
        data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_neighbors: NumNeighbors | Sequence[int] | Mapping[EdgeType, Sequence[int]],
        subgraph_type: SubgraphType | str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
    ) -> None:
        kind = subgraph_type.value if isinstance(subgraph_type, SubgraphType) else subgraph_type
        if kind not in _SUBGRAPHS:
            raise GraphError(f"subgraph_type is {subgraph_type!r}; choose from {', '.join(_SUBGRAPHS)}.")
        if temporal_strategy not in _STRATEGIES:
            raise GraphError(f"temporal_strategy is {temporal_strategy!r}; choose from {', '.join(_STRATEGIES)}.")
        self.is_temporal = time_attr is not None
        self.disjoint = as_flag("disjoint", disjoint) or self.is_temporal
        if kind == "induced" and self.disjoint:
            raise GraphError(
                "subgraph_type is 'induced', which is not sampled by seed; leave disjoint and time_attr out, or choose "
                "'directional'."
            )
        self.graph = read_graph(data, time_attr, weight_attr)
        hops, fanouts = read_fanouts(num_neighbors, self.graph.edge_types)
        given: Any = num_neighbors
        self.num_neighbors = given if isinstance(given, NumNeighbors) else NumNeighbors(given)
        """The argument, as PyG's own code reads it, in `BasicGNN.inference` for example."""
        self.bidirectional = kind == "bidirectional"
        self.options = Options(
            hops=hops,
            fanouts=fanouts,
            replace=as_flag("replace", replace),
            latest=self.is_temporal and temporal_strategy == "last",
            disjoint=self.disjoint,
            induced=kind == "induced",
        )

    def sample_from_nodes(  # pyright: ignore[reportIncompatibleMethodOverride]  # named as in PyG's own samplers
        self, inputs: NodeSamplerInput
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Returns the neighbours of seed nodes, hop by hop.

        Raises:
            ArrayError: The seeds or their times have the wrong shape or dtype.
            GraphError: A seed or its type is not in the graph, or times are missing or not used.
        """
        return self._finished(node_sample(inputs, self._sample))

    def sample_from_edges(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Returns the neighbours of the ends of seed edges, and of negative examples, hop by hop.

        Raises:
            ArrayError: The seeds or their times have the wrong shape or dtype.
            GraphError: A seed or its type is not in the graph, or times are missing or not used.
        """
        graph = self.graph
        check_seed_edges(graph, inputs, self.is_temporal)
        if neg_sampling is not None and neg_sampling.is_triplet() and inputs.label is not None:
            raise GraphError("Seed edges have labels, which triplets have no place for; leave edge_label out.")
        counts: Any = dict(zip(graph.node_types, graph.num_nodes, strict=True))
        times: Any = graph.node_time or None
        if inputs.input_type is None:
            counts, times = counts[None], graph.node_time.get(None)
        return self._finished(edge_sample(inputs, self._sample, counts, self.disjoint, times, neg_sampling))

    def _finished(self, output: Any) -> SamplerOutput | HeteroSamplerOutput:
        return output.to_bidirectional() if self.bidirectional else output

    def _sample(self, seed: Any, seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        graph = self.graph
        nodes = read_seeds(graph, seed if isinstance(seed, dict) else {None: seed})
        times_by_type: Any = seed_time if isinstance(seed_time, dict) or seed_time is None else {None: seed_time}
        if times_by_type is not None and not self.is_temporal:
            raise GraphError("Seeds have times, but the sampler takes none into account; pass time_attr, or no times.")
        times = None
        if self.is_temporal:
            times = torch.cat([self._times(graph.node_types[t], vector, times_by_type) for t, vector in nodes.items()])
        return to_output(graph, sample_neighbors(graph, Seeds(nodes, times), self.options))

    def _times(self, node_type: str | None, nodes: Tensor, times_by_type: Mapping[str | None, Tensor] | None) -> Tensor:
        """Returns the times of seeds of one type: from the user, else their own."""
        if times_by_type is not None:
            times = as_times("The time of seeds", times_by_type[node_type])
            check_length("The time of seeds", times, len(nodes), "one for each seed")
            return times
        own = self.graph.node_time.get(node_type)
        if own is None:
            of = "" if node_type is None else f" of type {node_type!r}"
            raise GraphError(f"Seeds{of} have no time of their own; pass input_time, or time with the sampler's input.")
        return own[nodes]
