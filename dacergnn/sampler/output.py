"""Converts samples to the form of PyG's samplers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from dacergnn.sampler.graph import SampledGraph
from dacergnn.sampler.native import Sample


def to_output(graph: SampledGraph, sample: Sample) -> SamplerOutput | HeteroSamplerOutput:
    """Returns a sample in the form that PyG's loaders take, without metadata."""
    node_counts = None if sample.edge_counts is None else sample.node_counts
    if graph.node_types == [None]:
        return SamplerOutput(
            node=sample.nodes[0],
            row=sample.rows[0],
            col=sample.cols[0],
            edge=sample.edges[0],
            batch=None if sample.batches is None else sample.batches[0],
            num_sampled_nodes=None if node_counts is None else node_counts[0],
            num_sampled_edges=None if sample.edge_counts is None else sample.edge_counts[0],
        )
    return HeteroSamplerOutput(
        node=_by_type(graph.node_types, sample.nodes),
        row=_by_type(graph.edge_types, sample.rows),
        col=_by_type(graph.edge_types, sample.cols),
        edge=_by_type(graph.edge_types, sample.edges),
        batch=_by_type(graph.node_types, sample.batches),
        num_sampled_nodes=_by_type(graph.node_types, node_counts),
        num_sampled_edges=_by_type(graph.edge_types, sample.edge_counts),
    )


def _by_type(types: Sequence[Any], values: Sequence[Any] | None) -> Any:
    return None if values is None else dict(zip(types, values, strict=True))
