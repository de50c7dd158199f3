// The nodes of one type: their ids and their features.
#pragma once

#include <vector>

#include "rows.h"
#include "table.h"

namespace graph_store {

class Nodes {
 public:
  explicit Nodes(Number width) : width(width) {}

  const Number width;  // The number of features.

  // Returns the features of a node as readers of a version see them, null if there is no such node.
  const Row<float> *at(Number id, Version version) const noexcept {
    const Versions<float> *versions = id < 0 ? nullptr : rows_.find(id);
    return versions ? versions->at(version) : nullptr;
  }

  // Have the processor fetch what `at` reads: first the entry of the table, later the newest row.
  void prefetch_entry(Number id) const noexcept { __builtin_prefetch(rows_.find(id)); }
  void prefetch_row(Number id) const noexcept { rows_.find(id)->prefetch(); }

  // Returns the id of a new node: the id of a node that nobody can see any more, or a new one.
  Number add(const float *features, Journal &journal) {
    if ((Number)unused_.capacity() <= size_) unused_.reserve(2 * size_ + 64);  // giving ids back cannot fail
    journal.prepare(2);
    const Number id = unused_.empty() ? size_ : unused_.back();
    write(id, features, journal);
    if (id == size_)
      ++size_;
    else
      unused_.pop_back();
    journal.changes.push_back({end_add, this, id});
    return id;
  }

  void set(Number id, const float *features, Journal &journal) { write(id, features, journal); }

  void remove(Number id, Journal &journal) {
    journal.tasks.push_back({journal.version, give_back, this, id});
    Versions<float> &versions = rows_.make(id);
    versions.replace(versions.make(0, false, journal), journal);
  }

 private:
  void write(Number id, const float *features, Journal &journal) {
    Versions<float> &versions = rows_.make(id);
    Row<float> *row = versions.make(width, true, journal);
    if (width) std::memcpy(row->values(), features, width * sizeof(float));
    versions.replace(row, journal);
  }

  static void end_add(const Journal::Change &change, Journal &journal, bool keep) noexcept {
    if (!keep) give_back(change.object, change.index, journal);
  }

  static void give_back(void *object, Number id, Journal &) noexcept {
    static_cast<Nodes *>(object)->unused_.push_back(id);
  }

  Table<Versions<float>> rows_;
  Number size_ = 0;  // All ids so far are below.
  std::vector<Number> unused_;
};

}  // namespace graph_store
