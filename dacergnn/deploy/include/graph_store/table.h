// A table that grows without moving its entries, so that it can be read meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <bit>

#include "reclaim.h"

namespace graph_store {

// Entries are in parts, each twice as large as the part before it.
template <class Entry>
class Table {
 public:
  Table() = default;
  Table(const Table &) = delete;
  ~Table() {
    for (auto &part : parts_) delete[] part.load();
  }

  // Returns the entry of an index from 0 on, null if there never was any near it.
  Entry *find(Number index) const noexcept {
    const Place place(index);
    Entry *part = parts_[place.part].load(std::memory_order_acquire);
    return part ? part + place.offset : nullptr;
  }

  // Returns the entry of an index, for the one who writes.
  Entry &make(Number index) {
    const Place place(index);
    auto &part = parts_[place.part];
    if (!part.load(std::memory_order_relaxed)) part.store(new Entry[kFirst << place.part](), std::memory_order_release);
    return part.load(std::memory_order_relaxed)[place.offset];
  }

 private:
  static constexpr std::uint64_t kFirst = 64;  // The size of the first part.

  struct Place {
    int part;
    std::uint64_t offset;

    explicit Place(Number index)
        : part(std::bit_width(((std::uint64_t)index + kFirst) / kFirst) - 1),
          offset((std::uint64_t)index + kFirst - (kFirst << part)) {}
  };

  std::array<std::atomic<Entry *>, 58> parts_{};
};

}  // namespace graph_store
