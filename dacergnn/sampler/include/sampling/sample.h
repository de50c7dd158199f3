// The sample: nodes of each type, and edges of each relation between them.
#pragma once

#include <vector>

#include "graph.h"
#include "local_ids.h"

namespace dacergnn::sampling {

// Nodes of one type: the seeds first, then the nodes of each hop. A node of tree `t` has the key
// t * (nodes of its type) + node. If nodes are not kept apart by seed, all belong to tree 0.
struct Nodes {
  std::vector<Number> keys;
  std::vector<Number> ends;  // The end of the seeds, and of each hop.
  LocalIds ids;

  // Appends a seed, which has a position of its own even if it occurs twice.
  void add_seed(Number key) {
    ids.insert(key, (Number)keys.size());
    keys.push_back(key);
  }

  // Replaces keys by the numbers of their nodes, and appends new nodes.
  void number(Number *first, Number *last) {
    constexpr Number kAhead = 8;
    for (Number *key = first; key < last; ++key) {
      if (last - key > kAhead) ids.prefetch(key[kAhead]);
      const Number fresh = (Number)keys.size(), id = ids.insert(*key, fresh);
      if (id == fresh) keys.push_back(*key);
      *key = id;
    }
  }
};

// Edges of one relation, hop by hop, and by destination in each hop.
struct Edges {
  std::vector<Number> row, col, edge;
  std::vector<Number> ends;  // The end of each hop.

  void resize(Number count) {
    for (auto *vector : {&row, &col, &edge}) vector->resize(count);
  }
};

struct Sample {
  std::vector<Number> counts;  // The count of all nodes of each type.
  std::vector<Nodes> types;
  std::vector<Edges> relations;

  explicit Sample(const Graph &graph)
      : counts(graph.nodes), types(graph.nodes.size()), relations(graph.relations.size()) {}

  // Replaces the edges by all edges between sampled nodes.
  void induce(const Graph &graph, Number threads) {
    Number nodes = 0;
    for (const Nodes &type : types) nodes += (Number)type.keys.size();
    share((Number)relations.size(), 1, worth(nodes, threads), [&](Number r, Number) {
      const Relation &relation = graph.relations[r];
      const std::vector<Number> &targets = types[relation.destination].keys;
      Edges &edges = relations[r] = {};
      for (Number i = 0; i < (Number)targets.size(); ++i)
        for (Number e = relation.colptr[targets[i]]; e < relation.colptr[targets[i] + 1]; ++e) {
          const Number source = types[relation.source].ids.find(relation.row[e]);
          if (source < 0) continue;
          edges.row.push_back(source);
          edges.col.push_back(i);
          edges.edge.push_back(relation.number(e));
        }
    });
  }
};

}  // namespace dacergnn::sampling
