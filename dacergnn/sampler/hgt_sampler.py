"""The sampler of the Heterogeneous Graph Transformer, for PyG's loaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_geometric.data import HeteroData
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import node_sample

from dacergnn.errors import GraphError
from dacergnn.sampler.fanouts import read_samples
from dacergnn.sampler.native import Options, Seeds, sample_hgt
from dacergnn.sampler.output import to_output
from dacergnn.sampler.seeds import read_seeds
from dacergnn.sampler.source import read_graph


class HGTSampler(BaseSampler):
    """Samples the same number of nodes of each type in each hop, as "Heterogeneous Graph Transformer" describes.

    For each edge type, each sampled node divides a score of 1 among its neighbours. The chance of a node is
    proportional to the square of its total score. Batches hold all edges between their nodes. Random numbers follow
    from torch's generator.

    Args:
        data: The graph.
        num_samples: The number of nodes to sample in each hop: a list for all node types, or a dictionary of lists.

    Raises:
        ArrayError: An array of the graph has the wrong shape or dtype.
        GraphError: Another argument is wrong; the error describes the problem.
    """

    def __init__(self, data: HeteroData, num_samples: Sequence[int] | Mapping[str, Sequence[int]]) -> None:
        if not isinstance(data, HeteroData):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(f"data is a {type(data).__name__}; HGT samples of a HeteroData, so pass one.")
        self.graph = read_graph(data)
        hops, fanouts = read_samples(num_samples, self.graph.node_types)
        self.options = Options(hops=hops, fanouts=fanouts)

    def sample_from_nodes(  # pyright: ignore[reportIncompatibleMethodOverride]  # named as in PyG's own samplers
        self, inputs: NodeSamplerInput
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Returns nodes around seed nodes, and all edges between them.

        Raises:
            ArrayError: The seeds have the wrong shape or dtype.
            GraphError: A seed or its type is not in the graph, or seeds have times.
        """
        return node_sample(inputs, self._sample)

    def sample_from_edges(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Raises GraphError, since HGT samples around nodes."""
        raise GraphError("HGTSampler samples around nodes; take NeighborSampler for seed edges.")

    def _sample(self, seed: Any, seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        if seed_time is not None:
            raise GraphError("Seeds have times, which HGTSampler takes none into account; leave input_time out.")
        seeds = Seeds(read_seeds(self.graph, seed if isinstance(seed, dict) else {None: seed}))
        return to_output(self.graph, sample_hgt(self.graph, seeds, self.options))
