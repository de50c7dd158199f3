// The graph that is sampled: of each relation the edges by destination.
#pragma once

#include <vector>

#include "threads.h"

namespace dacergnn::sampling {

// The edges colptr[v] .. colptr[v + 1] lead into node v, in the order of time if they have times.
struct Relation {
  const Number *colptr, *row;
  const Number *edge;     // The number of each edge in the user's graph; null where edges stand in that order.
  const Number *time;     // Of each edge; null if it does not matter.
  const double *weight;   // Of each edge; null if all have the same chance.
  Number source, destination;  // Types of nodes.

  Number number(Number position) const { return edge ? edge[position] : position; }
};

struct Graph {
  std::vector<Number> nodes;  // Their count, for each type.
  std::vector<Relation> relations;

  // `numbers`: counts of types and of relations; of each type its count of nodes; of each relation its members.
  explicit Graph(const Number *numbers) : nodes(numbers + 2, numbers + 2 + numbers[0]) {
    const Number *field = numbers + 2 + numbers[0];
    for (Number r = 0; r < numbers[1]; ++r, field += 7)
      relations.push_back({(const Number *)field[0], (const Number *)field[1], (const Number *)field[2],
                           (const Number *)field[3], (const double *)field[4], field[5], field[6]});
  }
};

}  // namespace dacergnn::sampling
