// Samples a number of nodes of each type in each hop, as "Heterogeneous Graph Transformer" by Hu et al. describes.
#pragma once

#include <utility>
#include <vector>

#include "chooser.h"
#include "neighbors.h"

namespace dacergnn::sampling {

class HGTSampling {
 public:
  HGTSampling(const Graph &graph, const Request &request)
      : graph_(graph), request_(request), sample_(graph), budgets_(graph.nodes.size()) {}

  Sample run() {
    for (std::size_t type = 0; type < budgets_.size(); ++type)
      add(type, std::vector<Number>(request_.seeds[type], request_.seeds[type] + request_.counts[type]));
    for (Number hop = 0; hop < request_.hops; ++hop) {
      for (const Relation &relation : graph_.relations) raise_scores(relation, hop);
      for (std::size_t type = 0; type < budgets_.size(); ++type) add(type, chosen(type, hop));
    }
    sample_.induce(graph_, request_.threads);
    return std::move(sample_);
  }

 private:
  // Nodes of a type with neighbours in the sample. Nodes that are in the sample themselves have the score 0.
  struct Budget {
    LocalIds places;
    std::vector<Number> nodes;
    std::vector<double> scores;
  };

  void add(std::size_t type, const std::vector<Number> &added) {
    Nodes &nodes = sample_.types[type];
    for (const Number node : added) nodes.add_seed(node);
    nodes.ends.push_back((Number)nodes.keys.size());
  }

  // Each node of the last hop divides a score of 1 among its neighbours; neighbours in the sample need none.
  void raise_scores(const Relation &relation, Number hop) {
    const Nodes &targets = sample_.types[relation.destination];
    const LocalIds &sampled = sample_.types[relation.source].ids;
    Budget &budget = budgets_[relation.source];
    for (Number i = hop ? targets.ends[hop - 1] : 0; i < targets.ends[hop]; ++i) {
      const Number node = targets.keys[i];
      if (targets.ids.find(node) != i) continue;  // A seed that came before.
      const Range range = {relation.colptr[node], relation.colptr[node + 1]};
      for (Number e = range.first; e < range.last; ++e) {
        if (sampled.find(relation.row[e]) >= 0) continue;
        const Number fresh = (Number)budget.nodes.size(), place = budget.places.insert(relation.row[e], fresh);
        if (place == fresh) {
          budget.nodes.push_back(relation.row[e]);
          budget.scores.push_back(0);
        }
        budget.scores[place] += 1.0 / (double)range.size();
      }
    }
  }

  // Returns nodes of a type, whose chances are the squares of their scores.
  std::vector<Number> chosen(std::size_t type, Number hop) {
    Budget &budget = budgets_[type];
    std::vector<double> chances(budget.scores);
    for (double &chance : chances) chance *= chance;
    Chooser chooser(chances.data(), request_.fanouts[type * request_.hops + hop], false);
    const Range all = {0, (Number)chances.size()};
    std::vector<Number> places(chooser.count(all));
    chooser.choose(all, (Number)places.size(), Random(joined(joined(request_.key, hop), type)), places.data());
    for (Number &place : places) {
      budget.scores[place] = 0;
      place = budget.nodes[place];
    }
    return places;
  }

  const Graph &graph_;
  const Request &request_;
  Sample sample_;
  std::vector<Budget> budgets_;
};

}  // namespace dacergnn::sampling
