// Computes encodings of a graph, one after the other, from a list of steps. All vectors have one type of index.
#pragma once

#include "sorting.h"

namespace dacergnn {

// Runs a list of steps, which read sizes of row spaces and addresses of vectors. The address of an order is 0 if rows
// already are in that order.
template <class Index>
struct Encoder {
  const Number *sizes, *next;
  Number *addresses;

  Number size() { return sizes[*next++]; }
  Index *vector() { return (Index *)addresses[*next++]; }

  // Computes an order. Reads its place; the number of rows; the number of keys, and of each its vector and its bound.
  bool order() {
    Number &result = addresses[*next++];
    const Number rows = size(), keys = *next++;
    Number numbers[4 + 3 * 2] = {rows, result, sizeof(Index), keys};
    for (Number key = 0; key < keys; ++key) {
      numbers[4 + 3 * key] = (Number)vector();
      numbers[5 + 3 * key] = sizeof(Index);
      numbers[6 + 3 * key] = size();
    }
    const Number found = stable_order(numbers);
    if (found == 0) result = 0;
    return found >= 0;
  }

  // Computes pointers. Reads the starts of groups (to write); the group of each row; the numbers of rows and of groups.
  void pointers() {
    Index *const starts = vector(), *const target = vector();
    const Number rows = size(), groups = size();
    const Number numbers[] = {rows, (Number)target, sizeof(Index), groups, (Number)starts, sizeof(Index)};
    dacergnn::pointers(numbers);
  }

  // Computes groups of rows. Reads the group of each row (to write); starts of groups; rows in their order; the number
  // of groups.
  void groups() {
    Index *const result = vector(), *const starts = vector(), *const order = vector();
    const Number numbers[] = {size(), (Number)starts, (Number)order, (Number)result, sizeof(Index)};
    groups_of_rows(numbers);
  }

  // Selects values. Reads the place of the result; the values; the rows to take, in order; the number of rows.
  void take() {
    const Number place = *next++;
    auto *const result = (Index *)addresses[place];
    const Index *const value = vector(), *const chosen = vector();
    const Number rows = size();
    if (!chosen) {
      addresses[place] = (Number)value;
      return;
    }
    for (Number i = 0; i < rows; ++i) result[i] = value[chosen[i]];
  }

  // Selects first values. Reads the value of the first row of each group (to write); values; starts of groups; rows in
  // their order; the number of groups.
  void firsts() {
    Index *const result = vector();
    const Index *const value = vector(), *const starts = vector(), *const order = vector();
    const Number groups = size();
    for (Number g = 0; g < groups; ++g) result[g] = value[order ? order[starts[g]] : starts[g]];
  }

  // Counts from 0. Reads the place of the result; its length.
  void count() {
    Index *const result = vector();
    const Number rows = size();
    for (Number i = 0; i < rows; ++i) result[i] = (Index)i;
  }

  bool run(Number steps) {
    for (; steps > 0; --steps) switch (*next++) {
        case 0:
          if (!order()) return false;
          break;
        case 1: pointers(); break;
        case 2: groups(); break;
        case 3: take(); break;
        case 4: firsts(); break;
        case 5: count(); break;
      }
    return true;
  }
};

// Computes encodings. Returns 0, or -1 if there is no memory or a sort needs more than 64 bits.
// `numbers`: bytes of an index, number of steps, the steps. `data`: number of sizes, those, then addresses.
inline Number encode(const Number *numbers, Number *data) {
  const auto run = [&](auto index) {
    return Encoder<decltype(index)>{data + 1, numbers + 2, data + 1 + data[0]}.run(numbers[1]) ? 0 : -1;
  };
  return numbers[0] == 4 ? run(std::int32_t()) : run(std::int64_t());
}

}  // namespace dacergnn
