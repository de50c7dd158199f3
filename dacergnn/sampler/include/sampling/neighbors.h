// Samples neighbours of seeds, then neighbours of these, and so on.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "chooser.h"
#include "sample.h"

namespace dacergnn::sampling {

struct Request {
  std::uint64_t key;  // The key of all random numbers.
  Number hops, threads;
  bool replace, latest, disjoint, induced;
  const Number *fanouts;               // For each relation (HGT: type) and hop; negative for all.
  const Number *times;                 // The time of each tree; null if it does not matter.
  std::vector<const Number *> seeds;   // The seeds of each type.
  std::vector<Number> counts, trees;   // The count of seeds of each type, and their first tree.

  // `numbers`: the members in this order; the last three follow type by type.
  Request(const Number *numbers, std::size_t types)
      : key(numbers[0]), hops(numbers[1]), threads(numbers[2]), replace(numbers[3]), latest(numbers[4]),
        disjoint(numbers[5]), induced(numbers[6]), fanouts((const Number *)numbers[7]),
        times((const Number *)numbers[8]) {
    for (std::size_t type = 0; type < types; ++type) {
      const Number *field = numbers + 9 + 3 * type;
      seeds.push_back((const Number *)field[0]);
      counts.push_back(field[1]);
      trees.push_back(field[2]);
    }
  }
};

class NeighborSampling {
 public:
  NeighborSampling(const Graph &graph, const Request &request) : graph_(graph), request_(request), sample_(graph) {}

  Sample run() {
    add_seeds();
    for (Number hop = 0; hop < request_.hops; ++hop) {
      Number chosen = 0;
      for (std::size_t r = 0; r < graph_.relations.size(); ++r) chosen += choose_edges(r, hop);
      const Number types = (Number)graph_.nodes.size();
      share(types, 1, worth(chosen, request_.threads), [&](Number type, Number) { number_sources(type, hop); });
    }
    if (request_.induced) sample_.induce(graph_, request_.threads);
    return std::move(sample_);
  }

 private:
  void add_seeds() {
    for (std::size_t type = 0; type < graph_.nodes.size(); ++type) {
      Nodes &nodes = sample_.types[type];
      for (Number i = 0; i < request_.counts[type]; ++i) {
        const Number tree = request_.disjoint ? request_.trees[type] + i : 0;
        nodes.add_seed(tree * graph_.nodes[type] + request_.seeds[type][i]);
      }
      nodes.ends.push_back(request_.counts[type]);
    }
  }

  // Returns the edges into a node that may be chosen.
  Range candidates(const Relation &relation, Number node, Number tree, Number fanout) const {
    Range range = {relation.colptr[node], relation.colptr[node + 1]};
    if (relation.time) {
      const Number *time = relation.time;
      range.last = std::upper_bound(time + range.first, time + range.last, request_.times[tree]) - time;
      if (request_.latest && fanout >= 0) range.first = std::max(range.first, range.last - fanout);
    }
    return range;
  }

  // Chooses edges into the nodes of the last hop, and returns their count. Their rows are keys of nodes until the
  // nodes are numbered.
  Number choose_edges(std::size_t r, Number hop) {
    const Relation &relation = graph_.relations[r];
    const Nodes &targets = sample_.types[relation.destination];
    const Number begin = hop ? targets.ends[hop - 1] : 0, count = targets.ends[hop] - begin;
    const Number fanout = request_.fanouts[r * request_.hops + hop];
    const Chooser chooser(relation.weight, fanout, request_.replace);
    const auto each = [&](auto visit) {
      share(count, 512, worth(count, request_.threads), [&, mine = chooser](Number first, Number last) mutable {
        for (Number i = first; i < last; ++i) {
          const Number key = targets.keys[begin + i];
          visit(mine, i, key, request_.disjoint ? key / graph_.nodes[relation.destination] : 0);
        }
      });
    };

    std::vector<Range> ranges(count);
    std::vector<Number> starts(count + 1);
    each([&](const Chooser &mine, Number i, Number key, Number tree) {
      ranges[i] = candidates(relation, key - tree * graph_.nodes[relation.destination], tree, fanout);
      starts[i + 1] = mine.count(ranges[i]);
    });
    Edges &edges = sample_.relations[r];
    starts[0] = hop ? edges.ends[hop - 1] : 0;
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    edges.resize(starts[count]);
    edges.ends.push_back(starts[count]);

    const std::uint64_t key = joined(joined(request_.key, hop), r);
    each([&](Chooser &mine, Number i, Number, Number tree) {
      const Number first = starts[i], last = starts[i + 1];
      mine.choose(ranges[i], last - first, Random(joined(key, i)), edges.edge.data() + first);
      for (Number e = first; e < last; ++e) {
        const Number position = edges.edge[e];
        edges.row[e] = relation.row[position] + tree * graph_.nodes[relation.source];
        edges.col[e] = begin + i;
        edges.edge[e] = relation.number(position);
      }
    });
    return starts[count] - starts[0];
  }

  void number_sources(std::size_t type, Number hop) {
    Nodes &nodes = sample_.types[type];
    for (std::size_t r = 0; r < graph_.relations.size(); ++r)
      if (graph_.relations[r].source == (Number)type) {
        Edges &edges = sample_.relations[r];
        nodes.number(edges.row.data() + (hop ? edges.ends[hop - 1] : 0), edges.row.data() + edges.ends[hop]);
      }
    nodes.ends.push_back((Number)nodes.keys.size());
  }

  const Graph &graph_;
  const Request &request_;
  Sample sample_;
};

}  // namespace dacergnn::sampling
