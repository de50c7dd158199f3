// Operations on whole tensors between the programs of an exported model: they move rows, or add them up by index.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "context.h"

namespace deploy {

// Copies `rows` rows of `width` elements, from rows that are `from_stride` elements apart to rows `to_stride` apart.
template <class T>
void copy_rows(T *to, std::int64_t to_stride, const T *from, std::int64_t from_stride, std::int64_t rows,
               std::int64_t width) {
  if (rows * width == 0) return;  // addresses may be null
  if (to_stride == width && from_stride == width) {
    std::memcpy(to, from, static_cast<std::size_t>(rows * width) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<std::size_t>(width) * sizeof(T));
}

// Raises an error if an index is out of range. Negative indices count from the end if `wraps`.
template <class I>
void check_index(const I *index, std::int64_t count, std::int64_t rows, const char *label, bool wraps) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::int64_t>(index[i]);
    if (row >= rows || row < (wraps ? -rows : 0))
      fail(kBadInput, "%s: index %lld at place %lld is out of range; there are %lld rows.", label, (long long)row,
           (long long)i, (long long)rows);
  }
}

// Copies the rows that indices choose, which are checked already; negative ones count from the end.
template <class T, class I>
void gather_rows(T *to, const T *from, const I *index, std::int64_t count, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::int64_t>(index[i]);
    std::memcpy(to + i * width, from + (row < 0 ? row + rows : row) * width, static_cast<std::size_t>(width) * sizeof(T));
  }
}

template <class T>
void fill(T *to, std::int64_t count, T value) {
  std::fill_n(to, count, value);
}

// Writes the numbers 0, 1, 2, ...
template <class T>
void number_rows(T *to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(i);
}

enum class Reduce { kSum, kMean, kMax, kMin };

// Adds rows up, or takes their mean or extremes, by index. `to` holds values already if `include` is set.
template <class T, class I>
void scatter_rows(T *to, std::int64_t rows, const T *from, const I *index, std::int64_t count, std::int64_t width,
                  Reduce reduce, bool include, std::int64_t *counts, const char *label) {
  for (std::int64_t row = 0; row < rows; ++row) counts[row] = include;
  check_index(index, count, rows, label, false);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = static_cast<std::int64_t>(index[i]);
    T *const out = to + row * width;
    const T *const in = from + i * width;
    if (counts[row]++ == 0)
      std::memcpy(out, in, static_cast<std::size_t>(width) * sizeof(T));
    else
      for (std::int64_t k = 0; k < width; ++k)
        out[k] = reduce == Reduce::kMax   ? (in[k] > out[k] || in[k] != in[k] ? in[k] : out[k])
                 : reduce == Reduce::kMin ? (in[k] < out[k] || in[k] != in[k] ? in[k] : out[k])
                                          : out[k] + in[k];
  }
  if (reduce != Reduce::kMean) return;
  for (std::int64_t row = 0; row < rows; ++row)
    if (counts[row] > 1)
      for (std::int64_t k = 0; k < width; ++k) to[row * width + k] /= static_cast<T>(counts[row]);
}

}  // namespace deploy
