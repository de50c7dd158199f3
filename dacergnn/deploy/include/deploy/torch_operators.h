// The operators of exported programs, for processes without Python, on torch's stable ABI.
//
// The file that includes this header defines `deploy::programs()`, the programs of its library.
#pragma once

#include "torch_programs.h"

namespace deploy {

const Programs &programs();

namespace operators {

using Tensors = std::vector<Tensor>;
using Numbers = std::vector<std::int64_t>;

// Memory of operators that sort edges: for the edges, and for numbers.
inline Contexts &sorting() {
  static Contexts &contexts = *new Contexts(2);  // never freed, so that calls may still run when a process ends
  return contexts;
}

inline Tensor tensor_of(const Edges &edges, const Tensor &like) {
  const Number count = edges.count;
  Tensor made = torch::stable::new_empty(like, {4, count}, ScalarType::Int);
  auto *const rows = (Index *)made.mutable_data_ptr();
  std::copy_n(edges.src, count, rows);
  std::copy_n(edges.dst, count, rows + count);
  std::copy_n(edges.type, count, rows + 2 * count);
  std::copy_n(edges.position, count, rows + 3 * count);
  return made;
}

inline void check_node_counts(const char *label, Number sources, Number destinations, Number types) {
  if (sources < 0 || destinations < 0 || types < 1)
    fail(kBadInput, "%s: there are %lld sources, %lld destinations and %lld relations.", label, (long long)sources,
         (long long)destinations, (long long)types);
}

inline Tensor edges(const Tensor &edge_index, MaybeTensor edge_type, std::int64_t num_src,
                    std::int64_t num_dst, std::int64_t num_types, bool bipartite) {
  return told([&] {
    const Tensor index = without_gaps(edge_index);
    const Ends ends = ends_of(index, "edge_index");
    check_node_counts("edge_index", num_src, num_dst, num_types);
    if (!bipartite && num_dst > num_src)
      fail(kBadInput, "edge_index: there are %lld destinations, which are the first of %lld sources.",
           (long long)num_dst, (long long)num_src);
    const void *types = nullptr;
    Number bytes = 0;
    if (edge_type.has_value()) {
      edge_type = without_gaps(*edge_type);
      const ScalarType kind = edge_type->scalar_type();
      if (kind != ScalarType::Int && kind != ScalarType::Long) fail(kBadInput, "edge_type must hold int32 or int64.");
      if (edge_type->numel() != ends.count)
        fail(kBadInput, "edge_type holds %lld types of %lld edges.", (long long)edge_type->numel(), (long long)ends.count);
      types = edge_type->const_data_ptr();
      bytes = kind == ScalarType::Int ? 4 : 8;
    }
    const Lease lease(sorting());
    const Sizes sizes{num_src, num_dst, num_types, 1};
    return tensor_of(sorted_edges((*lease).slots[0], "edge_index", ends, types, bytes, sizes), edge_index);
  });
}

inline Tensor typed_edges(const Tensors &parts, const Numbers &numbers, const Numbers &ends, const Numbers &counts,
                          std::int64_t num_dst, std::int64_t num_types, const std::string &labels) {
  return told([&] {
    if (parts.empty() || numbers.size() != parts.size() || ends.size() != 2 * parts.size())
      fail(kBadInput, "edges: %zu parts have %zu numbers and %zu ends.", parts.size(), numbers.size(), ends.size());
    Number sources = 0;
    for (const Number count : counts) {
      if (count < 0 || count > kMostRows) fail(kBadInput, "edges: there are %lld nodes of a type.", (long long)count);
      sources += count;
    }
    check_node_counts("edges", sources, num_dst, num_types);
    std::vector<std::string> names;
    for (std::size_t begin = 0; begin <= labels.size(); begin = std::min(labels.find('\n', begin), labels.size()) + 1)
      names.push_back(labels.substr(begin, labels.find('\n', begin) - begin));
    names.resize(parts.size(), "edges");
    Tensors kept;
    std::vector<Relation> relations;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const char *const label = names[i].c_str();
      kept.push_back(without_gaps(parts[i]));
      const Ends own = ends_of(kept.back(), label);
      const auto is_type = [&](Number type) { return type >= 0 && type < (Number)counts.size(); };
      if (numbers[i] < 0 || numbers[i] >= num_types || !is_type(ends[2 * i]) || !is_type(ends[2 * i + 1]))
        fail(kBadInput, "%s: relation %lld joins types %lld and %lld, and there are %lld relations and %zu types.", label,
             (long long)numbers[i], (long long)ends[2 * i], (long long)ends[2 * i + 1], (long long)num_types,
             counts.size());
      relations.push_back({own, numbers[i], ends[2 * i], ends[2 * i + 1], label});
    }
    const Lease lease(sorting());
    Context &context = *lease;
    Number *const room = context.slots[1].of<Number>((Number)room_of_joined(parts.size(), counts.size()));
    const Edges made = joined_edges(context.slots[0], relations.data(), relations.size(), counts.data(), counts.size(),
                                    num_dst, num_types, room);
    for (Number i = 0; i < made.count; ++i)
      if (made.dst[i] >= num_dst)
        fail(kBadInput, "edges: node %lld is no destination; there are %lld.", (long long)made.dst[i], (long long)num_dst);
    return tensor_of(made, parts[0]);
  });
}

inline Tensor node_types(const Numbers &counts, const Tensor &like) {
  return told([&] {
    Number total = 0;
    for (const Number count : counts) {
      if (count < 0 || count > kMostRows) fail(kBadInput, "nodes: there are %lld nodes of a type.", (long long)count);
      total += count;
    }
    Tensor made = torch::stable::new_empty(like, {total}, ScalarType::Int);
    auto *type = (Index *)made.mutable_data_ptr();
    for (std::size_t i = 0; i < counts.size(); ++i) type = std::fill_n(type, counts[i], static_cast<Index>(i));
    return made;
  });
}

inline Tensor with_loops(const Tensor &edge_index, std::int64_t count, std::int64_t num_src, std::int64_t num_dst) {
  return told([&] {
    const Tensor index = without_gaps(edge_index);
    const Ends ends = ends_of(index, "edge_index");
    check_node_counts("edge_index", num_src, num_dst, 1);
    if (count < 0 || count > std::min(num_src, num_dst))
      fail(kBadInput, "edge_index: %lld nodes cannot get self loops; there are %lld sources and %lld destinations.",
           (long long)count, (long long)num_src, (long long)num_dst);
    const Lease lease(sorting());
    const Loops loops = deploy::with_loops((*lease).slots[0], "edge_index", ends, count, num_src, num_dst);
    Tensor made = torch::stable::new_empty(edge_index, {2, loops.count}, index.scalar_type());
    std::memcpy(made.mutable_data_ptr(), loops.edges, static_cast<std::size_t>(2 * loops.count * ends.bytes));
    return made;
  });
}

inline Tensor edge_weights(const Tensor &given, const Numbers &sizes, const std::string &kind, ScalarType element) {
  return told([&] {
    const Tensor edges = without_gaps(given);
    const Edges graph = graph_of(edges, sizes, "edge_weights");
    if (element != ScalarType::Float && element != ScalarType::Double)
      fail(kBadInput, "edge_weights: weights are float32 or float64.");
    Tensor made = torch::stable::new_empty(edges, {graph.count}, element);
    void *const to = made.mutable_data_ptr();
    const auto write = [&](auto function) {
      if (element == ScalarType::Float)
        function((float *)to);
      else
        function((double *)to);
    };
    if (kind == "pair_mean")
      write([&](auto *weights) { pair_mean_weights(weights, graph); });
    else if (kind != "symmetric")
      fail(kBadInput, "edge_weights: there are no weights %s.", kind.c_str());
    else if (sizes[1] > sizes[0])
      fail(kBadInput, "edge_weights: %lld destinations are not the first of %lld sources.", (long long)sizes[1],
           (long long)sizes[0]);
    else
      write([&](auto *weights) { symmetric_weights(weights, graph); });
    return made;
  });
}

// Runs a program of this library.
inline Tensors own_program(const Tensor &edges, const MaybeTensor &src_type, const MaybeTensor &dst_type,
                           const Numbers &sizes, const Tensors &arrays, const std::string &text) {
  Tensors results;
  if (programs().run(edges, src_type, dst_type, sizes, arrays, text, results)) return results;
  throw std::runtime_error(
      "dacergnn::program: no library of operators that is loaded holds the program of this model for such a graph. Load "
      "the library that was written with the model.");
}

// Runs a program of this library, or of another one, which torch finds by the name of the program's own operator.
inline Tensors program(const Tensor &edges, const MaybeTensor &src_type, const MaybeTensor &dst_type,
                       const Numbers &sizes, const Tensors &arrays, const std::string &text) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  Tensors results;
  if (programs().run(edges, src_type, dst_type, sizes, arrays, text, results)) return results;
  const std::string name = "dacergnn::" + name_of(text, sizes[2], sizes[3], src_type.has_value());
  StableIValue stack[] = {from(edges), from(src_type), from(dst_type), from(sizes), from(arrays), from(text)};
  if (torch_call_dispatcher(name.c_str(), "", stack, TORCH_ABI_VERSION) == TORCH_SUCCESS) return to<Tensors>(stack[0]);
  const std::string problem = torch_exception_get_what_without_backtrace();
  if (problem.find("Could not find schema") == std::string::npos) throw std::runtime_error(problem);
  to<Tensor>(stack[0]), to<MaybeTensor>(stack[1]), to<MaybeTensor>(stack[2]), to<Numbers>(stack[3]);
  to<Tensors>(stack[4]), to<std::string>(stack[5]);
  return own_program(edges, src_type, dst_type, sizes, arrays, text);
}

// Adds the operators that the process has not got yet: Python's, or those of another library, stay as they are.
inline bool add_all() {
  constexpr const char *kProgram = "(Tensor edges, Tensor? src_type, Tensor? dst_type, SymInt[] sizes, Tensor[] arrays, str program) "
                                   "-> Tensor[]";
  TorchLibraryHandle schemas = nullptr, kernels = nullptr;  // never freed: other libraries may use the operators
  if (aoti_torch_library_init_fragment("dacergnn", __FILE__, __LINE__, &schemas) != TORCH_SUCCESS ||
      aoti_torch_library_init_impl("dacergnn", "CPU", __FILE__, __LINE__, &kernels) != TORCH_SUCCESS)
    return false;
  const auto add = [&](const std::string &name, const char *schema, void (*function)(StableIValue *, uint64_t, uint64_t)) {
    if (aoti_torch_library_def(schemas, (name + schema).c_str()) == TORCH_SUCCESS)
      torch_library_impl(kernels, name.c_str(), function, TORCH_ABI_VERSION);
  };
  add("edges", "(Tensor edge_index, Tensor? edge_type, SymInt num_src, SymInt num_dst, SymInt num_types, bool bipartite) "
      "-> Tensor", TORCH_BOX(&edges));
  add("typed_edges", "(Tensor[] parts, SymInt[] numbers, SymInt[] ends, SymInt[] counts, SymInt num_dst, SymInt num_types, "
      "str labels) -> Tensor", TORCH_BOX(&typed_edges));
  add("node_types", "(SymInt[] counts, Tensor like) -> Tensor", TORCH_BOX(&node_types));
  add("with_loops", "(Tensor edge_index, SymInt count, SymInt num_src, SymInt num_dst) -> Tensor", TORCH_BOX(&with_loops));
  add("edge_weights", "(Tensor edges, SymInt[] sizes, str kind, ScalarType dtype) -> Tensor", TORCH_BOX(&edge_weights));
  add("program", kProgram, TORCH_BOX(&program));
  for (const std::string &name : programs().names()) add(name, kProgram, TORCH_BOX(&own_program));
  return true;
}

static const bool added = add_all();

}  // namespace operators
}  // namespace deploy
