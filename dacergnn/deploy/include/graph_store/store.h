// A graph that changes while others read it.
//
//   Store store({16, 8}, {{0, 1}, {1, 1}});   // widths of features by node type; ends of relations
//   store.write([&](Write &write) {           // write.h; readers see all of it or nothing
//     write.add_nodes(0, 2, features, ids);
//     write.add_edges(0, 1, ids, targets);
//   });
//   const Snapshot snapshot = store.snapshot();  // the graph as the last finished write has left it
//   neighbourhood(snapshot, 0, seeds, fanouts, random_seed, batch);  // neighbourhood.h
//
// Readers wait for nobody, and a writer waits only for other writers. What a snapshot can see is kept until it ends, so
// snapshots should be short.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "adjacency.h"
#include "error.h"
#include "nodes.h"

namespace graph_store {

class Write;
class Store;

struct Relation {
  Number source, destination;  // types of nodes
};

// The graph in one version. Several threads may use it. It has to end before its store does.
class Snapshot {
 public:
  Snapshot(Snapshot &&other) noexcept
      : store_(other.store_), slot_(std::exchange(other.slot_, nullptr)), version_(other.version_) {}
  Snapshot &operator=(Snapshot &&) = delete;
  ~Snapshot() {
    if (slot_) Readers::leave(slot_);
  }

  Version version() const noexcept { return version_; }
  Number types() const noexcept;
  Number relations() const noexcept;
  const Nodes &nodes(Number type) const;
  const Adjacency &edges(Number relation) const;
  Number count_nodes(Number type) const;
  Number count_edges(Number relation) const;

 private:
  friend class Store;
  Snapshot(const Store &store, Readers::Slot *slot, Version version)
      : store_(&store), slot_(slot), version_(version) {}

  const Store *store_;
  Readers::Slot *slot_;
  Version version_;
};

class Store {
 public:
  Store(std::span<const Number> widths, std::span<const Relation> relations) {
    constexpr Number kWidest = Number{1} << 31;
    for (std::size_t type = 0; type < widths.size(); ++type) {
      if (widths[type] < 0 || widths[type] > kWidest)
        fail(Code::kBadArgument, "widths[", type, "] is ", widths[type], "; pass a number of features from 0 on.");
      nodes_.push_back(std::make_unique<Nodes>(widths[type]));
    }
    for (std::size_t r = 0; r < relations.size(); ++r) {
      for (const Number end : {relations[r].source, relations[r].destination})
        if (end < 0 || end >= types())
          fail(Code::kBadArgument, "relation ", r, " has an end of node type ", end, ", but there are ", types(),
               " types, from 0 on.");
      edges_.push_back(std::make_unique<Adjacency>(relations[r].source, relations[r].destination));
    }
    Row<Number> *totals = totals_.make(types() + this->relations(), true, journal_);
    std::fill_n(totals->values(), types() + this->relations(), 0);
    totals_.replace(totals, journal_);
    journal_.keep();
  }

  // Calls `function(write)`, and then shows readers all that it has changed. If it throws, nothing is changed.
  template <class Function>
  void write(Function function);

  Snapshot snapshot() const {
    Readers::Slot *slot = readers_.enter(version_.load());
    return Snapshot(*this, slot, version_.load());
  }

  Number types() const noexcept { return (Number)nodes_.size(); }
  Number relations() const noexcept { return (Number)edges_.size(); }
  Number count_snapshots() const noexcept { return readers_.count(); }

  // Whether this thread has a write under way.
  bool writes_here() const noexcept { return writer_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

 private:
  friend class Snapshot;
  friend class Write;

  std::vector<std::unique_ptr<Nodes>> nodes_;
  std::vector<std::unique_ptr<Adjacency>> edges_;
  Versions<Number> totals_;  // The count of nodes of each type, then of edges of each relation.
  Journal journal_;
  mutable Readers readers_;
  std::atomic<Version> version_{0};  // The newest version that is complete.
  std::mutex writers_;
  std::atomic<std::thread::id> writer_{};
};

inline Number Snapshot::types() const noexcept { return store_->types(); }
inline Number Snapshot::relations() const noexcept { return store_->relations(); }

inline const Nodes &Snapshot::nodes(Number type) const {
  if (type < 0 || type >= types())
    fail(Code::kBadArgument, "type is ", type, ", but there are ", types(), " node types, from 0 on.");
  return *store_->nodes_[type];
}

inline const Adjacency &Snapshot::edges(Number relation) const {
  if (relation < 0 || relation >= relations())
    fail(Code::kBadArgument, "relation is ", relation, ", but there are ", relations(), " relations, from 0 on.");
  return *store_->edges_[relation];
}

inline Number Snapshot::count_nodes(Number type) const {
  nodes(type);
  return store_->totals_.at(version_)->values()[type];
}

inline Number Snapshot::count_edges(Number relation) const {
  edges(relation);
  return store_->totals_.at(version_)->values()[types() + relation];
}

}  // namespace graph_store

#include "write.h"
