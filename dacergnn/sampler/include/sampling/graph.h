// The graph to sample: the edges of each relation, sorted by destination.
#pragma once

#include <vector>

#include "threads.h"

namespace dacergnn::sampling {

// The edges colptr[v] .. colptr[v + 1] lead into node v, in the order of time if they have times.
struct Relation {
  const Number *colptr, *row;
  const Number *edge;     // The number of each edge in the user's graph; null if edges are in that order.
  const Number *time;     // The time of each edge; null if it does not matter.
  const double *weight;   // The weight of each edge; null if all are equal.
  Number source, destination;  // Types of nodes.

  Number number(Number position) const { return edge ? edge[position] : position; }
};

struct Graph {
  std::vector<Number> nodes;  // The number of nodes of each type.
  std::vector<Relation> relations;

  // `numbers`: counts of types and relations; the count of nodes of each type; the members of each relation.
  explicit Graph(const Number *numbers) : nodes(numbers + 2, numbers + 2 + numbers[0]) {
    const Number *field = numbers + 2 + numbers[0];
    for (Number r = 0; r < numbers[1]; ++r, field += 7)
      relations.push_back({(const Number *)field[0], (const Number *)field[1], (const Number *)field[2],
                           (const Number *)field[3], (const double *)field[4], field[5], field[6]});
  }
};

}  // namespace dacergnn::sampling
