// Compiled programs as torch calls them: found by their text, with tensors of torch's stable ABI.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "given.h"

namespace deploy {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;

// Sizes that rows of arrays follow from.
enum Space { kNS, kND, kE, kR, kT, kONE };

// A result of a program.
struct Result {
  Space rows;
  int rank;
  std::int64_t row[4];
};

// A program of this library, for graphs with these numbers of relations and of node types.
struct Program {
  std::string_view text;
  const char *title;
  Number types, node_types;
  bool typed, single_typed;
  ScalarType element;
  int arrays, results, slots;
  const Result *result;
  void (*run)(Context &context, const Edges &edges, const Array *arrays, void *const *results);
};

// Runs a function whose failures become exceptions, which torch passes on to its callers.
template <class Function>
auto told(Function function) {
  try {
    return function();
  } catch (const Failure &) {
    throw std::runtime_error(message().text);
  }
}

inline Tensor without_gaps(const Tensor &tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

// Returns the numbers of an index of the types that indices may have.
inline Ends ends_of(const Tensor &edges, const char *label) {
  const ScalarType type = edges.scalar_type();
  if (edges.dim() != 2 || edges.size(0) != 2)
    fail(kBadInput, "%s has %lld axes; edges are a tensor [2, E].", label, (long long)edges.dim());
  if (type != ScalarType::Int && type != ScalarType::Long) fail(kBadInput, "%s must hold int32 or int64.", label);
  const Number count = edges.size(1), bytes = type == ScalarType::Int ? 4 : 8;
  const auto *const ids = (const char *)edges.const_data_ptr();
  return {ids, ids + count * bytes, count, bytes};
}

inline Index *indices_of(const Tensor &tensor, const char *label) {
  if (tensor.scalar_type() != ScalarType::Int) fail(kBadInput, "%s must hold int32.", label);
  return (Index *)tensor.const_data_ptr();
}

// Returns the graph of edges [4, E] without gaps; `sizes` are those of `dacergnn.graph.traced`.
inline Edges graph_of(const Tensor &edges, const std::vector<std::int64_t> &sizes, const char *label) {
  if (edges.dim() != 2 || edges.size(0) != 4) fail(kBadInput, "%s: the edges must be a tensor [4, E].", label);
  if (sizes.size() != 5) fail(kBadInput, "%s: a graph has 5 sizes, not %zu.", label, sizes.size());
  const Edges graph =
      rows_of_edges(indices_of(edges, label), edges.size(1), {sizes[0], sizes[1], sizes[2], sizes[3]});
  check_given(graph, label);
  return graph;
}

inline std::vector<Tensor> run(const Program &program, Contexts &contexts, const Tensor &given_edges,
                               const MaybeTensor &src_type, const MaybeTensor &dst_type,
                               const std::vector<std::int64_t> &sizes, const std::vector<Tensor> &given) {
  return told([&] {
    const Tensor edges = without_gaps(given_edges);
    Edges graph = graph_of(edges, sizes, program.title);
    std::vector<Tensor> kept;  // as long as the call runs
    if (program.typed) {
      kept = {without_gaps(*src_type), without_gaps(*dst_type)};
      Index *const sources = indices_of(kept[0], program.title), *const destinations = indices_of(kept[1], program.title);
      give_node_types(graph, sources, kept[0].numel(), destinations, kept[1].numel(), program.title);
      if (program.single_typed) check_single_typed(graph, program.title);
    }
    if ((int)given.size() != program.arrays)
      fail(kBadInput, "%s takes %d arrays, not %zu.", program.title, program.arrays, given.size());
    std::vector<Array> arrays;
    for (const Tensor &array : given) {
      if (array.scalar_type() != program.element)
        fail(kBadInput, "%s: array %zu has other elements than the program.", program.title, arrays.size());
      kept.push_back(without_gaps(array));
      arrays.push_back({(void *)kept.back().const_data_ptr(), array.numel()});
    }
    const Number rows[] = {sizes[0], sizes[1], graph.count, sizes[2], sizes[3], 1};
    std::vector<Tensor> made;
    std::vector<void *> results;
    for (const Result *r = program.result; r != program.result + program.results; ++r) {
      std::vector<std::int64_t> shape{rows[r->rows]};
      shape.insert(shape.end(), r->row, r->row + r->rank);
      made.push_back(torch::stable::new_empty(edges, shape, program.element));
      results.push_back(made.back().mutable_data_ptr());
    }
    const Lease lease(contexts);
    program.run(*lease, graph, arrays.data(), results.data());
    return made;
  });
}

// Returns the name of the operator of one program, by which other libraries of this process find it: a hash (FNV-1a).
inline std::string name_of(std::string_view text, Number types, Number node_types, bool typed) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (const unsigned char letter : text) add(letter);
  for (const Number number : {types, node_types, Number(typed)}) add((std::uint64_t)number);
  char name[40];
  std::snprintf(name, sizeof name, "program_%016llx", (unsigned long long)hash);
  return name;
}

// The programs of one library.
class Programs {
 public:
  Programs() = default;
  template <std::size_t Count>
  explicit Programs(const Program (&programs)[Count]) : first_(programs), count_(Count) {
    for (const Program &program : programs) contexts_.push_back(std::make_unique<Contexts>(program.slots));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Program *p = first_; p != first_ + count_; ++p)
      names.push_back(name_of(p->text, p->types, p->node_types, p->typed));
    return names;
  }

  // Runs a program; returns false if it is none of this library's.
  bool run(const Tensor &edges, const MaybeTensor &src_type, const MaybeTensor &dst_type,
           const std::vector<std::int64_t> &sizes, const std::vector<Tensor> &arrays, std::string_view text,
           std::vector<Tensor> &results) const {
    if (sizes.size() != 5 || src_type.has_value() != dst_type.has_value())
      throw std::runtime_error("dacergnn::program: a graph has 5 sizes, and types of no nodes or of both ends.");
    for (std::size_t i = 0; i < count_; ++i) {
      const Program &p = first_[i];
      const bool same = p.types == sizes[2] && p.node_types == sizes[3] && p.typed == src_type.has_value();
      if (!same || p.text != text) continue;
      results = deploy::run(p, *contexts_[i], edges, src_type, dst_type, sizes, arrays);
      return true;
    }
    return false;
  }

 private:
  const Program *first_ = nullptr;
  std::size_t count_ = 0;
  std::vector<std::unique_ptr<Contexts>> contexts_;
};

}  // namespace deploy
