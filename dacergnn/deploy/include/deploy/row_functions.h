// Functions of whole rows that have no form in programs: softmax of wide rows, and extremes with their places.
#pragma once

#include <cmath>
#include <cstdint>

#include "context.h"

namespace deploy {

// Writes exp(x - largest) / total of each row, or x - largest - log(total) if `logarithm` is set.
template <bool logarithm, class T>
void softmax_rows(T *to, const T *from, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i, to += width, from += width) {
    T most = width ? from[0] : T(0), total = 0;
    for (std::int64_t k = 1; k < width; ++k) most = from[k] > most || from[k] != from[k] ? from[k] : most;
    for (std::int64_t k = 0; k < width; ++k) total += to[k] = std::exp(from[k] - most);
    if constexpr (logarithm) {
      const T shift = most + std::log(total);
      for (std::int64_t k = 0; k < width; ++k) to[k] = from[k] - shift;
    } else {
      for (std::int64_t k = 0; k < width; ++k) to[k] /= total;
    }
  }
}

// Writes the largest (sign 1) or the smallest (sign -1) number of each row, and its first place; NaN counts as either.
template <int sign, class T>
void extreme_of_rows(T *to, std::int64_t *places, const T *from, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i, from += width) {
    std::int64_t best = 0;
    for (std::int64_t k = 1; k < width; ++k)
      if (from[best] == from[best] && (sign * from[k] > sign * from[best] || from[k] != from[k])) best = k;
    to[i] = from[best];
    places[i] = best;
  }
}

// Writes the sum or the mean over all rows.
template <bool mean, class T>
void sum_of_rows(T *to, const T *from, std::int64_t rows, std::int64_t width) {
  for (std::int64_t k = 0; k < width; ++k) {
    double total = 0;
    for (std::int64_t i = 0; i < rows; ++i) total += static_cast<double>(from[i * width + k]);
    to[k] = static_cast<T>(mean ? total / static_cast<double>(rows) : total);
  }
}

}  // namespace deploy
