// The edges into one node, with the versions in which they exist.
#pragma once

#include <algorithm>
#include <memory>

#include "reclaim.h"

namespace graph_store {

// Edges are appended while others read. Four arrays follow in memory: the source of each edge, the version that adds
// it (in ascending order), the version that removes it (`kNever` until then), and how many edges of each block are
// removed, so that readers of long lists can pass over most blocks.
struct EdgeList : Retired {
  static constexpr Number kBlock = 64;

  const Number capacity;
  std::atomic<Number> length{0};
  std::atomic<Number> removals{0};  // How many edges some version removes.
  std::atomic<Version> newest{0};   // The version of the last edge.
  Version changed = 0;              // The last write that changed it, if it was not undone.
  Version queued = 0;               // The write that asked for a shorter copy, 0 if none did.

  static EdgeList *make(Number capacity) {
    static_assert(sizeof(EdgeList) % alignof(Version) == 0 && sizeof(std::atomic<Version>) == sizeof(Version));
    const Number blocks = (capacity + kBlock - 1) / kBlock;
    auto *list = new (allocate(sizeof(EdgeList) + (3 * capacity + blocks) * sizeof(Number))) EdgeList(capacity);
    std::uninitialized_value_construct_n(list->gone(), blocks);
    return list;
  }

  Number *sources() { return reinterpret_cast<Number *>(this + 1); }
  Version *added() { return reinterpret_cast<Version *>(sources() + capacity); }
  std::atomic<Version> *removed() { return reinterpret_cast<std::atomic<Version> *>(added() + capacity); }
  std::atomic<Number> *gone() { return reinterpret_cast<std::atomic<Number> *>(removed() + capacity); }
  const Number *sources() const { return const_cast<EdgeList *>(this)->sources(); }
  const Version *added() const { return const_cast<EdgeList *>(this)->added(); }
  const std::atomic<Version> *removed() const { return const_cast<EdgeList *>(this)->removed(); }

  // Returns how many edges, from the first on, were added up to a version.
  Number known(Version version) const noexcept {
    const Number count = length.load(std::memory_order_acquire);
    if (newest.load(std::memory_order_relaxed) <= version) return count;
    return std::upper_bound(added(), added() + count, version) - added();
  }

  // Whether no version up to the one that is read removes an edge.
  bool whole() const noexcept { return removals.load(std::memory_order_relaxed) == 0; }

  Version removed_in(Number edge) const noexcept { return removed()[edge].load(std::memory_order_relaxed); }

  // Returns how many edges of a block from an edge on, and before another one, a version has.
  Number present(Number first, Number last, Version version) const noexcept {
    if (whole_block(first)) return last - first;
    Number count = 0;
    for (Number edge = first; edge < last; ++edge) count += removed_in(edge) > version;
    return count;
  }

  // Returns the edge that comes after so many others that a version has, from the first edge of its block on.
  Number skip(Number edge, Number others, Version version) const noexcept {
    if (whole_block(edge)) return edge + others;
    while (removed_in(edge) <= version || others-- > 0) ++edge;
    return edge;
  }

  // What follows is for the one who writes.
  Number size() const noexcept { return length.load(std::memory_order_relaxed); }
  bool full() const noexcept { return size() == capacity; }

  // Returns whether most of the edges are removed, so that a shorter copy is worth its time.
  bool sparse() const noexcept {
    const Number gone = removals.load(std::memory_order_relaxed);
    return gone == size() || (gone > 8 && gone * 2 > size());
  }

  void append(Number source, Version from, Version until) noexcept {
    const Number edge = size();
    sources()[edge] = source;
    added()[edge] = from;
    new (removed() + edge) std::atomic<Version>(until);
    if (until != kNever) count_removals(edge, 1);
    newest.store(from, std::memory_order_relaxed);
    length.store(edge + 1, std::memory_order_release);
  }

  void remove(Number edge, Version version) noexcept {
    removed()[edge].store(version, std::memory_order_relaxed);
    count_removals(edge, 1);
  }

  void restore(Number edge) noexcept {
    removed()[edge].store(kNever, std::memory_order_relaxed);
    count_removals(edge, -1);
  }

  // Returns an edge from a source that no write has removed, -1 if there is none.
  Number find(Number source) const noexcept {
    for (Number edge = 0, count = size(); edge < count; ++edge)
      if (sources()[edge] == source && removed_in(edge) == kNever) return edge;
    return -1;
  }

  // Returns how many edges readers of a version, or of later ones, may see.
  Number left(Version oldest) const noexcept {
    Number count = 0;
    for (Number edge = 0; edge < size(); ++edge) count += removed_in(edge) > oldest;
    return count;
  }

  // Returns a copy of these edges with room for more.
  EdgeList *copied(Version oldest) const {
    const Number count = left(oldest);
    EdgeList *copy = make(count + count / 2 + 2);
    copy->changed = changed;
    for (Number edge = 0; edge < size(); ++edge)
      if (removed_in(edge) > oldest) copy->append(sources()[edge], added()[edge], removed_in(edge));
    return copy;
  }

 private:
  explicit EdgeList(Number capacity) : capacity(capacity) {}

  bool whole_block(Number edge) const noexcept {
    return const_cast<EdgeList *>(this)->gone()[edge / kBlock].load(std::memory_order_relaxed) == 0;
  }

  void count_removals(Number edge, Number change) noexcept {
    for (auto *count : {&removals, gone() + edge / kBlock})
      count->store(count->load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }
};

}  // namespace graph_store
