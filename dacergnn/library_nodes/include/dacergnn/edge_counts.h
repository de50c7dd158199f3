// Counts what the host has to know of the edges of a graph, in one pass over them.
#pragma once

#include "sorting.h"

namespace dacergnn {

struct EdgesOfGraph {
  Number edges, types, sources, destinations, bytes;
  Number src, dst, type, by_source, source_type, destination_type;  // addresses; 0: one type, the same order
  Number source_pairs, destination_pairs;  // addresses of the starts of pairs, edges + 1 of each
};

struct EdgeCounts {
  Number pairs[2];         // of sources with edge types, of destinations with these
  Number parts[2][3];      // edges and both pairs of types with at most as many pairs of sources, and of the others
  Number longest[4];       // edges of the source, the destination, and either pair, that has the most
  Number mixed[2];         // the first type with sources, or destinations, of several node types; else `types`
};

// Returns the length of the longest group of equal targets below `count`, or -1 if there is no memory.
template <class Index>
Number longest_group(const Index *target, Number length, Number count) {
  const auto found = Buffer<std::int32_t>::zeros(count);
  if (!found) return -1;
  std::int32_t longest = 0;
  for (Number i = 0; i < length; ++i) longest = std::max(longest, ++found[target[i]]);
  return longest;
}

template <class Index>
void count_edges(const EdgesOfGraph &graph, EdgeCounts &counts) {
  const auto *src = (const Index *)graph.src, *dst = (const Index *)graph.dst, *type = (const Index *)graph.type;
  const auto *by_source = (const Index *)graph.by_source;
  Index *const starts[2] = {(Index *)graph.source_pairs, (Index *)graph.destination_pairs};
  counts = {};
  counts.mixed[0] = counts.mixed[1] = graph.types;
  for (Number first = 0, end = 0; first < graph.edges; first = end) {
    end = type ? std::upper_bound(type + first, type + graph.edges, type[first]) - type : graph.edges;
    Number before[2] = {counts.pairs[0], counts.pairs[1]};
    const auto add_pairs = [&](int side, auto node) {
      Number start = first;
      for (Number i = first; i < end; ++i) {
        if (i > first && node(i) == node(i - 1)) continue;
        counts.longest[2 + side] = std::max(counts.longest[2 + side], i - start);
        starts[side][counts.pairs[side]++] = (Index)i;
        start = i;
      }
      counts.longest[2 + side] = std::max(counts.longest[2 + side], end - start);
    };
    if (by_source)
      add_pairs(0, [&](Number i) { return src[by_source[i]]; });
    else
      add_pairs(0, [&](Number i) { return src[i]; });
    add_pairs(1, [&](Number i) { return dst[i]; });
    const Number own[3] = {end - first, counts.pairs[0] - before[0], counts.pairs[1] - before[1]};
    for (int which = 0; which < 3; ++which) counts.parts[own[1] > own[2]][which] += own[which];
    const auto find_mixed = [&](int side, const Index *end_point, const Index *node_type) {
      if (!node_type || counts.mixed[side] < graph.types) return;
      for (Number i = first + 1; i < end; ++i)
        if (node_type[end_point[i]] != node_type[end_point[first]]) {
          counts.mixed[side] = type ? type[first] : 0;
          return;
        }
    };
    find_mixed(0, src, (const Index *)graph.source_type);
    find_mixed(1, dst, (const Index *)graph.destination_type);
  }
  for (int side = 0; side < 2; ++side) starts[side][counts.pairs[side]] = (Index)graph.edges;
  counts.longest[0] = longest_group(src, graph.edges, graph.sources);
  counts.longest[1] = longest_group(dst, graph.edges, graph.destinations);
}

// Writes for each edge, in the order (type, destination), 1 over the number of edges with the same type and
// destination. `numbers`: edges, addresses of destinations and of types (0: one type), their bytes, address and bytes
// of the results.
inline void mean_weights(const Number *numbers) {
  const Number edges = numbers[0];
  const auto write = [&](auto *weight, const auto *dst, const auto *type) {
    for (Number first = 0, end = 0; first < edges; first = end) {
      do ++end;
      while (end < edges && dst[end] == dst[first] && (!type || type[end] == type[first]));
      std::fill(weight + first, weight + end, 1 / (std::remove_cvref_t<decltype(*weight)>)(end - first));
    }
  };
  with_indices(numbers[1], numbers[3], [&](const auto *dst) {
    const auto *type = (decltype(dst))numbers[2];
    if (numbers[5] == 4)
      write((float *)numbers[4], dst, type);
    else
      write((double *)numbers[4], dst, type);
  });
}

// Adds the in-degree of each node, or 1 / root of it if it is not 0. `numbers` as below.
inline void add_degrees(const Number *numbers, const Buffer<double> &degrees, bool roots) {
  const Number edges = numbers[0], nodes = numbers[1];
  with_indices(numbers[3], numbers[4], [&](const auto *dst) {
    for (Number i = 0; i < edges; ++i) ++degrees[dst[i]];
  });
  for (Number node = 0; roots && node < nodes; ++node)
    if (degrees[node] > 0) degrees[node] = 1 / __builtin_sqrt(degrees[node]);
}

// Writes these numbers. Returns 0, or -1 if there is no memory. `numbers` as below, with the address of the result in
// place of that of the weights, and whether roots are wanted in place of the address of sources.
inline Number degrees(const Number *numbers) {
  const auto found = Buffer<double>::zeros(numbers[1]);
  if (!found) return -1;
  add_degrees(numbers, found, numbers[2] != 0);
  if (numbers[6] == 4)
    std::copy_n(found.get(), numbers[1], (float *)numbers[5]);
  else
    std::copy_n(found.get(), numbers[1], (double *)numbers[5]);
  return 0;
}

// Writes for each edge 1 over the roots of the in-degrees of both ends, and 0 if one end has no incoming edges. Returns
// 0, or -1 if there is no memory. `numbers`: edges, nodes, addresses of sources and destinations, bytes of an index,
// address of the weights, bytes of a weight.
inline Number symmetric_weights(const Number *numbers) {
  const Number edges = numbers[0];
  const auto roots = Buffer<double>::zeros(numbers[1]);
  if (!roots) return -1;
  add_degrees(numbers, roots, true);
  with_indices(numbers[3], numbers[4], [&](const auto *dst) {
    const auto *src = (decltype(dst))numbers[2];
    const auto write = [&](auto *weight) {
      for (Number i = 0; i < edges; ++i) weight[i] = roots[src[i]] * roots[dst[i]];
    };
    if (numbers[6] == 4)
      write((float *)numbers[5]);
    else
      write((double *)numbers[5]);
  });
  return 0;
}

// Counts the edges of a graph. Returns 0, or -1 if there is no memory.
inline Number count_edges(const Number *numbers, Number *counts) {
  const auto &graph = *(const EdgesOfGraph *)numbers;
  auto &found = *(EdgeCounts *)counts;
  if (graph.bytes == 4)
    count_edges<std::int32_t>(graph, found);
  else
    count_edges<std::int64_t>(graph, found);
  return std::min<Number>({found.longest[0], found.longest[1], 0});
}

}  // namespace dacergnn
