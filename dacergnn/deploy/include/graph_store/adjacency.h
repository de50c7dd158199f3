// The edges of one relation.
#pragma once

#include <vector>

#include "edge_list.h"
#include "journal.h"
#include "table.h"

namespace graph_store {

// Readers find the edges into a node. Whoever writes also finds the nodes to which edges lead from a node, so that the
// node can be removed.
class Adjacency {
 public:
  Adjacency(Number source, Number destination) : source(source), destination(destination) {}

  const Number source, destination;  // The types of nodes.

  // Returns the edges into a node, null if there are none.
  const EdgeList *into(Number node) const noexcept {
    const Head *head = heads_.find(node);
    return head ? head->list.load(std::memory_order_acquire) : nullptr;
  }

  void prefetch_head(Number node) const noexcept { __builtin_prefetch(heads_.find(node)); }
  void prefetch_list(Number node) const noexcept {
    const Head *head = heads_.find(node);
    if (head) __builtin_prefetch(head->list.load(std::memory_order_relaxed));
  }

  void add(Number from, Number to, Journal &journal) {
    if ((Number)targets_.size() <= from) targets_.resize(from + 1);
    Targets &targets = targets_[from];
    if (targets.nodes.size() == targets.nodes.capacity() && targets.mostly_stale()) clean(from, journal);
    targets.nodes.push_back(to);

    Head &head = heads_.make(to);
    EdgeList *list = head.list.load(std::memory_order_relaxed);
    if (!list || list->full()) {
      EdgeList *larger = list ? list->copied(journal.oldest) : EdgeList::make(2);
      head.list.store(larger, std::memory_order_release);
      if (list) journal.retire(list);
      list = larger;
    }
    note(to, *list, journal);
    list->append(from, journal.version, kNever);
  }

  // Removes one of the edges between two nodes. Returns false if there is none.
  bool remove(Number from, Number to, Journal &journal) {
    EdgeList *list = changeable(to);
    const Number edge = list ? list->find(from) : -1;
    if (edge < 0) return false;
    remove(to, *list, edge, journal);
    forget(from, journal);
    return true;
  }

  // Removes all edges into a node, and returns how many they were.
  Number remove_into(Number node, Journal &journal) {
    EdgeList *list = changeable(node);
    Number count = 0;
    for (Number edge = 0; list && edge < list->size(); ++edge)
      if (list->removed_in(edge) == kNever) {
        remove(node, *list, edge, journal);
        forget(list->sources()[edge], journal);
        ++count;
      }
    return count;
  }

  // Removes all edges from a node, and returns how many they were.
  Number remove_from(Number node, Journal &journal) {
    if ((Number)targets_.size() <= node || targets_[node].nodes.empty()) return 0;
    Targets &targets = targets_[node];
    targets.sort();
    Number count = 0;
    for (const Number to : targets.nodes) {
      EdgeList *list = changeable(to);
      for (Number edge = 0; list && edge < list->size(); ++edge)
        if (list->sources()[edge] == node && list->removed_in(edge) == kNever) {
          remove(to, *list, edge, journal);
          ++count;
        }
    }
    targets.stale = targets.nodes.size();
    journal.tasks.push_back({journal.version, clear, this, node});
    return count;
  }

 private:
  struct Head {
    std::atomic<EdgeList *> list{nullptr};

    ~Head() { std::free(list.load()); }
  };

  // The nodes to which edges from one node lead, and perhaps more: a removed edge leaves its node here.
  struct Targets {
    std::vector<Number> nodes;
    std::size_t stale = 0;  // About as many need not be here.

    bool mostly_stale() const { return stale * 2 > nodes.size(); }
    void sort() {
      std::ranges::sort(nodes);
      nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    }
  };

  EdgeList *changeable(Number node) noexcept { return const_cast<EdgeList *>(into(node)); }

  // Notes that the write changes a list.
  void note(Number node, EdgeList &list, Journal &journal) {
    if (list.changed == journal.version) return;
    journal.changes.push_back({end, this, node});
    list.changed = journal.version;
  }

  void remove(Number node, EdgeList &list, Number edge, Journal &journal) {
    note(node, list, journal);
    list.remove(edge, journal.version);
    ask_for_copy(node, list, journal);
  }

  // Has a later write replace a list most of which is removed. Without memory for that, the next removal asks again.
  void ask_for_copy(Number node, EdgeList &list, Journal &journal) noexcept {
    if (list.queued || !list.sparse()) return;
    try {
      journal.tasks.push_back({journal.version, shorten, this, node});
      list.queued = journal.version;
    } catch (const std::bad_alloc &) {
    }
  }

  void forget(Number from, Journal &journal) noexcept {
    Targets &targets = targets_[from];
    ++targets.stale;
    if (targets.nodes.size() > 16 && targets.mostly_stale()) clean(from, journal);
  }

  // Keeps the nodes to which edges lead. Edges that this write removes count, since it may be undone.
  void clean(Number from, const Journal &journal) noexcept {
    Targets &targets = targets_[from];
    targets.sort();
    std::erase_if(targets.nodes, [&](Number to) {
      const EdgeList *list = into(to);
      for (Number edge = 0; list && edge < list->size(); ++edge)
        if (list->sources()[edge] == from && list->removed_in(edge) >= journal.version) return false;
      return true;
    });
    targets.stale = 0;
  }

  static void end(const Journal::Change &change, Journal &journal, bool keep) noexcept {
    auto &adjacency = *static_cast<Adjacency *>(change.object);
    if (!keep) adjacency.undo(change.index, *adjacency.changeable(change.index), journal);
  }

  // Edges that the write has added stay in the list, but no version has them.
  void undo(Number node, EdgeList &list, Journal &journal) noexcept {
    const Version version = journal.version;
    for (Number edge = 0; edge < list.size(); ++edge) {
      if (list.removed_in(edge) == version) list.restore(edge);
      if (list.added()[edge] != version) continue;
      list.remove(edge, version);
      ++targets_[list.sources()[edge]].stale;
    }
    list.changed = 0;
    if (list.queued == version) list.queued = 0;
    ask_for_copy(node, list, journal);
  }

  // Replaces a list by a copy without the edges that nobody can see.
  static void shorten(void *object, Number node, Journal &journal) noexcept {
    auto &adjacency = *static_cast<Adjacency *>(object);
    EdgeList *list = adjacency.changeable(node);
    if (!list) return;
    list->queued = 0;
    if (!list->sparse()) return;
    try {
      EdgeList *shorter = list->left(journal.oldest) ? list->copied(journal.oldest) : nullptr;
      adjacency.heads_.find(node)->list.store(shorter, std::memory_order_release);
      journal.retire(list);
      if (shorter) adjacency.ask_for_copy(node, *shorter, journal);
    } catch (const std::bad_alloc &) {  // it stays as it is
    }
  }

  // Forgets the edges from a node that is removed for good.
  static void clear(void *object, Number node, Journal &) noexcept {
    static_cast<Adjacency *>(object)->targets_[node] = {};
  }

  Table<Head> heads_;
  std::vector<Targets> targets_;
};

}  // namespace graph_store
