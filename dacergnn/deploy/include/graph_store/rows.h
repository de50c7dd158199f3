// Rows of numbers in all versions that may be read.
#pragma once

#include <cstring>

#include "journal.h"

namespace graph_store {

// One version of a row. Its values follow in memory.
template <class Value>
struct Row : Retired {
  Version version;  // The first version with these values.
  Row *older;       // Only readers of versions before `version` may follow it; for all others, it may be freed.
  bool alive;       // Whether the row exists from this version on.

  Value *values() { return reinterpret_cast<Value *>(this + 1); }
  const Value *values() const { return reinterpret_cast<const Value *>(this + 1); }
};

// A row that changes, as the list of its versions from the newest on.
template <class Value>
class Versions {
 public:
  Versions() = default;
  Versions(const Versions &) = delete;
  ~Versions() { std::free(newest_.load()); }  // Older ones belong to the retirees.

  // Returns the row as readers of a version see it, null if it does not exist then.
  const Row<Value> *at(Version version) const noexcept {
    const Row<Value> *row = newest_.load(std::memory_order_acquire);
    while (row && row->version > version) row = row->older;
    return row && row->alive ? row : nullptr;
  }

  // Makes a version with values of its own, which the caller sets before `replace` shows it to readers.
  Row<Value> *make(std::size_t count, bool alive, Journal &journal) const {
    static_assert(sizeof(Row<Value>) % alignof(Value) == 0);
    journal.prepare(1);
    void *memory = allocate(sizeof(Row<Value>) + count * sizeof(Value));
    return new (memory) Row<Value>{{}, journal.version, newest_.load(std::memory_order_relaxed), alive};
  }

  void replace(Row<Value> *row, Journal &journal) noexcept {
    journal.changes.push_back({end, this, 0, newest_.load(std::memory_order_relaxed)});
    newest_.store(row, std::memory_order_release);
  }

  void prefetch() const noexcept { __builtin_prefetch(newest_.load(std::memory_order_relaxed)); }

 private:
  static void end(const Journal::Change &change, Journal &journal, bool keep) noexcept {
    Retired *unused = change.replaced;
    if (!keep) {
      auto &newest = static_cast<Versions *>(change.object)->newest_;
      unused = newest.load(std::memory_order_relaxed);
      newest.store(static_cast<Row<Value> *>(change.replaced), std::memory_order_release);
    }
    if (unused) journal.retire(unused);
  }

  std::atomic<Row<Value> *> newest_{nullptr};
};

}  // namespace graph_store
