// Chooses some of the edges that lead into one node.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "graph.h"
#include "random.h"

namespace dacergnn::sampling {

struct Range {
  Number first, last;

  Number size() const { return last - first; }
};

// Chooses `fanout` edges of a range, or all if it is negative. An edge of weight 0 is never chosen.
// It keeps memory for the next choice, and so belongs to one thread.
class Chooser {
 public:
  Chooser(const double *weight, Number fanout, bool replace) : weight_(weight), fanout_(fanout), replace_(replace) {}

  // Returns how many edges of a range will be chosen.
  Number count(Range range) const {
    Number choices = range.size();
    if (weight_) choices = std::count_if(weight_ + range.first, weight_ + range.last, is_positive);
    if (fanout_ < 0 || choices == 0) return choices;
    return replace_ ? fanout_ : std::min(fanout_, choices);
  }

  // Writes the `count` edges that are chosen.
  void choose(Range range, Number count, Random random, Number *edges) {
    if (count == 0) return;
    if (fanout_ < 0 || (!replace_ && count < fanout_)) return take_all(range, edges);
    if (replace_)
      weight_ ? draw_weighted(range, count, random, edges) : draw_uniform(range, count, random, edges);
    else
      weight_ ? choose_weighted(range, count, random, edges) : choose_uniform(range, count, random, edges);
  }

 private:
  static bool is_positive(double weight) { return weight > 0; }

  void take_all(Range range, Number *edges) const {
    for (Number edge = range.first; edge < range.last; ++edge)
      if (!weight_ || is_positive(weight_[edge])) *edges++ = edge;
  }

  static void draw_uniform(Range range, Number count, Random &random, Number *edges) {
    for (Number i = 0; i < count; ++i) edges[i] = range.first + (Number)random.below(range.size());
  }

  // Takes time linear in the count, whatever the size of the range (Bentley and Floyd, "A sample of brilliance").
  template <class Take>
  static void choose_distinct(Range range, Number count, Random &random, Number *edges, Take take) {
    for (Number i = 0, last = range.size() - count; i < count; ++i, ++last) {
      const Number choice = (Number)random.below(last + 1);
      edges[i] = range.first + (take(choice, i) ? choice : (take(last, i), last));
    }
  }

  void choose_uniform(Range range, Number count, Random &random, Number *edges) {
    constexpr Number kFew = 64;  // Up to here, searching the chosen edges is fastest.
    if (count <= kFew)
      return choose_distinct(range, count, random, edges, [=](Number choice, Number chosen) {
        return std::find(edges, edges + chosen, range.first + choice) == edges + chosen;
      });
    if ((Number)taken_.size() < range.size()) taken_.resize(range.size());
    choose_distinct(range, count, random, edges, [this](Number choice, Number) {
      return !taken_[choice] && (taken_[choice] = true);
    });
    for (Number i = 0; i < count; ++i) taken_[edges[i] - range.first] = false;
  }

  void draw_weighted(Range range, Number count, Random &random, Number *edges) {
    sums_.resize(range.size());
    std::partial_sum(weight_ + range.first, weight_ + range.last, sums_.begin());
    for (Number i = 0; i < count; ++i)
      edges[i] = range.first + (std::ranges::lower_bound(sums_, random.unit() * sums_.back()) - sums_.begin());
  }

  // Each edge waits for an exponential time with its weight as the rate, and the first edges are chosen. That equals
  // choosing one after the other by the weights of the edges that are left (Efraimidis and Spirakis).
  void choose_weighted(Range range, Number count, Random &random, Number *edges) {
    waits_.clear();
    for (Number edge = range.first; edge < range.last; ++edge)
      if (is_positive(weight_[edge])) waits_.emplace_back(-std::log(random.unit()) / weight_[edge], edge);
    if (count < (Number)waits_.size()) std::nth_element(waits_.begin(), waits_.begin() + count, waits_.end());
    for (Number i = 0; i < count; ++i) edges[i] = waits_[i].second;
  }

  const double *weight_;
  Number fanout_;
  bool replace_;
  std::vector<bool> taken_;
  std::vector<double> sums_;
  std::vector<std::pair<double, Number>> waits_;
};

}  // namespace dacergnn::sampling
