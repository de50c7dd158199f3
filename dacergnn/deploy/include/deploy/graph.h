// Graphs of one call: edges are checked, sorted, and encoded by the functions that also encode them for Python.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include "context.h"
#include "include/dacergnn/edge_counts.h"
#include "include/dacergnn/encode.h"

namespace deploy {

using dacergnn::Number;
using Index = std::int32_t;  // of sorted edges and encodings
constexpr Number kMostRows = std::numeric_limits<Index>::max();

// Edges of one relation as the user passes them: ids of sources and of destinations, of `bytes` bytes each.
struct Ends {
  const void *src, *dst;
  Number count, bytes;
};

// Edges of one relation among nodes of several types: its number, and the types of its ends.
struct Relation {
  Ends ends;
  Number type, source_type, destination_type;
  const char *label;
};

// Sizes of a graph.
struct Sizes {
  Number sources, destinations, types, node_types;
};

// The sorted edges of a call. `position` holds the place of each edge in the user's list.
struct Edges {
  Number count = 0;
  Sizes sizes{};
  Index *dst = nullptr, *src = nullptr, *type = nullptr, *position = nullptr, *node_type = nullptr;

  // Fills the positions of edges that were in order already.
  void in_order() {
    for (Number i = 0; i < count; ++i) position[i] = static_cast<Index>(i);
  }
};

inline Number id_at(const void *ids, Number bytes, Number place) {
  return bytes == 4 ? static_cast<const std::int32_t *>(ids)[place] : static_cast<const std::int64_t *>(ids)[place];
}

// Raises the error that names the first id out of range, if there is one.
inline void check_ids(const char *label, const char *end, const void *ids, const Ends &ends, Number nodes) {
  if (dacergnn::all_below((Number)ids, ends.bytes, ends.count, nodes)) return;
  for (Number i = 0; i < ends.count; ++i) {
    const Number id = id_at(ids, ends.bytes, i);
    if (id < 0 || id >= nodes)
      fail(kBadInput, "%s: %s %lld of edge %lld is out of range; there are %lld such nodes.", label, end, (long long)id,
           (long long)i, (long long)nodes);
  }
}

inline void check_ends(const char *label, const Ends &ends, Number sources, Number destinations) {
  check_ids(label, "source", ends.src, ends, sources);
  check_ids(label, "destination", ends.dst, ends, destinations);
}

inline void check_sizes(const char *label, Number edges, const Sizes &sizes) {
  const Number widest = std::max(sizes.sources, sizes.destinations);
  if (edges > kMostRows || widest > kMostRows / std::max<Number>(sizes.types, 1))
    fail(kBadInput, "%s: %lld edges and %lld nodes of %lld relations need indices of 64 bits; pass a smaller graph.", label,
         (long long)edges, (long long)widest, (long long)sizes.types);
}

inline void place(Edges &edges, Buffer &buffer, Number count, const Sizes &sizes) {
  edges.count = count;
  edges.sizes = sizes;
  Index *const memory = buffer.of<Index>(4 * count + sizes.sources + 1);
  edges.dst = memory;
  edges.src = memory + count;
  edges.type = memory + 2 * count;
  edges.position = memory + 3 * count;
  edges.node_type = memory + 4 * count;
}

// Sorts edges of one list. `types` are of `type_bytes` bytes each; null if there is one type.
inline Edges sorted_edges(Buffer &buffer, const char *label, const Ends &ends, const void *types, Number type_bytes,
                          const Sizes &sizes) {
  check_sizes(label, ends.count, sizes);
  Edges edges;
  place(edges, buffer, ends.count, sizes);
  const Number numbers[] = {
      ends.count, (Number)edges.position, (Number)edges.dst, sizeof(Index),
      (Number)ends.dst, ends.bytes, sizes.destinations,
      (Number)ends.src, ends.bytes, sizes.sources,
      (Number)types, type_bytes, sizes.types};
  const Number found = dacergnn::sorted_edges(numbers);
  if (found == 2) {
    check_ends(label, ends, sizes.sources, sizes.destinations);
    for (Number i = 0; i < ends.count; ++i) {
      const Number type = id_at(types, type_bytes, i);
      if (type < 0 || type >= sizes.types)
        fail(kBadInput, "%s: type %lld of edge %lld is out of range; there are %lld relations.", label, (long long)type,
             (long long)i, (long long)sizes.types);
    }
  }
  if (found < 0) fail(kNoMemory, "%s: there is no memory to sort %lld edges.", label, (long long)ends.count);
  if (found == 0) edges.in_order();
  if (types == nullptr || sizes.types < 2) std::fill_n(edges.type, edges.count, Index(0));
  return edges;
}

// Checks that each relation joins nodes of one type with nodes of one type.
inline void check_single_typed(const Edges &edges, const char *label) {
  const Index *const type = edges.node_type;
  for (Number i = 1; i < edges.count; ++i)
    if (edges.type[i] == edges.type[i - 1] &&
        (type[edges.src[i]] != type[edges.src[i - 1]] || type[edges.dst[i]] != type[edges.dst[i - 1]]))
      fail(kBadInput, "%s: relation %lld joins nodes of several types; give every pair of types its own.", label,
           (long long)edges.type[i]);
}

// Takes over the types of nodes, and checks that each relation joins nodes of one type with nodes of one type.
template <class T>
void take_node_types(const Edges &edges, const T *types, Number count, const char *label) {
  if (count != edges.sizes.sources)
    fail(kBadInput, "%s: there are %lld types of %lld nodes.", label, (long long)count, (long long)edges.sizes.sources);
  for (Number i = 0; i < count; ++i) {
    if (types[i] < 0 || types[i] >= edges.sizes.node_types)
      fail(kBadInput, "%s: type %lld of node %lld is out of range; there are %lld.", label, (long long)types[i],
           (long long)i, (long long)edges.sizes.node_types);
    edges.node_type[i] = static_cast<Index>(types[i]);
  }
  check_single_typed(edges, label);
}

// Returns how many numbers `joined_edges` needs room for.
constexpr std::size_t room_of_joined(std::size_t relations, std::size_t node_types) {
  return 6 + 2 * (node_types + 1) + relations * sizeof(dacergnn::Part) / sizeof(Number);
}

// Sorts edges of several relations; nodes are numbered type after type.
inline Edges joined_edges(Buffer &buffer, const Relation *relations, std::size_t count, const Number *nodes,
                          std::size_t node_types, Number destinations, Number types, Number *room) {
  Number *const starts = room, *const numbers = room + node_types + 1;
  *starts = 0;
  for (std::size_t i = 0; i < node_types; ++i) starts[i + 1] = starts[i] + nodes[i];
  const Sizes sizes{starts[node_types], destinations, types, (Number)node_types};
  Number total = 0;
  for (const Relation *r = relations; r != relations + count; ++r) total += r->ends.count;
  check_sizes("edges", total, sizes);
  Edges edges;
  place(edges, buffer, total, sizes);
  const Number head[] = {total, (Number)edges.position, (Number)edges.dst, (Number)edges.node_type, sizeof(Index),
                         (Number)node_types};
  Number *const part_count = std::copy_n(nodes, node_types, std::copy_n(head, 6, numbers));
  *part_count = (Number)count;
  auto *const first = (dacergnn::Part *)(part_count + 1), *part = first;
  Number begin = 0;
  for (const Relation *r = relations; r != relations + count; ++r) {
    const Ends &ends = r->ends;
    *part++ = {r->type, begin, ends.count, ends.bytes,
               {{(Number)ends.dst, nodes[r->destination_type], starts[r->destination_type]},
                {(Number)ends.src, nodes[r->source_type], starts[r->source_type]}}};
    begin += ends.count;
  }
  std::stable_sort(first, first + count, [](const auto &a, const auto &b) { return a.type < b.type; });
  const Number found = dacergnn::joined_parts(numbers);
  if (found == 2)
    for (const Relation *r = relations; r != relations + count; ++r)
      check_ends(r->label, r->ends, nodes[r->source_type], nodes[r->destination_type]);
  if (found < 0) fail(kNoMemory, "There is no memory to sort %lld edges.", (long long)total);
  return edges;
}

template <std::size_t Count, std::size_t Types>
Edges typed_edges(Buffer &buffer, const std::array<Relation, Count> &relations, const std::array<Number, Types> &nodes,
                  Number destinations, Number types) {
  std::array<Number, room_of_joined(Count, Types)> room;
  return joined_edges(buffer, relations.data(), Count, nodes.data(), Types, destinations, types, room.data());
}

// Numbers of pairs, and where the edges of each pair start.
struct Pairs {
  Number sources = 0, destinations = 0;
  Index *source_starts = nullptr, *destination_starts = nullptr;
  Index *by_source = nullptr;  // edges by type and source; null if they are in that order
};

// Counts the pairs of a graph.
inline Pairs count_pairs(Buffer &buffer, const Edges &edges) {
  Pairs pairs;
  const Number count = edges.count;
  Index *const memory = buffer.of<Index>(3 * count + 2);
  pairs.source_starts = memory;
  pairs.destination_starts = memory + count + 1;
  Index *const order = memory + 2 * count + 2;
  const bool typed = edges.sizes.types > 1;
  Number keys[10] = {count, (Number)order, sizeof(Index), 1 + typed}, *key = keys + 4;
  if (typed) {
    const Number own[] = {(Number)edges.type, sizeof(Index), edges.sizes.types};
    key = std::copy_n(own, 3, key);
  }
  const Number own[] = {(Number)edges.src, sizeof(Index), edges.sizes.sources};
  std::copy_n(own, 3, key);
  const Number found = dacergnn::stable_order(keys);
  if (found < 0) fail(kNoMemory, "There is no memory to sort %lld edges.", (long long)count);
  if (found) pairs.by_source = order;
  const Number numbers[] = {
      count, edges.sizes.types, edges.sizes.sources, edges.sizes.destinations, sizeof(Index), (Number)edges.src,
      (Number)edges.dst, typed ? (Number)edges.type : 0, (Number)pairs.by_source, 0, 0,
      (Number)pairs.source_starts, (Number)pairs.destination_starts};
  dacergnn::EdgeCounts counts;
  if (dacergnn::count_edges(numbers, (Number *)&counts) < 0)
    fail(kNoMemory, "There is no memory to count %lld edges.", (long long)count);
  pairs.sources = counts.pairs[0];
  pairs.destinations = counts.pairs[1];
  return pairs;
}

// The edges of some relations, and their places among all edges.
struct Part {
  Edges edges;
  Index *rows;
};

// Returns the edges of the relations that have at most as many source pairs as destination pairs (`fewer_sources`), or
// of the others.
inline Part part_of(Buffer &buffer, const Edges &all, const Pairs &pairs, bool fewer_sources) {
  Part part;
  place(part.edges, buffer, all.count, all.sizes);
  part.edges.node_type = all.node_type;
  part.rows = part.edges.position;
  const auto starts_within = [](const Index *starts, Number count, Number first, Number end) {
    return std::lower_bound(starts, starts + count, end) - std::lower_bound(starts, starts + count, first);
  };
  Number made = 0;
  for (Number first = 0, end = 0; first < all.count; first = end) {
    end = std::upper_bound(all.type + first, all.type + all.count, all.type[first]) - all.type;
    const bool fewer = starts_within(pairs.source_starts, pairs.sources, first, end) <=
                       starts_within(pairs.destination_starts, pairs.destinations, first, end);
    if (fewer != fewer_sources) continue;
    std::copy(all.src + first, all.src + end, part.edges.src + made);
    std::copy(all.dst + first, all.dst + end, part.edges.dst + made);
    std::copy(all.type + first, all.type + end, part.edges.type + made);
    for (Number i = first; i < end; ++i) part.rows[made++] = static_cast<Index>(i);
  }
  part.edges.count = made;
  return part;
}

// Returns the type of the nodes at one end of each relation; 0 for a relation without edges.
inline Index *joined_types(Buffer &buffer, const Edges &edges, const Index *nodes) {
  Index *const types = std::fill_n(buffer.of<Index>(edges.sizes.types), edges.sizes.types, Index(0)) - edges.sizes.types;
  for (Number first = 0; first < edges.count;) {
    types[edges.type[first]] = edges.node_type[nodes[first]];
    first = std::upper_bound(edges.type + first, edges.type + edges.count, edges.type[first]) - edges.type;
  }
  return types;
}

// Returns for each edge its type times the number of sources, plus its source.
inline Index *typed_sources(Buffer &buffer, const Edges &edges) {
  Index *const result = buffer.of<Index>(edges.count);
  for (Number i = 0; i < edges.count; ++i)
    result[i] = static_cast<Index>(edges.type[i] * edges.sizes.sources + edges.src[i]);
  return result;
}

// Writes the weights [E] 1 / number of edges with the same destination and type.
template <class T>
void pair_mean_weights(T *weights, const Edges &edges) {
  const Number numbers[] = {edges.count, (Number)edges.dst, edges.sizes.types > 1 ? (Number)edges.type : 0,
                            sizeof(Index), (Number)weights, sizeof(T)};
  dacergnn::mean_weights(numbers);
}

// Writes the weights [E] 1 / root of the product of both ends' in-degrees.
template <class T>
void symmetric_weights(T *weights, const Edges &edges) {
  const Number numbers[] = {edges.count, edges.sizes.sources, (Number)edges.src, (Number)edges.dst,
                            sizeof(Index), (Number)weights, sizeof(T)};
  if (dacergnn::symmetric_weights(numbers) < 0) fail(kNoMemory, "There is no memory for weights of edges.");
}

// Copies edges [2, E] without self loops, then adds a loop at each of `count` nodes. Returns the number of edges and
// the copy, whose destinations follow right behind the sources.
struct Loops {
  Number count;
  void *edges;
};

inline Loops with_loops(Buffer &buffer, const char *label, const Ends &ends, Number count, Number sources,
                        Number destinations) {
  if (ends.count > kMostRows || count > kMostRows)
    fail(kBadInput, "%s: %lld edges and %lld nodes need indices of 64 bits; pass a smaller graph.", label,
         (long long)ends.count, (long long)count);
  check_ends(label, ends, sources, destinations);
  const Number room = ends.count + count;
  char *const memory = (char *)buffer.of<std::int64_t>(2 * room), *const behind = memory + room * ends.bytes;
  const Number numbers[] = {ends.count, (Number)ends.src, (Number)ends.dst, ends.bytes, sources, destinations,
                            count, (Number)memory, (Number)behind};
  const Number made = dacergnn::with_loops(numbers);
  std::memmove(memory + made * ends.bytes, behind, static_cast<std::size_t>(made * ends.bytes));
  return {made, memory};
}

// Raises an error if rows have no index.
inline void check_rows(Number count) {
  if (count > kMostRows) fail(kBadInput, "%lld rows need indices of 64 bits; pass a smaller batch.", (long long)count);
}

// Returns the numbers 0, 1, 2, ...
inline Index *counted(Buffer &buffer, Number count) {
  check_rows(count);
  Index *const numbers = buffer.of<Index>(count);
  for (Number i = 0; i < count; ++i) numbers[i] = static_cast<Index>(i);
  return numbers;
}

// Returns zeros: the type of rows that all have one type.
inline Index *zeros(Buffer &buffer, Number count) {
  check_rows(count);
  return std::fill_n(buffer.of<Index>(count), count, Index(0)) - count;
}

// Returns the starts of the only group of rows.
inline Index *whole(Buffer &buffer, Number count) {
  check_rows(count);
  Index *const starts = buffer.of<Index>(2);
  starts[0] = 0;
  starts[1] = static_cast<Index>(count);
  return starts;
}

// Returns the sum of counts.
template <std::size_t Count>
Number total(const Number (&counts)[Count]) {
  Number sum = 0;
  for (const Number count : counts) sum += count;
  return sum;
}

// Writes the addresses of vectors that follow each other in memory.
template <std::size_t Count>
void place(Number *addresses, Index *memory, const Number (&counts)[Count]) {
  for (const Number count : counts) {
    *addresses++ = (Number)memory;
    memory += count;
  }
}

// Returns the entries of `values` that `chosen` names.
inline Index *taken(Buffer &buffer, const Index *values, const Index *chosen, Number count) {
  Index *const result = buffer.of<Index>(count);
  for (Number i = 0; i < count; ++i) result[i] = values[chosen[i]];
  return result;
}

}  // namespace deploy
