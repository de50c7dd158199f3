// The edges into one node, with the versions in which they exist.
#pragma once

#include <algorithm>
#include <memory>

#include "reclaim.h"

namespace dacergnn::deploy {

// Edges are appended while others read. Three arrays follow in memory: the source of each edge, the version that adds
// it (in ascending order), and the version that removes it, `kNever` until then.
struct EdgeList : Retired {
  const Number capacity;
  std::atomic<Number> length{0};
  std::atomic<Number> removals{0};  // How many edges some version removes.
  std::atomic<Version> newest{0};   // The version of the last edge.
  Version changed = 0;              // The last write that changed it, if it was not undone.
  Version queued = 0;               // The write that asked for a shorter copy, 0 if none did.

  static EdgeList *make(Number capacity) {
    static_assert(sizeof(EdgeList) % alignof(Version) == 0 && sizeof(std::atomic<Version>) == sizeof(Version));
    return new (allocate(sizeof(EdgeList) + capacity * 3 * sizeof(Number))) EdgeList(capacity);
  }

  Number *sources() { return reinterpret_cast<Number *>(this + 1); }
  Version *added() { return reinterpret_cast<Version *>(sources() + capacity); }
  std::atomic<Version> *removed() { return reinterpret_cast<std::atomic<Version> *>(added() + capacity); }
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
    if (until != kNever) count_removals(1);
    newest.store(from, std::memory_order_relaxed);
    length.store(edge + 1, std::memory_order_release);
  }

  void remove(Number edge, Version version) noexcept {
    removed()[edge].store(version, std::memory_order_relaxed);
    count_removals(1);
  }

  void restore(Number edge) noexcept {
    removed()[edge].store(kNever, std::memory_order_relaxed);
    count_removals(-1);
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

  void count_removals(Number change) noexcept {
    removals.store(removals.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }
};

}  // namespace dacergnn::deploy
