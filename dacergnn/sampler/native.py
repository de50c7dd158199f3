"""Calls the samplers in C++, which run without Python's lock."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from dacergnn.native.build import build
from dacergnn.sampler.graph import SampledGraph

HEADERS = Path(__file__).parent / "include"
"""The folder of the headers of the sampler."""
_CODE = """
#include "sampling/calls.h"
using namespace dacergnn::sampling;
extern "C" Sample *sample_neighbors(const Number *graph, const Number *request, Number *sizes) {
  return sampled(graph, request, sizes, [](const Graph &g, const Request &r) { return NeighborSampling(g, r).run(); });
}
extern "C" Sample *sample_hgt(const Number *graph, const Number *request, Number *sizes) {
  return sampled(graph, request, sizes, [](const Graph &g, const Request &r) { return HGTSampling(g, r).run(); });
}
extern "C" void copy_arrays(const Sample *sample, const Number *addresses) { copy_sample(*sample, addresses); }
extern "C" void release(const Sample *sample) { delete sample; }
"""


@dataclass(frozen=True)
class Seeds:
    """Holds the nodes from which a sample starts; each has a tree of its own, counted over all types.

    Args:
        nodes: int64 [S], contiguous, by the number of their type.
        times: int64 [all trees], type by type in the order of ``nodes``; None if time does not matter.
    """

    nodes: Mapping[int, Tensor]
    times: Tensor | None = None


@dataclass(frozen=True)
class Options:
    """Holds the options of sampling.

    Args:
        hops: Number of hops, each of which samples neighbours of the nodes before.
        fanouts: Numbers of neighbours by relation and hop, -1 for all; for `sample_hgt` of nodes by type and hop.
        replace: Sample with replacement.
        latest: Take the latest neighbours.
        disjoint: Keep the nodes of each tree apart.
        induced: Return all edges between the sampled nodes.
    """

    hops: int
    fanouts: Sequence[Sequence[int]]
    replace: bool = False
    latest: bool = False
    disjoint: bool = False
    induced: bool = False


@dataclass(frozen=True)
class Sample:
    """Holds sampled nodes of each type, and edges of each relation.

    Args:
        nodes: int64 [N], the seeds first, then the nodes of each hop.
        batches: int64 [N], the tree of each node; None if the nodes are not kept apart.
        rows: int64 [E], sources of the edges, as positions in the nodes of their type.
        cols: int64 [E], destinations of the edges likewise.
        edges: int64 [E], numbers of the edges in the user's graph.
        node_counts: Numbers of the seeds, and of the nodes of each hop.
        edge_counts: Numbers of the edges of each hop; None if the edges do not belong to hops.
    """

    nodes: Sequence[Tensor]
    batches: Sequence[Tensor] | None
    rows: Sequence[Tensor]
    cols: Sequence[Tensor]
    edges: Sequence[Tensor]
    node_counts: Sequence[list[int]]
    edge_counts: Sequence[list[int]] | None


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build("sampling", _CODE, headers=HEADERS)))
    address = ctypes.c_void_p
    for name in ("sample_neighbors", "sample_hgt"):
        function = getattr(library, name)
        function.argtypes, function.restype = [address] * 3, address
    library.copy_arrays.argtypes, library.copy_arrays.restype = [address] * 2, None
    library.release.argtypes, library.release.restype = [address], None
    return library


def sample_neighbors(graph: SampledGraph, seeds: Seeds, options: Options) -> Sample:
    """Samples neighbours of seeds, then neighbours of these, and so on.

    All random numbers follow from one number of torch's generator.

    Raises:
        BuildError: There is no C++ compiler.
        MemoryError: The sample does not fit into memory.
    """
    return _sample(_library().sample_neighbors, graph, seeds, options)


def sample_hgt(graph: SampledGraph, seeds: Seeds, options: Options) -> Sample:
    """Samples nodes of each type in each hop, with chances that grow with their edges to the sample; takes all edges.

    It raises the errors of `sample_neighbors`.
    """
    return _sample(_library().sample_hgt, graph, seeds, replace(options, induced=True))


def _sample(
    function: Callable[[int, int, int], int | None], graph: SampledGraph, seeds: Seeds, options: Options
) -> Sample:
    fanouts = array("q", [fanout for relation in options.fanouts for fanout in relation])
    flags = (options.replace, options.latest, options.disjoint, options.induced)
    times = 0 if seeds.times is None else seeds.times.data_ptr()
    key = int(torch.empty((), dtype=torch.int64).random_())
    numbers = array("q", [key, options.hops, torch.get_num_threads(), *flags, _address(fanouts), times])
    places, tree = {}, 0
    for place, nodes in seeds.nodes.items():
        places[place] = (nodes.data_ptr(), len(nodes), tree)
        tree += len(nodes)
    for place in range(len(graph.node_types)):
        numbers.extend(places.get(place, (0, 0, 0)))
    types, relations = len(graph.node_types), len(graph.relations)
    sizes = array("q", bytes(8 * (types * (options.hops + 2) + relations * (options.hops + 1))))
    described = graph.numbers()
    sample = function(_address(described), _address(numbers), _address(sizes))
    if sample is None:
        raise MemoryError("A sample does not fit into memory; sample fewer neighbours, or of fewer seeds.")
    try:
        return _copied(sample, graph, options, sizes.tolist())
    finally:
        _library().release(sample)


def _address(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]


def _copied(sample: int, graph: SampledGraph, options: Options, sizes: list[int]) -> Sample:
    """Copies the arrays of a sample from C++; ``write_sizes`` of ``calls.h`` has written ``sizes``."""
    types, relations, hops = len(graph.node_types), len(graph.relations), options.hops
    nodes, edges, ends = sizes[:types], sizes[types : types + relations], sizes[types + relations :]
    nodes_and_trees = torch.empty(2 if options.disjoint else 1, sum(nodes), dtype=torch.int64)
    trees = nodes_and_trees[1].data_ptr() if options.disjoint else 0
    ends_and_ids = torch.empty(3, sum(edges), dtype=torch.int64)
    addresses = array("q", [nodes_and_trees.data_ptr(), trees, *(vector.data_ptr() for vector in ends_and_ids)])
    _library().copy_arrays(sample, _address(addresses))
    batches = nodes_and_trees[1].split(nodes) if options.disjoint else None
    rows, cols, ids = (vector.split(edges) for vector in ends_and_ids)
    node_counts = [_differences(ends[t * (hops + 1) :][: hops + 1]) for t in range(types)]
    edge_ends = ends[types * (hops + 1) :]
    edge_counts = None if options.induced else [_differences(edge_ends[r * hops :][:hops]) for r in range(relations)]
    return Sample(nodes_and_trees[0].split(nodes), batches, rows, cols, ids, node_counts, edge_counts)


def _differences(ends: list[int]) -> list[int]:
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
