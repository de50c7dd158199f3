// What operators of torch get as arguments: edges that are sorted already, and arrays. Nothing of it is trusted.
#pragma once

#include "arguments.h"
#include "graph.h"

namespace deploy {

// An array of a program, or memory for a result.
struct Array {
  void *data;
  Number elements;
};

// Returns edges [4, count] whose rows are sources, destinations, types and positions.
inline Edges rows_of_edges(Index *rows, Number count, const Sizes &sizes) {
  Edges edges;
  edges.count = count;
  edges.sizes = sizes;
  edges.src = rows;
  edges.dst = rows + count;
  edges.type = rows + 2 * count;
  edges.position = rows + 3 * count;
  return edges;
}

// Checks that ids and types are in range, and that edges are sorted by type and destination, which kernels rely on.
inline void check_given(const Edges &edges, const char *label) {
  const Sizes &sizes = edges.sizes;
  if (sizes.sources < 0 || sizes.destinations < 0 || sizes.types < 1 || sizes.node_types < 1)
    fail(kBadInput, "%s: the graph has %lld sources, %lld destinations, %lld relations and %lld node types.", label,
         (long long)sizes.sources, (long long)sizes.destinations, (long long)sizes.types, (long long)sizes.node_types);
  check_sizes(label, edges.count, sizes);
  Index last_type = 0, last_dst = 0;
  bool in_range = true, in_order = true;
  for (Number i = 0; i < edges.count; ++i) {
    const Index src = edges.src[i], dst = edges.dst[i], type = edges.type[i];
    in_range &= src >= 0 && src < sizes.sources && dst >= 0 && dst < sizes.destinations && type >= 0 && type < sizes.types;
    in_order &= type > last_type || (type == last_type && dst >= last_dst);
    last_type = type;
    last_dst = dst;
  }
  if (!in_range)
    fail(kBadInput, "%s: an edge has an end or a type out of range; there are %lld sources, %lld destinations and %lld "
         "relations.", label, (long long)sizes.sources, (long long)sizes.destinations, (long long)sizes.types);
  if (!in_order) fail(kBadInput, "%s: the edges are not sorted by type and destination; pass those of a graph.", label);
}

// Takes over the types of sources; those of destinations must be the first of them.
inline void give_node_types(Edges &edges, Index *sources, Number source_count, const Index *destinations,
                            Number destination_count, const char *label) {
  const Sizes &sizes = edges.sizes;
  if (source_count != sizes.sources || destination_count != sizes.destinations || destination_count > source_count)
    fail(kBadInput, "%s: there are %lld and %lld types of nodes for %lld sources and %lld destinations.", label,
         (long long)source_count, (long long)destination_count, (long long)sizes.sources, (long long)sizes.destinations);
  for (Number i = 0; i < source_count; ++i)
    if (sources[i] < 0 || sources[i] >= sizes.node_types)
      fail(kBadInput, "%s: type %lld of node %lld is out of range; there are %lld.", label, (long long)sources[i],
           (long long)i, (long long)sizes.node_types);
  if (!std::equal(destinations, destinations + destination_count, sources))
    fail(kBadInput, "%s: the destinations have other types than the first sources.", label);
  edges.node_type = sources;
}

}  // namespace deploy
