// Takes neighbours of seeds, then neighbours of these, and so on.
#pragma once

#include "batch.h"
#include "store.h"

namespace graph_store {

class Sampling {
 public:
  Sampling(const Snapshot &snapshot, Batch &batch) : snapshot_(snapshot), version_(snapshot.version()), batch_(batch) {}

  void run(Number type, std::span<const Number> seeds, std::span<const Number> fanouts, std::uint64_t random_seed) {
    check(type, seeds, fanouts);
    try {
      batch_.clear(snapshot_.types(), snapshot_.relations());
      add_seeds(type, seeds);
      const Number relations = snapshot_.relations(), hops = relations ? (Number)fanouts.size() / relations : 0;
      for (Number hop = 0; hop < hops; ++hop) {
        for (Number r = 0; r < relations; ++r)
          add_edges(r, fanouts[hop * relations + r], dacergnn::sampling::joined(dacergnn::sampling::joined(random_seed, hop), r));
        for (Batch::Type &nodes : batch_.types_) nodes.begin = std::exchange(nodes.end, (Number)nodes.ids.size());
      }
      for (Batch::Relation &edges : batch_.relations_)
        edges.edges.insert(edges.edges.end(), edges.destinations.begin(), edges.destinations.end());
      for (Number t = 0; t < snapshot_.types(); ++t) gather(snapshot_.nodes(t), batch_.types_[t]);
    } catch (...) {
      batch_.clear(0, 0);
      throw;
    }
  }

 private:
  static constexpr Number kAhead = 8;  // The processor fetches what is needed so many steps later.

  void check(Number type, std::span<const Number> seeds, std::span<const Number> fanouts) const {
    const Nodes &nodes = snapshot_.nodes(type);
    for (std::size_t i = 0; i < seeds.size(); ++i)
      if (!nodes.at(seeds[i], version_))
        fail(Code::kNoNode, "seeds[", i, "] is ", seeds[i], ", but node type ", type,
             " has no such node in this snapshot; leave it out.");
    const Number relations = snapshot_.relations(), count = (Number)fanouts.size();
    if (relations ? count % relations : count)
      fail(Code::kBadArgument, "fanouts has ", count, " numbers; pass one for each hop and each of ", relations,
           " relations.");
    for (Number i = 0; i < count; ++i)
      if (fanouts[i] < -1)
        fail(Code::kBadArgument, "the fanout of hop ", i / relations, " and relation ", i % relations, " is ",
             fanouts[i], "; pass a number from 0 on, or -1 for all.");
  }

  // Each seed has a place of its own, even if it comes twice.
  void add_seeds(Number type, std::span<const Number> seeds) {
    for (Batch::Type &nodes : batch_.types_) nodes.begin = nodes.end = 0;
    Batch::Type &nodes = batch_.types_[type];
    for (const Number seed : seeds) {
      nodes.places.insert(seed, (Number)nodes.ids.size());
      nodes.ids.push_back(seed);
    }
    nodes.end = (Number)nodes.ids.size();
  }

  // Adds edges into the nodes of the last hop.
  void add_edges(Number r, Number fanout, std::uint64_t key) {
    if (fanout == 0) return;
    const Adjacency &adjacency = snapshot_.edges(r);
    const Batch::Type &targets = batch_.types_[adjacency.destination];
    for (Number i = targets.begin; i < targets.end; ++i) {
      if (i + 2 * kAhead < targets.end) adjacency.prefetch_head(targets.ids[i + 2 * kAhead]);
      if (i + kAhead < targets.end) adjacency.prefetch_list(targets.ids[i + kAhead]);
      if (const EdgeList *list = adjacency.into(targets.ids[i])) {
        choose(*list, fanout, dacergnn::sampling::Random(dacergnn::sampling::joined(key, i)));
        connect(r, *list, i);
      }
    }
  }

  // Finds the edges of a list to take. Which they are does not depend on edges that the snapshot does not see.
  void choose(const EdgeList &list, Number fanout, dacergnn::sampling::Random random) {
    const Number known = list.known(version_);
    const bool whole = list.whole();
    if (fanout < 0 || fanout >= known) return take_all(list, known, whole);
    const Number choices = whole ? known : count_present(list, known);
    if (fanout >= choices) return take_all(list, known, whole);
    std::vector<Number> &chosen = batch_.chosen_, &starts = batch_.starts_;
    chosen.resize(fanout);
    batch_.chooser_.choose({0, choices}, fanout, random, chosen.data());
    if (whole) return;
    for (Number &edge : chosen) {  // so far the number of edges before it that are present
      const auto block = std::ranges::upper_bound(starts, edge) - starts.begin() - 1;
      edge = list.skip(block * EdgeList::kBlock, edge - starts[block], version_);
    }
  }

  void take_all(const EdgeList &list, Number known, bool whole) {
    batch_.chosen_.clear();
    for (Number edge = 0; edge < known; ++edge)
      if (whole || list.removed_in(edge) > version_) batch_.chosen_.push_back(edge);
  }

  // Returns how many of the known edges are present, and notes how many are before each block.
  Number count_present(const EdgeList &list, Number known) {
    Number count = 0;
    batch_.starts_.clear();
    for (Number first = 0; first < known; first += EdgeList::kBlock) {
      batch_.starts_.push_back(count);
      count += list.present(first, std::min(first + EdgeList::kBlock, known), version_);
    }
    return count;
  }

  // Adds the chosen edges to the node at place `i`.
  void connect(Number r, const EdgeList &list, Number i) {
    Batch::Relation &edges = batch_.relations_[r];
    Batch::Type &nodes = batch_.types_[snapshot_.edges(r).source];
    for (const Number edge : batch_.chosen_) {
      const Number source = list.sources()[edge], fresh = (Number)nodes.ids.size();
      const Number place = nodes.places.insert(source, fresh);
      if (place == fresh) nodes.ids.push_back(source);
      edges.edges.push_back(place);
      edges.destinations.push_back(i);
    }
  }

  void gather(const Nodes &nodes, Batch::Type &type) const {
    type.width = nodes.width;
    const Number count = (Number)type.ids.size(), width = nodes.width;
    if ((Number)type.features.size() < count * width) type.features.resize(count * width);
    for (Number i = 0; width && i < count; ++i) {
      if (i + 2 * kAhead < count) nodes.prefetch_entry(type.ids[i + 2 * kAhead]);
      if (i + kAhead < count) nodes.prefetch_row(type.ids[i + kAhead]);
      std::memcpy(type.features.data() + i * width, nodes.at(type.ids[i], version_)->values(), width * sizeof(float));
    }
  }

  const Snapshot &snapshot_;
  const Version version_;
  Batch &batch_;
};

// Fills a batch with the neighbourhood of seeds, as PyG's NeighborLoader does (directed, without replacement): in each
// hop, each node that the hop before has reached takes up to `fanouts[hop][relation]` of its incoming edges (-1: all).
// The same snapshot, arguments and random seed give the same batch. Wrong arguments leave the batch as it is; after any
// other error, it is empty.
inline void neighbourhood(const Snapshot &snapshot, Number type, std::span<const Number> seeds,
                          std::span<const Number> fanouts, std::uint64_t random_seed, Batch &batch) {
  Sampling(snapshot, batch).run(type, seeds, fanouts, random_seed);
}

}  // namespace graph_store
