// The operations that change a store.
#pragma once

#include "store.h"

namespace graph_store {

// Changes of the graph that readers see all at once. While one is under way, no other thread can write. After an
// operation has failed, the write cannot be finished.
class Write {
 public:
  explicit Write(Store &store) : store_(store), journal_(store.journal_) {
    if (store.writes_here())
      fail(Code::kInUse, "This thread has a write of this store under way; finish it before it begins another.");
    store.writers_.lock();
    store.writer_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    const Version newest = store.version_.load();
    journal_.begin(newest + 1, store.readers_.oldest(newest));
  }

  Write(const Write &) = delete;

  // Undoes the write unless it was finished.
  ~Write() {
    if (!finished_) {
      journal_.undo();
      end();
    }
  }

  // Shows readers the changes, and ends the write.
  void finish() {
    if (finished_) fail(Code::kFailedWrite, "The write has ended already.");
    if (failed_)
      fail(Code::kFailedWrite, "An operation of this write has failed, so it cannot be finished; start another write.");
    finished_ = true;
    journal_.keep();
    store_.version_.store(journal_.version);
    end();
  }

  // Adds nodes with features [count, width], and writes their ids to `ids`.
  void add_nodes(Number type, Number count, const float *features, Number *ids) {
    change([&] {
      Nodes &nodes = checked_nodes("add_nodes", type);
      check_array("add_nodes", "features", features, count, nodes.width);
      check_array("add_nodes", "ids", ids, count);
      for (Number i = 0; i < count; ++i) ids[i] = nodes.add(features + i * nodes.width, journal_);
      totals()[type] += count;
    });
  }

  // Sets the features [count, width] of nodes.
  void set_features(Number type, Number count, const Number *ids, const float *features) {
    change([&] {
      Nodes &nodes = checked_nodes("set_features", type);
      check_array("set_features", "features", features, count, nodes.width);
      check_array("set_features", "ids", ids, count);
      check_nodes("set_features", "ids", type, count, ids);
      for (Number i = 0; i < count; ++i) nodes.set(ids[i], features + i * nodes.width, journal_);
    });
  }

  // Removes nodes and all edges from and to them. Their ids may come back for new nodes once no snapshot has them.
  void remove_nodes(Number type, Number count, const Number *ids) {
    change([&] {
      Nodes &nodes = checked_nodes("remove_nodes", type);
      check_array("remove_nodes", "ids", ids, count);
      for (Number i = 0; i < count; ++i) {
        check_nodes("remove_nodes", "ids", type, 1, ids + i, i);  // one may come twice
        for (Number r = 0; r < store_.relations(); ++r) {
          Adjacency &edges = *store_.edges_[r];
          Number removed = 0;
          if (edges.destination == type) removed += edges.remove_into(ids[i], journal_);
          if (edges.source == type) removed += edges.remove_from(ids[i], journal_);
          totals()[store_.types() + r] -= removed;
        }
        nodes.remove(ids[i], journal_);
        --totals()[type];
      }
    });
  }

  // Adds edges, also several between the same nodes.
  void add_edges(Number relation, Number count, const Number *sources, const Number *destinations) {
    change([&] {
      Adjacency &edges = checked_edges("add_edges", relation, count, sources, destinations);
      for (Number i = 0; i < count; ++i) edges.add(sources[i], destinations[i], journal_);
      totals()[store_.types() + relation] += count;
    });
  }

  // Removes one edge for each pair of nodes.
  void remove_edges(Number relation, Number count, const Number *sources, const Number *destinations) {
    change([&] {
      Adjacency &edges = checked_edges("remove_edges", relation, count, sources, destinations);
      for (Number i = 0; i < count; ++i)
        if (!edges.remove(sources[i], destinations[i], journal_))
          fail(Code::kNoEdge, "remove_edges: relation ", relation, " has no ", "edge from node ", sources[i],
               " to node ", destinations[i], " (pair ", i, ") that is left; name each edge once.");
      totals()[store_.types() + relation] -= count;
    });
  }

 private:
  template <class Function>
  void change(Function function) {
    if (failed_ || finished_)
      fail(Code::kFailedWrite, "This write has ", finished_ ? "ended" : "failed", " already; start another write.");
    failed_ = true;
    function();
    failed_ = false;
  }

  void end() noexcept {
    store_.writer_.store({}, std::memory_order_relaxed);
    store_.writers_.unlock();
  }

  // Returns the totals of this write, which readers cannot see yet.
  Number *totals() {
    if (!totals_) {
      const Number count = store_.types() + store_.relations();
      totals_ = store_.totals_.make(count, true, journal_);
      std::copy_n(totals_->older->values(), count, totals_->values());
      store_.totals_.replace(totals_, journal_);
    }
    return totals_->values();
  }

  Nodes &checked_nodes(const char *operation, Number type) {
    if (type < 0 || type >= store_.types())
      fail(Code::kBadArgument, operation, ": type is ", type, ", but there are ", store_.types(),
           " node types, from 0 on.");
    return *store_.nodes_[type];
  }

  Adjacency &checked_edges(const char *operation, Number relation, Number count, const Number *sources,
                           const Number *destinations) {
    if (relation < 0 || relation >= store_.relations())
      fail(Code::kBadArgument, operation, ": relation is ", relation, ", but there are ", store_.relations(),
           " relations, from 0 on.");
    Adjacency &edges = *store_.edges_[relation];
    check_array(operation, "sources", sources, count);
    check_array(operation, "destinations", destinations, count);
    check_nodes(operation, "sources", edges.source, count, sources);
    check_nodes(operation, "destinations", edges.destination, count, destinations);
    return edges;
  }

  static void check_array(const char *operation, const char *name, const void *array, Number count, Number width = 1) {
    constexpr Number kMost = Number{1} << 58;  // Sizes in bytes fit into 64 bits.
    if (count < 0 || count > kMost / std::max(width, Number{1}))
      fail(Code::kBadArgument, operation, ": count is ", count, "; pass the number of rows, from 0 on.");
    if (!array && count * width > 0)
      fail(Code::kBadArgument, operation, ": ", name, " is null; pass the address of ", count * width, " numbers.");
  }

  void check_nodes(const char *operation, const char *name, Number type, Number count, const Number *ids,
                   Number first = 0) const {
    for (Number i = 0; i < count; ++i)
      if (!store_.nodes_[type]->at(ids[i], journal_.version))
        fail(Code::kNoNode, operation, ": ", name, "[", first + i, "] is ", ids[i], ", but node type ", type,
             " has no such node now; add it first, or leave it out.");
  }

  Store &store_;
  Journal &journal_;
  Row<Number> *totals_ = nullptr;
  bool failed_ = false, finished_ = false;
};

template <class Function>
void Store::write(Function function) {
  Write write(*this);
  function(write);
  write.finish();
}

}  // namespace graph_store
