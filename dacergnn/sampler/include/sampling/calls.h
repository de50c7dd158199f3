// Functions for Python. A sample belongs to C++; Python reads its sizes first, and then has its arrays copied.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>

#include "hgt.h"

namespace dacergnn::sampling {

// Writes the count of nodes of each type and of edges of each relation. Then come the ends of nodes of each type, after
// the seeds and each hop, and the ends of edges of each relation, after each hop.
inline void write_sizes(const Sample &sample, Number *sizes) {
  for (const Nodes &nodes : sample.types) *sizes++ = (Number)nodes.keys.size();
  for (const Edges &edges : sample.relations) *sizes++ = (Number)edges.row.size();
  for (const Nodes &nodes : sample.types) sizes = std::ranges::copy(nodes.ends, sizes).out;
  for (const Edges &edges : sample.relations) sizes = std::ranges::copy(edges.ends, sizes).out;
}

// Samples by a function of graph and request. Returns null where there is too little memory.
template <class Function>
Sample *sampled(const Number *graph, const Number *request, Number *sizes, Function function) {
  try {
    const Graph read(graph);
    auto sample = std::make_unique<Sample>(function(read, Request(request, read.nodes.size())));
    write_sizes(*sample, sizes);
    return sample.release();
  } catch (const std::bad_alloc &) {
    return nullptr;
  } catch (const std::length_error &) {  // The sizes exceed the range of addresses.
    return nullptr;
  }
}

// Copies nodes, their trees if these have an address, and rows, columns and numbers of edges. Each array holds all
// types or relations.
inline void copy_sample(const Sample &sample, const Number *addresses) {
  auto *node = (Number *)addresses[0], *tree = (Number *)addresses[1], *row = (Number *)addresses[2],
       *col = (Number *)addresses[3], *edge = (Number *)addresses[4];
  for (std::size_t type = 0; type < sample.types.size(); ++type)
    for (const Number key : sample.types[type].keys) {
      *node++ = tree ? key % sample.counts[type] : key;
      if (tree) *tree++ = key / sample.counts[type];
    }
  for (const Edges &edges : sample.relations) {
    row = std::ranges::copy(edges.row, row).out;
    col = std::ranges::copy(edges.col, col).out;
    edge = std::ranges::copy(edges.edge, edge).out;
  }
}

}  // namespace dacergnn::sampling
